// An extension of Pi's for its certification: asks before `touch`, and begins a run of its own where the prompt says so.
export default function (pi: any) {
  let alone = false;
  pi.on("tool_call", async (event: any, ctx: any) => {
    const command: string = event.toolName === "bash" ? event.input.command : "";
    if (command.startsWith("touch ") && !(await ctx.ui.confirm("May it run?", command)))
      return { block: true, reason: "the user said no" };
  });
  pi.on("before_agent_start", (event: any) => {
    alone = String(event.prompt ?? "").includes("go on by yourself");
  });
  pi.on("agent_settled", () => {
    if (!alone) return;
    alone = false;
    setTimeout(
      () => pi.sendMessage({ customType: "t", content: "[[say:by itself]]", display: true }, { triggerTurn: true }),
      50,
    );
  });
}
