"""The examples work as they stand, and are what a host may be: no provider's name, no transport, no pane, no transcript."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from lastword.actors.core.delivery import TransportName
from lastword.transports.providers import PROVIDERS

ROOT = Path(__file__).parents[2]
HOST_CODE = sorted([*(ROOT / "examples").glob("*.py"), *(ROOT / "runtime" / "command").glob("*.py")])
ALLOWED_TRANSPORT_IMPORTS = {"_record.py", "_whose.py", "doctor.py", "read.py", "_desk.py", "run.py"}
"""The command asks the edge what is installed and which providers there are; it drives nothing there."""


def run(name: str, place, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *words],
        env=place.env,
        cwd=place.cwd,
        input="hello\n\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_one_turn_shows_both_turns_and_leaves_nothing(place) -> None:
    done = run("one_turn.py", place)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.count("unified_completion") == 2
    assert "The tool has spoken." in done.stdout
    assert not list(Path(place.env["TMPDIR"]).glob("lw-*"))
    place.assert_nothing_is_left()


def test_chat_talks_to_the_provider_it_is_given(place) -> None:
    place.env["XDG_STATE_HOME"] = str(place.root / "xdg")
    done = run("chat.py", place, next(iter(PROVIDERS)))
    assert (done.returncode, done.stdout) == (0, "> echo: hello\n> "), done.stderr


def test_many_sessions_answer_each_with_their_own(place) -> None:
    done = run("async_many.py", place, "3")
    assert (done.returncode, done.stdout[:6]) == (0, "3 of 3"), done.stderr


@pytest.mark.contract("C10")
@pytest.mark.parametrize("path", HOST_CODE, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_c10_host_code_names_no_provider_and_no_transport(path: Path) -> None:
    words = set(PROVIDERS) | set(get_args(TransportName)) - {"tmux", "api"} | {"claude", "capture-pane"}
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, clean=False)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            assert node.value not in words, f"line {node.lineno}: {node.value!r}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lastword.transports"):
            assert path.name in ALLOWED_TRANSPORT_IMPORTS, f"line {node.lineno}"
