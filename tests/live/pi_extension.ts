// Asks before a shell command that says so, as extensions of Pi do; and begins a run of its own when told to.
export default function (pi: any) {
  pi.on("input", async (event: any) => {
    if (event.text.includes("[[slowly]]")) await new Promise((done) => setTimeout(done, 1500));
  });
  pi.on("tool_call", async (event: any, ctx: any) => {
    const command: string = event.toolName === "bash" ? event.input.command : "";
    if (command.startsWith("touch ") && !(await ctx.ui.confirm("May it run?", command)))
      return { block: true, reason: "the user said no" };
    if (command.startsWith("choose")) {
      const chosen = await ctx.ui.select("Which?", ["A", "B"]);
      event.input.command = `echo chosen ${chosen}`;
    }
    if (command.startsWith("wait") && !(await ctx.ui.confirm("In time?", command, { timeout: 700 })))
      return { block: true, reason: "nobody answered" };
  });
  pi.on("agent_settled", () => {
    if (process.env.LASTWORD_TEST_ALONE && !(globalThis as any).once) {
      (globalThis as any).once = true;
      setTimeout(
        () => pi.sendMessage({ customType: "t", content: "[[say:by itself]]", display: true }, { triggerTurn: true }),
        50,
      );
    }
  });
}
