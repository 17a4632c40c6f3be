"""``lastword read`` on what the real ``codex exec --json`` says: the same turns as in its rollout."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live_clis
import pytest

from kit_system import until
from lastword.runtime.command.read import read_files
from lastword.runtime.testing import Rehearsal

pytestmark = pytest.mark.live
CACHE = Path(os.environ.get("LASTWORD_CLI_CACHE", "/nonexistent"))
WAIT_S = 30.0


@pytest.fixture
def stage() -> Iterator[Rehearsal]:
    if not live_clis.is_there(CACHE, "codex"):
        pytest.skip("the pinned codex is not in the cache folder: make live")
    with Rehearsal(provider="codex") as kit:
        yield kit


def begun(stage: Rehearsal, stream: Path, *words: str) -> subprocess.Popen[bytes]:
    argv = [*live_clis.argv_of(CACHE, "codex"), "exec", "--json", "--skip-git-repo-check", *words]
    with stream.open("wb") as out:
        return subprocess.Popen(
            argv, cwd=stage.cwd, env=stage.env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL
        )


def outline(files: list[Path]) -> list[tuple[Any, ...]]:
    turns = [turn.as_json() for turn in read_files("codex", files)]
    return [
        (turn["status"], turn["final_text"], [(call["name"], call["status"]) for call in turn["tool_calls"]])
        for turn in turns
    ]


def rollout(stage: Rehearsal) -> list[Path]:
    return list((stage.home / ".codex" / "sessions").rglob("rollout-*.jsonl"))


@pytest.mark.contract("C04")
def test_c04_the_runs_of_one_conversation_read_like_its_rollout(stage: Rehearsal) -> None:
    streams = [stage.root / f"{number}.jsonl" for number in range(3)]
    tools = "[[say:Let me look.]][[tool:Bash:echo alpha]][[say:Once more.]][[tool:Bash:exit 3]][[say:done]] work"
    assert begun(stage, streams[0], tools).wait(WAIT_S) == 0
    assert begun(stage, streams[1], "resume", "--last", "[[say:half of it]][[cut:1]] more").wait(WAIT_S) == 0
    assert begun(stage, streams[2], "resume", "--last", "[[say:Before it.]][[error:400]] no").wait(WAIT_S) == 1
    wanted = [
        ("completed", "done", [("exec_command", "ok"), ("exec_command", "error")]),
        ("completed", "half of it", []),
        ("failed", None, []),
    ]
    assert outline(streams) == wanted
    assert outline(rollout(stage)) == wanted


@pytest.mark.contract("C04")
def test_c04_an_interrupted_run_has_no_end_in_its_stream_and_one_in_its_rollout(stage: Rehearsal) -> None:
    stream = stage.root / "run.jsonl"
    run = begun(stage, stream, "[[say:Let me look.]][[tool:Bash:sleep 20]] long")
    try:
        until(lambda: b'"in_progress"' in stream.read_bytes(), within_s=WAIT_S)
        run.send_signal(signal.SIGINT)
        assert run.wait(WAIT_S) == 1
    finally:
        run.kill()
    ((status, text, _),) = outline([stream])
    assert (status, text) == ("unsettled", None)
    ((status, text, _),) = outline(rollout(stage))
    assert (status, text) == ("cancelled", None)
