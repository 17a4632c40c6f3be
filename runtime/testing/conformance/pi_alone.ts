// An extension of Pi's for its certification in a pane: begins a run of its own where the prompt says so.
export default function (pi: any) {
  let alone = false;
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
