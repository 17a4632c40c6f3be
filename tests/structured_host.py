"""A host in a process of its own, to be ended by SIGKILL: reads its orders from stdin, tells how far it came."""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module

from lastword import Runtime

WAIT_S = 60.0


def main() -> None:
    order = json.loads(sys.stdin.readline())
    provider, options = order["provider"], order["options"]
    runtime = Runtime.open(
        order["state"],
        env=order["env"],
        executables={provider: tuple(order["argv"])},
        tools=import_module(order["tools"]).TOOLS if order.get("tools") else (),
        allow_uncertified=bool(order.get("allow_uncertified")),
        durability="process",
    )
    session = runtime.session(provider, cwd=order["cwd"], **options)
    kinds: list[str] = []

    def come_to(kind: str) -> None:
        end = time.monotonic() + WAIT_S
        while kind not in kinds and time.monotonic() < end:
            time.sleep(0.005)
            kinds[:] = [event.type for event in runtime._journal.events(session.session_id, 0, 10_000)]

    first, *others = order["messages"]
    acks = [session.send(first)]
    if others:
        come_to("turn_started")
        acks += [session.send(text) for text in others]
    come_to(order["wait_for"])
    told = {
        "session": session.session_id,
        "turns": [ack.turn_id for ack in acks],
        "messages": [ack.message_id for ack in acks],
        "pid": session.snapshot().handle.pid,
        "kinds": kinds,
    }
    print(json.dumps(told), flush=True)
    time.sleep(WAIT_S)  # until it is killed


if __name__ == "__main__":
    main()
