"""lastword beside others on the same work: the real Claude Code CLI, the same scripted model, warm turns one by one.

Spans by the clock of the machine: prompt given -> the model is asked; the model's answer is written -> the host holds
the end of the turn. The CLI's own time is in both, and the same for all who drive it in the same mode. "early": told
before the model had answered; "wrong": another text than the model's. lastword's end is committed before it is told
(``durability="power"``); of the others none keeps anything. A rival is installed into a venv of its own, or skipped
with the reason. The CLI: on PATH, or cached (``make live``). Prints figures, asserts nothing.

Usage: PYTHONPATH=src python bench/rival_turns.py [--turns 30]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _report import QUICK, percentile, show
from rivals._venv import MissingError, python_with

from lastword import Runtime
from lastword.actors.core.errors import LastwordError
from lastword.runtime.command._rehearse import find_real_cli
from lastword.runtime.testing import Rehearsal
from lastword.runtime.testing.model_server import RequestRecord
from lastword.transports.providers import ADAPTERS

RUN_MAX_S = 240
RIVALS = Path(__file__).parent / "rivals"
Told = list[dict[str, Any]]


def lastword_turns(transport: str) -> Callable[[Rehearsal, str, int], Told]:
    def run(kit: Rehearsal, cli: str, turns: int) -> Told:
        told: Told = []
        with Runtime.open(kit.root / "state", env=kit.env, executables={"claude-code": [cli]}) as runtime:
            session = runtime.session("claude-code", cwd=kit.cwd, transport=transport)
            for number in range(turns):
                prompt = f"turn {number} of lastword"
                sent = time.time()
                done = session.run(prompt, deadline_s=60)
                told.append({"prompt": prompt, "sent": sent, "told": time.time(), "answer": done.answer or ""})
            session.close()
        return told

    return run


def agent_sdk_turns(kit: Rehearsal, cli: str, turns: int) -> Told:
    python = python_with("claude-agent-sdk==0.2.184")
    done = subprocess.run(
        [python, str(RIVALS / "agent_sdk.py"), cli, str(kit.cwd), str(turns)],
        env={**kit.env, "IS_SANDBOX": "1"},
        cwd=kit.cwd,
        capture_output=True,
        text=True,
        timeout=RUN_MAX_S,
        check=False,
    )
    if done.returncode:
        raise MissingError(f"it ended with status {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    told: Told = json.loads(done.stdout.splitlines()[-1])
    return told


CONTESTANTS: dict[str, tuple[str, Callable[[Rehearsal, str, int], Told]]] = {
    "lastword, structured": ("stdio", lastword_turns("structured")),
    "claude-agent-sdk": ("stdio", agent_sdk_turns),
    "lastword, tmux": ("terminal", lastword_turns("tmux")),
}


def row_of(name: str, mode: str, told: Told, asked: list[RequestRecord]) -> list[object]:
    """The first turn is the start; it is not counted."""
    to_model, from_model, early, wrong = [], [], 0, 0
    for turn in told[1:]:
        of_it = [each for each in asked if each.prompt == turn["prompt"] and each.at_wall_s >= turn["sent"]]
        if not of_it:
            wrong += 1
            continue
        to_model.append((of_it[0].at_wall_s - turn["sent"]) * 1e3)
        from_model.append((turn["told"] - of_it[-1].ended_wall_s) * 1e3)
        early += turn["told"] < of_it[-1].ended_wall_s
        wrong += turn["answer"].strip() != f"echo: {turn['prompt']}"
    spans = [percentile(values, share) for values in (to_model, from_model) for share in (0.5, 0.99)]
    return [name, mode, len(told) - 1, *spans, early, wrong]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=8 if QUICK else 30)
    args = parser.parse_args()
    try:
        cli = str(find_real_cli(ADAPTERS["claude-code", "tmux"]))
    except (LastwordError, KeyError) as error:
        print(f"skipped: no Claude Code CLI here ({error}); `make live` downloads one")
        return
    rows = []
    for name, (mode, run) in CONTESTANTS.items():
        with Rehearsal() as kit:
            try:
                told = run(kit, cli, args.turns + 1)
            except (MissingError, OSError, subprocess.TimeoutExpired) as reason:
                print(f"{name}: skipped: {reason}")
                continue
            rows.append(row_of(name, mode, told, list(kit.server.requests)))
    columns = ["who", "mode", "turns", "given -> model asked, ms p50", "p99"]
    columns += ["model answered -> told, ms p50", "p99", "early", "wrong"]
    show("The same turns on the real Claude Code CLI", columns, rows, f"Load: {os.getloadavg()[0]:.1f}.")


if __name__ == "__main__":
    main()
