"""lastword beside others on the same work: the real Claude Code CLI, the same scripted model, warm turns one by one.

Each contestant is a process of its own in a sealed home: its own interpreter, CLI, tmux server. It is given the next
prompt once the CLI's record has the end of the one before. Turns: *plain*, answered at once; *pause*, where the model is
silent in the middle of its text; *tools*, two commands and then the answer. The clock is the machine's: when the model
was asked and had answered (its server), when the CLI's record held the prompt and the end (another process, inotify), and
when the contestant says that it was told. *Own* is the last span: the CLI's time is not in it. *Early*: told before the
model had answered. *Wrong*: the model's text is not in what was told. Of all only lastword keeps anything: committed
before it is told, with ``durability="power"`` (an ``fdatasync``, whose floor is measured before and behind the others) and, in
rows of their own, with ``process`` (survives the host's death and no power cut; the rivals survive neither). A rival is installed into a venv of its own, or skipped with the reason. The
CLI: on PATH, or cached (``make live``). Prints figures, asserts nothing.

Usage: PYTHONPATH=src python bench/rival_turns.py [--turns 20] [--slow 3] [--only NAME,NAME]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _report import QUICK, percentile, show, skipped
from _rival_table import (
    BY_KIND,
    COLUMNS,
    Turn,
    answer_of,
    begin_of,
    marks_in,
    own,
    prompt_of,
    row,
    rows_by_kind,
    turn_of,
)
from rivals._venv import MissingError, python_with

from lastword.actors.core.errors import LastwordError
from lastword.runtime.command._rehearse import find_real_cli
from lastword.runtime.testing import ModelRequest, Rehearsal, Step, TextBlock, ToolBlock
from lastword.runtime.testing.conformance._witness import Witness
from lastword.transports.providers import ADAPTERS

RIVALS = Path(__file__).parent / "rivals"
PAUSE_S = 5.0
TOOL_S = 2
TOOLS = 2
READY_S = 90.0
TURN_S = 90.0
END_S = 20.0
"""From told until the CLI's record has the end, where it was told early: the turn's own length too."""
SETTLE_S = 0.5
"""Between turns."""
CLOSE_S = 15.0
"""For a contestant to end what it began; then that is ended for it."""
LOOK_S = 0.02
TOLD_APART_S = 1.0


@dataclass(frozen=True)
class Contestant:
    name: str
    mode: str
    script: str
    package: str = ""
    """Empty: it is ours."""
    at_least: tuple[int, int] = (3, 11)
    args: tuple[str, ...] = ()


CONTESTANTS = (
    Contestant("lastword, structured", "stdio", "ours.py", args=("structured",)),
    Contestant("lastword, structured, process", "stdio", "ours.py", args=("structured", "process")),
    Contestant("claude-agent-sdk", "stdio", "agent_sdk.py", "claude-agent-sdk==0.2.184"),
    Contestant("lastword, tmux", "terminal", "ours.py", args=("tmux",)),
    Contestant("lastword, tmux, process", "terminal", "ours.py", args=("tmux", "process")),
    Contestant("floor: bare control client", "terminal", "bare.py"),
    Contestant("claude-interactive-sdk", "terminal", "interactive_sdk.py", "claude-interactive-sdk==0.0.3"),
    Contestant("aimax", "terminal", "aimax_turns.py", "aimax==0.1.0"),
    Contestant("cli-agent-orchestrator", "terminal", "orchestrator.py", "cli-agent-orchestrator==2.5.4"),
    Contestant("doeff-agents", "terminal", "doeff_turns.py", "doeff-agents==0.1.2"),
    Contestant("oauth-cli-coder", "terminal", "oauth_turns.py", "oauth-cli-coder==0.2.0", at_least=(3, 12)),
)
OURS = {"stdio": "lastword, structured", "terminal": "lastword, tmux"}
"""What the others are compared with."""
SYNCS = 20 if QUICK else 100
SYNC_APART_S = 0.03


class BrokenError(Exception):
    """It could not be measured to the end; the text says why."""


def respond(request: ModelRequest) -> Step | None:
    """The scripted model."""
    turn = turn_of(request.prompt)
    if request.hidden or turn is None:
        return None
    kind, number = turn
    text = answer_of(kind, number)
    if kind == "tools" and request.answered < TOOLS:
        look = TextBlock(text=f"Look {request.answered} of {number}.")
        return Step(blocks=(look, ToolBlock(name="Bash", input={"command": f"sleep {TOOL_S}"})))
    if kind == "pause":
        begin = begin_of(number)
        return Step(blocks=(TextBlock(text=begin + text),), chunk_chars=len(begin), chunk_pause_s=PAUSE_S)
    return Step(blocks=(TextBlock(text=text),))


class Contest:
    """One contestant at work in a home of its own."""

    def __init__(self, who: Contestant, cli: str, kit: Rehearsal, witness: Witness) -> None:
        self.version = ""
        self.broke = ""
        self.turns: list[Turn] = []
        self._kit, self._witness = kit, witness
        self._folder = kit.home / ".claude" / "projects" / re.sub(r"[^a-zA-Z0-9]", "-", str(kit.cwd))
        witness.watch(self._folder)
        python = python_with(who.package, at_least=who.at_least) if who.package else sys.executable
        self._errors = kit.root / "stderr"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [python, str(RIVALS / who.script), cli, str(kit.cwd), *who.args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=sealed_env(kit, cli, ours=not who.package),
                cwd=kit.cwd,
                start_new_session=True,
            )
        self._rest = b""

    def run(self, kinds: list[str]) -> None:
        """The turns, as far as it comes."""
        try:
            self.version = self._line(READY_S)["ready"]
            for number, kind in enumerate(kinds, 1):
                self._turn(kind, number)
        except BrokenError as reason:
            self.broke = str(reason)
        finally:
            self._file_requests()

    def _turn(self, kind: str, number: int) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"prompt": prompt_of(kind, number)}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise BrokenError(self._last_words()) from error
        said = self._line(TURN_S)
        turn = Turn(kind, number, said["sent"], said["told"], said["answer"])
        end = time.monotonic() + END_S + PAUSE_S
        while not self._find(turn):
            if time.monotonic() > end:
                raise BrokenError(f"no end of turn {number} in the CLI's record")
            time.sleep(LOOK_S)
        self.turns.append(turn)
        time.sleep(SETTLE_S)

    def _line(self, within_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        end = time.monotonic() + within_s
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise BrokenError(f"silent for {within_s:.0f} s; {self._last_words()}")
            chunk = os.read(self._process.stdout.fileno(), 65536)
            if not chunk:
                raise BrokenError(self._last_words())
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            said: dict[str, Any] = json.loads(line)
        except ValueError:
            raise BrokenError(f"no line of ours: {line[:100]!r}") from None
        return said

    def _last_words(self) -> str:
        lines = self._errors.read_text(errors="replace").strip().splitlines()
        return f"its last words: {lines[-1][:300]}" if lines else "it said nothing"

    def _find(self, turn: Turn) -> bool:
        """Whether the record has its end; notes when that, and the prompt, were seen there."""
        for record in self._folder.glob("*.jsonl") if self._folder.exists() else ():
            prompts, ends = marks_in(record.read_bytes())
            at_prompt = next((at for at, number in prompts if number == turn.number), None)
            at_end = next((at for at, number in ends if number == turn.number), None)
            if at_end is None:
                continue
            turn.end_seen = self._witness.held(str(record), at_end - 1, within_s=TOLD_APART_S)
            if at_prompt is not None:
                turn.prompt_seen = self._witness.held(str(record), at_prompt - 1, within_s=0)
            return True
        return False

    def _file_requests(self) -> None:
        asked = [each for each in self._kit.server.requests if each.script == "respond"]
        for turn in self.turns:
            mine = [each for each in asked if turn_of(each.prompt) == (turn.kind, turn.number)]
            turn.asked = [each.at_wall_s for each in mine]
            turn.model_ended = mine[-1].ended_wall_s or None if mine else None

    def end(self) -> None:
        """The process, its tmux server, and whatever else still lives in that home."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(CLOSE_S)
        except (OSError, subprocess.TimeoutExpired):
            pass
        subprocess.run(
            ["tmux", "kill-server"], env=sealed_env(self._kit, ""), capture_output=True, timeout=10, check=False
        )
        for pid in living_in(self._kit.home):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._process.wait(15)
        assert self._process.stdout is not None
        self._process.stdout.close()


