"""The real Codex in a real pane on a scripted model: what every CLI promises there, and what is its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import live_clis
import pytest

from kit_system import until
from lastword import Command, Interrupt, events
from lastword.transports.process import children
from pane_kit import WAIT_S, PaneHost, Ways, keys, screen
from pane_promises import *  # noqa: F403 - the tests that every CLI in a pane is put to
from structured_kit import completed, completion_of, completions, of_type, seen

pytestmark = pytest.mark.live
CACHE = Path(os.environ.get("LASTWORD_CLI_CACHE") or "/nonexistent")
READ_ONLY = ("--sandbox", "read-only")
ESCALATED = '"sandbox_permissions": "require_escalated", "justification": "May I?"'


@pytest.fixture
def host() -> Iterator[PaneHost]:
    if not live_clis.is_there(CACHE, "codex"):
        pytest.skip("the pinned codex is not in the cache folder: make live")
    ways = Ways(
        provider="codex",
        version="0.171.0",
        argv=tuple(live_clis.argv_of(CACHE, "codex")),
        options={},
        asking={"permission_mode": "on-request", "args": READ_ONLY},
        approval='[[tool:exec_command:{{"cmd": "touch {file}", ' + ESCALATED + "}}]][[say:touched]] please",
        records=".codex/sessions/*/*/*/*.jsonl",
        ended='"type":"task_complete"',
        error_kinds={400: "invalid_request", 401: "authentication", 429: "rate_limited"},
    )
    with PaneHost(ways) as made:
        yield made


# --- busy: Enter while it works steers ----------------------------------------------------------------------------------


@pytest.mark.contract("C20")
@pytest.mark.contract("C22")
def test_c20_a_message_while_a_tool_runs_joins_that_turn_once_the_tool_is_done(host: PaneHost) -> None:
    session = host.session()
    first = session.send("[[tool:Bash:sleep 3]][[say:both done]] work")
    seen(session, events.ToolStarted)
    second = session.send("also this")
    assert (second.taken, second.turn_id) == ("pending", None)
    seen(session, events.MessageSubmitted, second.seq)
    assert not of_type(session, events.MessageJoined)  # nothing on record proves it while the tool runs
    joined = seen(session, events.MessageJoined)
    assert (joined.turn_id, joined.message_id) == (first.turn_id, second.message_id)
    (done,) = completed(session)
    assert (done.status, done.joined) == ("completed", (second.message_id,))


@pytest.mark.contract("C20")
def test_c20_a_message_while_the_model_answers_cuts_that_answer_and_joins_the_turn(host: PaneHost) -> None:
    session = host.session()
    first = session.send("[[chunk:5:0.2]][[size:1000]] slow one")
    seen(session, events.TurnStarted)
    time.sleep(1.0)  # a piece of it is out: nothing on record tells
    second = session.send("[[say:to both]] while it answers")
    (done,) = completed(session)
    assert (done.turn_id, done.status, done.answer) == (first.turn_id, "completed", "to both")
    assert done.joined == (second.message_id,)


@pytest.mark.contract("C07")
@pytest.mark.contract("C20")
def test_c07_an_interrupt_leaves_what_waits_behind_it_to_a_turn_of_its_own(host: PaneHost) -> None:
    session = host.session()
    ack = session.send("[[tool:Bash:sleep 20]] long")
    seen(session, events.ToolStarted)
    behind = session.send("[[say:behind]] it")
    seen(session, events.MessageSubmitted, behind.seq)
    session.send(Interrupt(turn_id=ack.turn_id))
    one, two = completed(session, 2)
    assert (one.turn_id, one.status) == (ack.turn_id, "cancelled")
    assert (two.message_id, two.status, two.answer) == (behind.message_id, "completed", "behind")


# --- where the conversation is ------------------------------------------------------------------------------------------


@pytest.mark.contract("C51")
def test_c51_a_person_who_begins_another_conversation_is_followed_there(host: PaneHost) -> None:
    session = host.session()
    before = session.run("before", deadline_s=WAIT_S)
    keys(session, "-l", "/new")
    until(lambda: screen(session).count("/new") > 1, within_s=WAIT_S)  # in the box, and in the list below it
    keys(session, "Enter")
    rebound = seen(session, events.SessionRebound)
    assert rebound.body.previous == before.native_session_id
    after = session.run("after", deadline_s=WAIT_S)
    assert (after.status, after.answer) == ("completed", "echo: after")
    assert after.native_session_id == rebound.body.native_session_id != before.native_session_id
    assert [each.answer for each in completions(session)] == ["echo: before", "echo: after"]


@pytest.mark.contract("C20")
def test_c20_clear_goes_to_a_new_conversation_under_the_same_session(host: PaneHost) -> None:
    session = host.session()
    before = session.run("before", deadline_s=WAIT_S)
    assert session.send(Command("/clear")).taken == "applied"
    seen(session, events.SessionRebound)
    after = session.run("after", deadline_s=WAIT_S)
    assert after.answer == "echo: after"
    assert after.native_session_id != before.native_session_id


@pytest.mark.contract("C19")
def test_c19_compact_answers_no_message(host: PaneHost) -> None:
    session = host.session()
    assert session.run("before", deadline_s=WAIT_S).status == "completed"
    assert session.send(Command("/compact")).taken == "applied"
    _, own = completed(session, 2)
    assert (own.origin, own.message_id, own.status, own.answer or "") == ("local_command", None, "completed", "")
    assert session.run("[[say:after]] compact", deadline_s=WAIT_S).answer == "after"
    assert len(completions(session)) == 3


# --- faults -------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C03")
def test_c03_a_stream_that_is_cut_for_good_is_a_failed_turn(host: PaneHost) -> None:
    session = host.session()
    done = session.run("[[say:half of it]][[cut]] cut", deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("failed", None)
    assert done.error is not None
    assert done.error.kind == "provider_error"
    assert session.run("[[say:on]] next", deadline_s=WAIT_S).answer == "on"


# --- texts --------------------------------------------------------------------------------------------------------------

TEXTS = {
    "one_byte": "x",
    "hundred_kb": "0123456789abcdef " * 6000,
    "four_thousand_lines": "\n".join(f"line {n}" for n in range(4000)),
    "three_lines": "a\nb\nc",
    "ten_lines": "\n".join(f"line {n}" for n in range(10)),
    "just_no_placeholder": "a" * 1000,
    "just_a_placeholder": "a" * 1001,
    "crlf": "one\r\ntwo\r\nthree",
    "tabs": "a\tb\tc",
    "emoji_zwj": "family 👨\u200d👩\u200d👧\u200d👦 done",
    "cjk": "你好，世界。日本語とハングル 한국어",
    "trailing_backslash": "ends with a backslash \\",
    "slash_word": "/notacommand with words",
    "slash_help": "/status",
    "exit_word": "exit",
    "slash_path": "/tmp/file is a path",
    "bang": "!echo this is text, not a command",
    "hash": "# a heading",
    "at": "look @READ",
    "dollar": "what is $HOME",
    "the_placeholder": "Ask Codex to do anything",
    "quotes_the_ui": "› hello\n\n  gpt default · /x\n  ← for agents · ? for shortcuts",
    "quotes_a_dialog": "Would you like to run it?\n› 1. Yes, proceed (y)\n  2. No\n\n  Press enter to confirm or esc to cancel",
    "placeholder_word": "[Pasted Content 1500 chars] is what the box shows",
    "tmux_formats": "#{pane_id} #S ; kill-server \\; $(id) `id` %1 ~",
    "leading_blanks": "   indented",
}


@pytest.mark.contract("C24")
def test_c24_every_text_reaches_the_model_as_written_or_with_the_declared_rewriting(host: PaneHost) -> None:
    session = host.session()
    assert host.runtime is not None
    adapter = host.runtime._providers.adapters["codex", "tmux"]
    for name, text in TEXTS.items():
        done = session.run(text, deadline_s=WAIT_S)
        assert done.status == "completed", (name, done.error)
        wanted = text.replace("\r\n", "\n").strip()
        asked = [each.prompt for each in host.kit.server.requests if each.prompt.strip()]
        assert wanted in [prompt.strip() for prompt in asked], name
        typed = adapter.escape(text)
        assert typed.rewritten == wanted
    assert len(completions(session)) == len(TEXTS)
    assert len(of_type(session, events.MessageSubmitted)) == len(TEXTS)


@pytest.mark.contract("C24")
def test_c24_a_wide_text_of_few_lines_lands(host: PaneHost) -> None:
    """Between what the box shows whole and what it stands a placeholder for."""
    session = host.session()
    for lines, width in ((1, 990), (4, 240), (8, 120)):
        text = "\n".join(("word " * width)[:width].strip() for _ in range(lines))
        ack = session.send(text)
        done = completion_of(session, ack.turn_id)
        assert done.status == "completed", (lines, width, done.error)
    until(lambda: session.snapshot().state == "idle", within_s=WAIT_S)


# --- how it is started --------------------------------------------------------------------------------------------------


@pytest.mark.contract("C51")
@pytest.mark.contract("C61")
def test_c51_a_cli_that_is_started_through_its_wrapper_is_known_too_and_leaves_nothing(host: PaneHost) -> None:
    node, wrapper = shutil.which("node"), live_clis.home_of(CACHE, "codex") / "node_modules/@openai/codex/bin/codex.js"
    if node is None:
        pytest.skip("no node on PATH")
    host.close()
    host.ways = host.ways._replace(argv=(node, str(wrapper)))
    host.open()
    session = host.session()
    done = session.run("hello", deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("completed", "echo: hello")
    (inner,) = children(session.snapshot().handle.pid)
    assert Path(f"/proc/{inner}/exe").resolve().name == "codex"
    host.close()
    until(lambda: not Path(f"/proc/{inner}").exists(), within_s=WAIT_S)


def test_the_command_rehearses_a_turn_on_it(host: PaneHost) -> None:
    argv = [sys.executable, "-m", "lastword.runtime.command", "run", "--rehearse", "--provider", "codex"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*argv, "[[tool:Bash:echo hi]][[say:the-answer]] please"],
        env=environment,
        cwd=host.kit.root,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "the-answer\n"), done.stderr
