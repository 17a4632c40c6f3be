"""No text of a message or an answer, and no secret of the environment, stands anywhere but in the journal (C62)."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from host_kit import WAIT_S
from kit_system import until
from lastword import Runtime
from lastword.actors.core.ports import MessageRow
from lastword.runtime._edge import socket_name
from lastword.runtime.testing import SCRIPTED_CLI, Rehearsal

pytestmark = [pytest.mark.tmux, pytest.mark.contract("C62")]
SECRET = "sk-secret-0123456789"
PROMPT = "prompt-marker-7731"
ANSWER = "answer-marker-4460"


@pytest.fixture
def kit():
    with Rehearsal() as made:
        yield made


def opened(kit: Rehearsal, **options) -> Runtime:
    return Runtime.open(
        kit.root / "state",
        env=kit.env | {"ANTHROPIC_API_KEY": SECRET},
        executables={"claude-code": (sys.executable, str(SCRIPTED_CLI))},
        trace=kit.root / "state" / "trace.jsonl",
        serve_socket=True,
        **options,
    )


def tmux(kit: Rehearsal, *words: str) -> str:
    command = ["tmux", "-L", socket_name(kit.root / "state"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def titles(root: Path) -> str:
    """The command lines of everything that belongs to this folder, this process's own left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes()
                title = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(root).encode() in environment or str(root) in title or socket_name(root / "state") in title:
                found.append(title)
    assert found
    return "\n".join(found)


def files(folder: Path) -> str:
    """All files of the state folder but the journal, which is the one place where text stands."""
    told = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("journal.db")]
    texts = [path.name + path.read_bytes().decode(errors="replace") for path in told]
    assert any("trace" in text for text in texts)
    return "\n".join(texts)


@pytest.mark.parametrize("words", [(SECRET, PROMPT, ANSWER)])
def test_c62_nothing_reachable_tells_a_text_or_a_secret_while_a_turn_runs_and_afterwards(kit, words, capfd):
    state = kit.root / "state"
    with opened(kit) as runtime:
        session = runtime.session("claude-code", cwd=kit.cwd)
        ack = session.send(f"{PROMPT} [[sleep:0.6]][[say:{ANSWER}]]")
        until(lambda: (wait := session.snapshot().waits_for) and wait.kind == "model", within_s=WAIT_S)  # it is typed
        reachable = {
            "titles": titles(kit.root),
            "buffers": tmux(kit, "list-buffers"),
            "tmux's messages": tmux(kit, "show-messages"),
            "tmux's own environment": tmux(kit, "show-environment", "-g"),
            "panes": tmux(kit, "list-panes", "-a", "-F", "#{pane_title} #{pane_start_command} #{window_name}"),
            "files": files(state),
            "snapshot": repr(session.snapshot().waits_for),
        }
        until(lambda: runtime.completion(ack.turn_id), within_s=WAIT_S)
        reachable["files afterwards"] = files(state)
        kept = runtime._system.dead_letters
        kept.record(
            "late", "nobody", MessageRow(message_id="m", session_id=session.session_id, text=PROMPT, taken="queued")
        )
        reachable["dead letters"] = repr(runtime._system.dead_letters.recent())
    reachable["files at the end"] = files(state)
    out, err = capfd.readouterr()
    reachable["printed"] = out + err
    for where, text in reachable.items():
        for word in words:
            # (the server's own environment is that of the CLIs it starts, readable by their user alone, and ends with it)
            if (where, word) != ("tmux's own environment", SECRET):
                assert word not in text, f"{word} in {where}"


def test_c62_what_is_made_is_its_users_alone_whatever_the_umask(kit):
    """Also what is made anew after somebody deleted it."""
    state = kit.root / "state"
    before = os.umask(0)
    try:
        with opened(kit) as runtime:
            session = runtime.session("claude-code", cwd=kit.cwd)
            assert session.run("hello [[say:there]]").answer == "there"
            made = [state, *state.rglob("*")]
            socket = Path("/tmp") / f"tmux-{os.getuid()}" / socket_name(state)
            made += [socket, socket.parent]
            for path in made:
                mode = stat.S_IMODE(path.lstat().st_mode)
                open_to_others = mode & (stat.S_IRWXG | stat.S_IRWXO)
                if path == socket:
                    continue  # tmux sets its own socket's mode; its folder keeps others out
                assert not open_to_others, f"{path.name}: {mode:o}"
    finally:
        os.umask(before)
