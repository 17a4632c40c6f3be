"""Every pinned CLI but Claude Code (which has tests of its own), run structured in its sealed home: answer, tool, error.

What is in the output, that no dialog holds it up, and that it touches nothing outside its home.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import live_clis
import pytest

from lastword.runtime.testing import Rehearsal
from lastword.runtime.testing.homes import HOMES
from lastword.transports.providers import ADAPTERS

pytestmark = pytest.mark.live
CACHE = Path(os.environ.get("LASTWORD_CLI_CACHE") or "/nonexistent")
TURN_S = 60
TOOL = "[[tool:Bash:echo tool-answer | tr a-z A-Z]][[say:after the tool]]"  # Gemini CLI refuses $(...) and $((...))


class How(NamedTuple):
    """The arguments before the prompt, and the exit code after an error."""

    options: tuple[str, ...]
    error_exit: int


HOW = {
    "codex": How(("exec", "--json", "--skip-git-repo-check"), 1),
    "pi": How(("--offline", "--no-approve", "--mode", "json"), 0),
    "gemini": How(("--approval-mode", "yolo", "--output-format", "stream-json", "-p"), 400 % 256),
    "qwen": How(("--approval-mode", "yolo", "--output-format", "stream-json", "-p"), 1),
    "opencode": How(("run", "--format", "json"), 1),
}


class Ran(NamedTuple):
    """One run."""

    code: int
    lines: list[Any]
    wall_s: float

    @property
    def text(self) -> str:
        return json.dumps(self.lines)


@pytest.fixture(params=sorted(HOW))
def provider(request: pytest.FixtureRequest) -> str:
    if not live_clis.is_there(CACHE, request.param):
        pytest.skip(f"the pinned {request.param} is not in the cache folder: make live")
    return str(request.param)


@pytest.fixture
def stage(provider: str) -> Iterator[Rehearsal]:
    with Rehearsal(provider=provider) as kit:
        yield kit


def run(provider: str, stage: Rehearsal, prompt: str) -> Ran:
    argv = [*live_clis.argv_of(CACHE, provider), *HOW[provider].options, prompt]
    began = time.monotonic()
    done = subprocess.run(
        argv, cwd=stage.cwd, env=stage.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=TURN_S, check=False
    )
    wall_s = time.monotonic() - began
    print(f"{provider}: {wall_s:.2f} s, exit {done.returncode}\n{done.stderr.decode()[-2000:]}")
    return Ran(done.returncode, [json.loads(line) for line in done.stdout.splitlines() if line.strip()], wall_s)


def asked(stage: Rehearsal) -> list[tuple[str, int, str]]:
    """What played for the person's own turn."""
    return [(r.script, r.step, r.outcome) for r in stage.server.requests if not r.script.startswith("hidden:")]


def test_every_home_has_its_rehearsal() -> None:
    assert set(HOW) == {name for name in HOMES if name not in {way for way, over in ADAPTERS if over == "api"}}


def test_the_answer_is_in_the_output(provider: str, stage: Rehearsal) -> None:
    ran = run(provider, stage, "[[say:the-rehearsed-answer]]")
    answers = [line for line in ran.lines if "the-rehearsed-answer" in json.dumps(line).replace("[[say:the-re", "")]
    assert ran.code == 0
    assert answers
    assert asked(stage) == [("inline", 0, "answered")]


def test_a_tool_runs_for_real_and_its_result_goes_back(provider: str, stage: Rehearsal) -> None:
    ran = run(provider, stage, TOOL)
    assert ran.code == 0
    assert "TOOL-ANSWER" in ran.text
    assert "after the tool" in ran.text.replace("[[say:after the tool]]", "")
    assert asked(stage) == [("inline", 0, "answered"), ("inline", 1, "answered")]


def test_an_error_that_is_final_ends_it(provider: str, stage: Rehearsal) -> None:
    ran = run(provider, stage, "[[error:400]]")
    assert ran.code == HOW[provider].error_exit
    assert "scripted failure" in ran.text
    assert asked(stage) == [("inline", 0, "error")]


def test_nothing_outside_the_sealed_place_is_touched(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second home stands for the person's: the environment that the kit makes must not lead there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    real_home = Path(os.path.expanduser(f"~{os.environ.get('USER') or 'root'}"))  # noqa: PTH111 - by name, not by HOME
    before = _config_of(real_home)
    with Rehearsal(provider=provider) as stage:
        assert run(provider, stage, "[[say:hello]]").code == 0
    assert list(tmp_path.iterdir()) == []
    assert _config_of(real_home) == before


def _config_of(home: Path) -> dict[str, int]:
    """Modification times of what these CLIs keep in a home."""
    names = (".codex", ".pi", ".gemini", ".qwen", ".config/opencode", ".local/share/opencode", ".cache/opencode")
    return {name: (home / name).stat().st_mtime_ns for name in names if (home / name).exists()}


def test_pi_answers_over_rpc_too() -> None:
    if not live_clis.is_there(CACHE, "pi"):
        pytest.skip("the pinned pi is not in the cache folder: make live")
    argv = [*live_clis.argv_of(CACHE, "pi"), "--offline", "--no-approve", "--mode", "rpc"]
    asking = json.dumps({"id": "1", "type": "prompt", "message": TOOL}).encode() + b"\n"
    kinds, seen = [], ""
    with (
        Rehearsal(provider="pi") as stage,
        subprocess.Popen(
            argv, cwd=stage.cwd, env=stage.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as child,
    ):
        bound = threading.Timer(TURN_S, child.kill)
        bound.start()
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(asking)
            child.stdin.flush()
            for line in child.stdout:
                seen += line.decode()
                kinds.append(json.loads(line)["type"])
                if kinds[-1] == "agent_settled":
                    break
            child.stdin.close()
            assert child.wait(TURN_S) == 0
        finally:
            bound.cancel()
            child.kill()
    assert kinds[0] == "response"
    assert kinds.count("agent_settled") == 1
    assert "TOOL-ANSWER" in seen