def sealed_env(kit: Rehearsal, cli: str, *, ours: bool = False) -> dict[str, str]:
    """That of the kit; a tmux server of its own; ``claude`` is that CLI, also in a login shell; no other agent's CLI."""
    bin_folder, sockets = kit.root / "bin", kit.root / "x"
    if not bin_folder.exists():
        bin_folder.mkdir()
        sockets.mkdir()
        (bin_folder / "claude").symlink_to(cli)
        for other in ("gemini", "codex"):
            (bin_folder / other).write_text("#!/bin/sh\nexit 1\n")
            (bin_folder / other).chmod(0o755)
        settings = kit.home / ".claude" / "settings.json"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps({"skipDangerousModePermissionPrompt": True}))
        (kit.home / ".claude" / "settings.api.json").write_text("{}")
        (kit.home / ".bash_profile").write_text(f'export PATH="{bin_folder}:$PATH"\n')
    env = {**kit.env, "TMUX_TMPDIR": str(sockets), "IS_SANDBOX": "1", "PATH": f"{bin_folder}:{kit.env['PATH']}"}
    if ours and "PYTHONPATH" in os.environ:
        env["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return env


def living_in(home: Path) -> list[int]:
    """The processes whose HOME is that sealed one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={home}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def plan(turns: int, slow: int) -> list[str]:
    """The first is the start, and not counted; the slow ones lie among the others."""
    kinds = ["plain"] * turns
    for number in range(slow):
        at = (number + 1) * len(kinds) // (slow + 1)
        kinds[at:at] = ["pause", "tools"]
    return ["plain", *kinds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=6 if QUICK else 20, help="plain ones")
    parser.add_argument("--slow", type=int, default=1 if QUICK else 3, help="with a pause, and as many with tools")
    parser.add_argument("--only", default="", help="names of contestants, or parts of them, with commas")
    args = parser.parse_args()
    try:
        cli = str(find_real_cli(ADAPTERS["claude-code", "tmux"]))
    except (LastwordError, KeyError) as error:
        skipped("rival_turns", f"no Claude Code CLI here ({error}); `make live` downloads one")
        return
    wanted = [each for each in CONTESTANTS if any(part in each.name for part in args.only.split(","))]
    turns: dict[str, list[Turn]] = {}
    modes: dict[str, str] = {}
    told: list[str] = []
    missing: dict[str, Exception] = {}
    synced = syncs()
    try:
        for who in wanted:
            began = time.monotonic()
            try:
                name, turns[name], broke = held(who, cli, plan(args.turns, args.slow))
            except (MissingError, OSError) as reason:
                missing[who.name] = reason
                continue
            modes[name] = who.mode
            told += [f"{who.name}: {broke}"] if broke else []
            print(f"- {name}: {len(turns[name])} turns in {time.monotonic() - began:.0f} s", flush=True)
    finally:  # if it takes too long, those that there are
        ours = {mode: percentile(own(turns.get(name, [])), 0.5) for mode, name in OURS.items()}
        synced += syncs()
        note = (
            f"Load: {os.getloadavg()[0]:.1f}. Claude Code: {cli_version(cli)}. Early turns have no latency. One fdatasync of 4 kB, "
            f"paced, p50 / p99: {percentile(synced, 0.5):.2f} / {percentile(synced, 0.99):.2f}."
        )
        rows = [row(name, modes[name], some, ours.get(modes[name])) for name, some in turns.items()]
        show("The same turns on the real Claude Code CLI, ms", COLUMNS, rows, "\n".join([note, *told]))
        by_kind = [each for name, some in turns.items() for each in rows_by_kind(name, some)]
        show("The same, by kind of turn, ms", BY_KIND, by_kind)
        for name, reason in missing.items():
            skipped(name, reason)


def syncs() -> list[float]:
    """Milliseconds of 4 kB and an ``fdatasync``, paced, on the disk of the contestants' homes."""
    spent = []
    with tempfile.TemporaryFile() as file:
        for _ in range(SYNCS):
            time.sleep(SYNC_APART_S)
            began = time.perf_counter()
            os.pwrite(file.fileno(), b"x" * 4096, os.fstat(file.fileno()).st_size)
            os.fdatasync(file.fileno())
            spent.append((time.perf_counter() - began) * 1e3)
    return spent


def held(who: Contestant, cli: str, kinds: list[str]) -> tuple[str, list[Turn], str]:
    """Its name with its version, its turns but the first, and why it ended before them all if it did."""
    with Witness() as witness, Rehearsal(respond=respond) as kit:
        contest = Contest(who, cli, kit, witness)
        try:
            contest.run(kinds)
        finally:
            contest.end()
    name = f"{who.name} {contest.version}" if who.package else who.name
    broke = f"ended after {len(contest.turns)} turns of {len(kinds)}: {contest.broke}" if contest.broke else ""
    return name, contest.turns[1:], broke


def cli_version(cli: str) -> str:
    found = re.search(r"claude-code-([\d.]+)", cli)
    return found[1] if found else cli


if __name__ == "__main__":
    main()
