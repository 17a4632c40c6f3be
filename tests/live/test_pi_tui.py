"""The real Pi in a real pane on a scripted model: what every CLI promises there, and what is Pi's own.

Pi is spoken to by files there (docs/adr/0018). It differs from the others where nothing is typed into its box, it takes a
message into its run whenever that comes, and it asks for no permissions.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live_clis
import pytest

import pane_promises
import pi_promises
import structured_promises
from kit_system import until
from lastword import Answer, Interrupt, RejectedError, events
from pane_kit import WAIT_S, PaneHost, Ways, keys, owners, screen
from structured_kit import as_told, completed, completion_of, completions, of_type, seen

OTHERWISE = frozenset(
    {
        "test_c02_a_plain_turn_completes_from_the_record",  # the record is of the process, not of the conversation
        "test_c24_a_draft_of_a_persons_is_not_mixed_with_ours",  # it holds nothing up
        "test_c25_an_approval_is_a_dialog_that_the_host_answers",  # it has no permissions: extensions ask
        "test_c03_an_api_error_is_a_failed_turn_with_its_kind_and_the_session_goes_on",
    }
)
"""Promises of a pane that Pi keeps in another way: each has its own below."""
_PROMISES = {name: test for name, test in vars(pane_promises).items() if name.startswith("test_")}
assert set(_PROMISES) > OTHERWISE
globals().update({name: test for name, test in _PROMISES.items() if name not in OTHERWISE})

test_c03_an_answer_that_ends_in_half_an_emoji_is_the_answer = (
    structured_promises.test_c03_an_answer_that_ends_in_half_an_emoji_is_the_answer
)
test_c24_every_text_reaches_the_model_as_written = structured_promises.test_c24_every_text_reaches_the_model_as_written
test_c20_ten_messages_at_once_each_end_in_exactly_one_completion = (
    structured_promises.test_c20_ten_messages_at_once_each_end_in_exactly_one_completion
)
test_c07_an_interrupt_leaves_what_is_queued_behind_it_alone = (
    structured_promises.test_c07_an_interrupt_leaves_what_is_queued_behind_it_alone
)
test_c03_an_api_error_is_a_failed_turn_with_its_kind_and_the_session_goes_on = (
    structured_promises.test_c03_an_api_error_is_a_failed_turn_with_its_kind_and_the_session_goes_on
)
test_c20_a_message_while_busy_joins_the_run_which_ends_with_its_answer = (
    pi_promises.test_c20_a_message_while_busy_joins_the_run_which_ends_with_its_answer
)
test_c13_equal_texts_are_told_apart_by_name = pi_promises.test_c13_equal_texts_are_told_apart_by_name

pytestmark = pytest.mark.live
CACHE = Path(os.environ.get("LASTWORD_CLI_CACHE") or "/nonexistent")
ASKS = str(Path(__file__).with_name("pi_extension.ts"))
ARGS = ("--offline", "--no-approve")


def ways(**env: str) -> Ways:
    if not live_clis.is_there(CACHE, "pi"):
        pytest.skip("the pinned pi is not in the cache folder: make live")
    return Ways(
        provider="pi",
        version="1.6.0",
        argv=tuple(live_clis.argv_of(CACHE, "pi")),
        options={"args": (*ARGS, "-e", ASKS)},
        asking={"args": (*ARGS, "-e", ASKS)},
        approval="[[tool:Bash:touch {file}]][[say:touched]] please",
        records="../state/panes/*[0-9].jsonl",
        ended='"agent_settled"',
        error_kinds={},
        env=env,
    )


@pytest.fixture
def host() -> Iterator[PaneHost]:
    with PaneHost(ways()) as made:
        yield made


def written(host: PaneHost) -> list[dict[str, Any]]:
    """What the extension has recorded."""
    return [json.loads(line) for line in host.records().splitlines()]


# --- the main job -----------------------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C03")
@pytest.mark.contract("C51")
def test_c02_a_plain_turn_completes_from_what_the_extension_records(host: PaneHost) -> None:
    session = host.session()
    ack = session.send("hello")
    assert (ack.taken, ack.transport) == ("started_turn", "tmux")
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.answer, done.source) == ("completed", "echo: hello", "transcript")
    assert (done.provider, done.transport, done.cli_version) == ("pi", "tmux", "1.6.0")
    assert done.evidence is not None
    assert done.evidence.source == str((host.kit.root / "state").resolve() / "panes" / f"{session.session_id}-2.jsonl")
    (file,) = (host.kit.home / ".pi" / "agent" / "sessions").glob("*/*.jsonl")
    assert file.name == f"lastword_{done.native_session_id}.jsonl"
    assert as_told(session) == [
        "session_opened",
        "message_accepted",
        "provider_started",
        "message_submitted",
        "turn_started",
        "assistant_message",
        "unified_completion",
    ]
    assert "hello" in screen(session)  # a person sees it


def test_run_rehearse_drives_the_real_pi_in_its_pane() -> None:
    ways()
    words = ["run", "--rehearse", "--provider", "pi", "--transport", "tmux", "[[say:rehearsed]]"]
    done = subprocess.run(
        [sys.executable, "-m", "lastword.runtime.command", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LASTWORD_CLI_CACHE": str(CACHE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "rehearsed\n"), done.stderr


# --- busy -------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C13")
def test_c13_messages_at_the_very_end_of_runs_are_neither_lost_nor_doubled(host: PaneHost) -> None:
    """Each second one is sent the moment that the last word of the run is heard, whose end is still to come."""
    session = host.session()
    acks = []
    for number in range(25):
        acks.append(session.send(f"[[say:{number}]] a"))
        seen(session, events.AssistantMessage, acks[-1].seq)
        acks.append(session.send(f"[[say:{number}]] b"))
    until(lambda: len(owners(completions(session))) == len(acks), within_s=WAIT_S)
    assert sorted(owners(completions(session))) == sorted(ack.message_id for ack in acks)
    begun = [line["id"] for line in written(host) if line.get("role") == "user"]
    assert sorted(begun) == sorted(ack.message_id for ack in acks)


@pytest.mark.contract("C13")
@pytest.mark.contract("C24")
def test_c24_a_command_that_stands_there_twice_or_torn_or_late_does_nothing(host: PaneHost) -> None:
    session = host.session()
    first = session.send("hello")
    assert completion_of(session, first.turn_id).answer == "echo: hello"
    second = session.send("[[sleep:2]][[say:whole]]")
    seen(session, events.TurnStarted, second.seq)
    (commands,) = (host.kit.root / "state" / "panes").glob("*.sent.jsonl")
    with commands.open("a", encoding="utf-8") as file:
        file.write('{"do":"interrupt","settles":0}\n')  # it means the run that is over
        file.write(json.dumps({"do": "say", "id": first.message_id, "text": "hello"}) + "\n")
        file.write('{"do":"say","id":"m_torn","te\n[1]\nnull\n{"do":"say","id":7,"text":8}\n')
    done = completion_of(session, second.turn_id)
    assert (done.status, done.answer, done.joined) == ("completed", "whole", ())
    assert session.run("on", deadline_s=WAIT_S).answer == "echo: on"
    assert len(completions(session)) == 3


@pytest.mark.contract("C13")
@pytest.mark.contract("C19")
def test_c13_a_message_while_a_person_has_pi_compact_waits_for_that(host: PaneHost) -> None:
    settings = host.kit.home / ".pi" / "agent" / "settings.json"
    kept = json.loads(settings.read_text(encoding="utf-8"))
    keep = {"enabled": True, "reserveTokens": 1000, "keepRecentTokens": 1}
    settings.write_text(json.dumps({**kept, "compaction": keep}), encoding="utf-8")
    session = host.session()
    for number in range(3):
        assert session.run(f"number {number} " + "x" * 400, deadline_s=WAIT_S).status == "completed"
    keys(session, "-l", "/compact [[sleep:2]][[say:summed up]]")
    time.sleep(0.3)
    keys(session, "Enter")
    until(lambda: "ompacting" in screen(session), within_s=WAIT_S)
    done = session.run("after it", deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("completed", "echo: after it")
    begun = [line["ev"] for line in written(host)]
    assert begun.index("session_compact") < len(begun) - begun[::-1].index("taken")
    assert len(completions(session)) == 4


@pytest.mark.contract("C19")
def test_c19_a_run_that_an_extension_begins_is_a_turn_of_its_own() -> None:
    with PaneHost(ways(LASTWORD_TEST_ALONE="1")) as host:
        session = host.session()
        done = session.run("[[say:ours]]", deadline_s=WAIT_S)
        assert (done.status, done.answer) == ("completed", "ours")
        _, own = completed(session, 2)
        assert (own.origin, own.message_id) == ("task_notification", None)
        assert (own.status, own.answer) == ("completed", "by itself")
        assert session.run("[[say:after it]]", deadline_s=WAIT_S).answer == "after it"
        assert len(completions(session)) == 3


# --- errors and interrupts --------------------------------------------------------------------------------------------


@pytest.mark.contract("C07")
@pytest.mark.contract("C07")
def test_c07_an_interrupt_while_pi_prepares_the_run_ends_it_before_the_model_is_asked(host: PaneHost) -> None:
    session = host.session()
    assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    asked = len(host.kit.server.requests)
    ack = session.send("[[slowly]] never asked")
    seen(session, events.MessageSubmitted, ack.seq)
    session.send(Interrupt(turn_id=ack.turn_id))
    assert completion_of(session, ack.turn_id).status == "cancelled"
    assert len(host.kit.server.requests) == asked
    assert session.run("on", deadline_s=WAIT_S).answer == "echo: on"


@pytest.mark.contract("C07")
@pytest.mark.contract("C15")
@pytest.mark.parametrize(
    "prompt", ["[[chunk:5:0.3]][[size:2000]]", "[[tool:Bash:sleep 9]]", "[[tool:Bash:touch never]]"]
)
def test_c07_an_interrupt_keeps_the_process(host: PaneHost, prompt: str) -> None:
    session = host.session()
    ack = session.send(f"{prompt} long")
    what = events.DialogOpened if "touch" in prompt else events.ToolStarted if "sleep" in prompt else events.TurnStarted
    seen(session, what, ack.seq)
    session.send(Interrupt(turn_id=ack.turn_id))
    assert completion_of(session, ack.turn_id).status == "cancelled"
    assert session.run("on", deadline_s=WAIT_S).answer == "echo: on"
    assert len(of_type(session, events.ProviderStarted)) == 1
    assert [event.body.by for event in of_type(session, events.DialogClosed)] == ["elsewhere"] * ("touch" in prompt)


@pytest.mark.contract("C07")
def test_c07_an_interrupt_while_pi_waits_to_try_again_is_a_cancellation(host: PaneHost) -> None:
    settings = host.kit.home / ".pi" / "agent" / "settings.json"
    kept = json.loads(settings.read_text(encoding="utf-8"))
    settings.write_text(json.dumps({**kept, "retry": {"baseDelayMs": 60_000, "maxRetries": 3}}), encoding="utf-8")
    session = host.session()
    ack = session.send("[[error:529]] busy")
    until(lambda: any(line.get("stop") == "error" for line in written(host)), within_s=WAIT_S)
    assert completions(session) == []
    session.send(Interrupt(turn_id=ack.turn_id))
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.error.kind if done.error else "") == ("cancelled", "interrupted")
    assert session.run("[[say:on]]", deadline_s=WAIT_S).answer == "on"


@pytest.mark.contract("C03")
def test_c03_pi_without_a_model_fails_the_turn_with_its_reason(host: PaneHost) -> None:
    agent = host.kit.home / ".pi" / "agent"
    (agent / "models.json").write_text("{}", encoding="utf-8")
    (agent / "settings.json").write_text('{"defaultProjectTrust": "never"}', encoding="utf-8")
    session = host.session()
    done = session.run("hello", deadline_s=20)  # long before the time that proves it absent
    assert done.status == "failed"
    assert done.error is not None
    assert done.error.kind == "not_delivered"
    assert "model" in done.error.message.lower()


# --- a person ---------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C24")
def test_c24_a_draft_of_a_persons_stays_in_the_box_and_holds_nothing_up(host: PaneHost) -> None:
    session = host.session()
    assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    keys(session, "-l", "their draft")
    until(lambda: "their draft" in screen(session), within_s=WAIT_S)
    assert session.run("ours", deadline_s=WAIT_S).answer == "echo: ours"
    keys(session, "Enter")
    *_, theirs = completed(session, 3)
    assert (theirs.origin, theirs.answer) == ("human_terminal", "echo: their draft")
    assert not of_type(session, events.StallDiagnosed)


@pytest.mark.contract("C07")
@pytest.mark.contract("C24")
def test_c24_an_interrupt_puts_nothing_of_ours_into_a_persons_draft(host: PaneHost) -> None:
    session = host.session()
    ack = session.send("[[sleep:20]] long")
    seen(session, events.TurnStarted)
    behind = session.send("[[say:behind]] it\nin two lines")
    seen(session, events.MessageQueued)
    keys(session, "-l", "their draft")
    until(lambda: "their draft" in screen(session), within_s=WAIT_S)
    session.send(Interrupt(turn_id=ack.turn_id))
    one, two = completed(session, 2)
    assert (one.status, two.message_id, two.answer) == ("cancelled", behind.message_id, "behind")
    keys(session, "Enter")
    *_, theirs = completed(session, 3)
    assert (theirs.origin, theirs.answer) == ("human_terminal", "echo: their draft")


@pytest.mark.contract("C19")
def test_c19_a_person_who_presses_escape_cancels_the_turn_and_what_waits_goes_on(host: PaneHost) -> None:
    session = host.session()
    ack = session.send("[[sleep:20]] long")
    seen(session, events.TurnStarted)
    behind = session.send("[[say:behind]] it")
    seen(session, events.MessageQueued)
    keys(session, "-l", "their draft")
    until(lambda: "their draft" in screen(session), within_s=WAIT_S)
    keys(session, "Escape")
    one, two = completed(session, 2)
    assert (one.turn_id, one.status) == (ack.turn_id, "cancelled")
    assert (two.message_id, two.status, two.answer) == (behind.message_id, "completed", "behind")
    keys(session, "Enter")
    *_, theirs = completed(session, 3)
    assert (theirs.origin, theirs.answer) == ("human_terminal", "echo: their draft")
    assert session.run("on", deadline_s=WAIT_S).answer == "echo: on"


@pytest.mark.contract("C19")
@pytest.mark.contract("C20")
def test_c19_a_follow_up_that_a_person_types_joins_the_turn_and_closes_none_of_ours(host: PaneHost) -> None:
    session = host.session()
    ack = session.send("[[tool:Bash:sleep 2]][[say:first]] work")
    seen(session, events.ToolStarted)
    keys(session, "-l", "[[say:theirs]] more")
    time.sleep(0.3)  # a hand is slower
    keys(session, "M-Enter")
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.answer, done.joined) == ("completed", "theirs", ())
    assert session.run("on", deadline_s=WAIT_S).answer == "echo: on"
    assert len(completions(session)) == 2


@pytest.mark.contract("C19")
@pytest.mark.contract("C51")
def test_c51_a_person_moves_pi_to_a_new_conversation_which_is_the_one_resumed(host: PaneHost) -> None:
    session = host.session()
    before = session.run("remember", deadline_s=WAIT_S)
    keys(session, "-l", "/new")
    time.sleep(0.3)
    keys(session, "Enter")
    moved = seen(session, events.SessionRebound)
    assert moved.body.previous == before.native_session_id
    after = session.run("in the new one", deadline_s=WAIT_S)
    assert (after.status, after.answer) == ("completed", "echo: in the new one")
    assert after.native_session_id == moved.body.native_session_id
    file = Path(after.native_session_id)
    assert "in the new one" in file.read_text()
    pid = session.snapshot().handle.pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: session.snapshot().state == "gone", within_s=WAIT_S)
    assert session.run("and on", deadline_s=WAIT_S).answer == "echo: and on"
    assert "and on" in file.read_text()
    assert len(of_type(session, events.SessionRebound)) == 1


@pytest.mark.contract("C13")
def test_c13_a_reload_of_its_extensions_neither_loses_nor_repeats_a_message(host: PaneHost) -> None:
    session = host.session()
    assert session.run("first", deadline_s=WAIT_S).answer == "echo: first"
    keys(session, "-l", "/reload")
    time.sleep(0.3)
    keys(session, "Enter")
    until(lambda: sum(line["ev"] == "session_start" for line in written(host)) == 2, within_s=WAIT_S)
    acks = [session.send(f"number {number}") for number in range(3)]
    until(lambda: set(owners(completions(session))) >= {ack.message_id for ack in acks}, within_s=WAIT_S)
    taken = [line["id"] for line in written(host) if line["ev"] == "taken"]
    assert len(taken) == len(set(taken)) == 4


# --- dialogs ----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C25")
def test_c25_what_an_extension_asks_is_drawn_and_is_a_dialog_that_the_host_answers(host: PaneHost) -> None:
    session = host.session()
    ack = session.send("[[tool:Bash:touch allowed]][[say:done]] one")
    opened = seen(session, events.DialogOpened)
    assert (opened.body.kind, opened.body.options) == ("question", ("Yes", "No"))
    assert opened.body.question == "May it run?\ntouch allowed"
    assert session.snapshot().state == "awaiting_user"
    until(lambda: "May it run?" in screen(session), within_s=WAIT_S)
    assert not (host.kit.cwd / "allowed").exists()
    assert session.send(Answer(opened.body.dialog_id, 1)).taken == "applied"
    assert completion_of(session, ack.turn_id).status == "completed"
    assert (host.kit.cwd / "allowed").exists()
    assert [event.body.by for event in of_type(session, events.DialogClosed)] == ["host"]
    until(lambda: "May it run?" not in screen(session), within_s=WAIT_S)

    choice = session.send("[[tool:Bash:choose]][[say:thanks]] q")
    opened = seen(session, events.DialogOpened, choice.seq)
    assert (opened.body.question, opened.body.options) == ("Which?", ("A", "B", "Cancel"))
    session.send(Answer(opened.body.dialog_id, 2))
    assert completion_of(session, choice.turn_id).answer == "thanks"
    assert of_type(session, events.ToolFinished)[-1].body.result == "chosen B\n"


@pytest.mark.contract("C25")
def test_c25_a_dialog_that_a_person_answers_in_the_pane_or_nobody_in_time_is_gone(host: PaneHost) -> None:
    session = host.session()
    ack = session.send("[[tool:Bash:touch allowed]][[say:done]] one")
    opened = seen(session, events.DialogOpened)
    until(lambda: "May it run?" in screen(session), within_s=WAIT_S)
    keys(session, "Enter")
    assert completion_of(session, ack.turn_id).answer == "done"
    assert (host.kit.cwd / "allowed").exists()
    with pytest.raises(RejectedError) as late:
        session.send(Answer(opened.body.dialog_id, 2))
    assert late.value.kind == "unknown_dialog"
    waits = session.send("[[tool:Bash:wait]][[say:went on]] r")
    seen(session, events.DialogOpened, waits.seq)
    assert completion_of(session, waits.turn_id).answer == "went on"
    assert [event.body.by for event in of_type(session, events.DialogClosed)] == ["elsewhere", "elsewhere"]
    assert session.snapshot().dialog is None


@pytest.mark.contract("C25")
@pytest.mark.parametrize(("option", "loaded"), [("Trust (this session only)", True), ("Do not trust", False)])
def test_c25_whether_the_folder_is_trusted_is_asked_before_anything_else(
    host: PaneHost, option: str, loaded: bool
) -> None:
    settings = host.kit.home / ".pi" / "agent" / "settings.json"
    kept = json.loads(settings.read_text(encoding="utf-8"))
    settings.write_text(json.dumps({**kept, "defaultProjectTrust": "ask"}), encoding="utf-8")
    theirs = host.kit.cwd / ".pi" / "extensions"
    theirs.mkdir(parents=True)
    mark = host.kit.cwd / "loaded"
    (theirs / "mark.ts").write_text(
        f'import {{ writeFileSync }} from "node:fs";\nexport default () => writeFileSync("{mark}", "x");\n',
        encoding="utf-8",
    )
    session = host.session(args=("--offline",))
    ack = session.send("hello")
    opened = seen(session, events.DialogOpened)
    assert (opened.body.kind, session.snapshot().state) == ("trust", "awaiting_user")
    assert str(host.kit.cwd) in opened.body.question
    assert not mark.exists()
    assert session.send(Answer(opened.body.dialog_id, opened.body.options.index(option) + 1)).taken == "applied"
    assert completion_of(session, ack.turn_id).answer == "echo: hello"
    assert mark.exists() is loaded


@pytest.mark.contract("C61")
@pytest.mark.contract("C62")
def test_c62_what_pi_starts_is_not_told_by_which_files_it_is_spoken_to(host: PaneHost) -> None:
    session = host.session()
    session.run("[[tool:Bash:env | grep -c LASTWORD_PI]][[say:done]]", deadline_s=WAIT_S)
    (finished,) = of_type(session, events.ToolFinished)
    assert finished.body.result.startswith("0\n")


# --- lives ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C17")
def test_c17_what_was_written_for_pi_while_its_host_died_is_carried_out_once(host: PaneHost) -> None:
    host.close()
    told = host.other_host("[[sleep:1.5]][[say:one]] first", "[[say:two]] second", wait_for="message_queued")
    host.open()
    session = host.again(told["session"])
    until(lambda: len(owners(completions(session))) == 2, within_s=WAIT_S)
    assert sorted(owners(completions(session))) == sorted(told["messages"])
    assert session.run("on", deadline_s=WAIT_S).answer == "echo: on"
    taken = [line["id"] for line in written(host) if line["ev"] == "taken"]
    assert len(taken) == len(set(taken)) == 3


@pytest.mark.contract("C02")
def test_c02_files_that_somebody_deletes_in_mid_turn_are_made_anew(host: PaneHost) -> None:
    session = host.session()
    assert session.run("first", deadline_s=WAIT_S).answer == "echo: first"
    ack = session.send("[[sleep:2]][[say:all the same]]")
    seen(session, events.TurnStarted, ack.seq)
    for path in (host.kit.root / "state" / "panes").iterdir():
        path.unlink()
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.answer) == ("completed", "all the same")
    assert session.run("on", deadline_s=WAIT_S).answer == "echo: on"
    assert len(completions(session)) == 3


@pytest.mark.contract("C61")
def test_c61_a_closed_session_leaves_no_file_of_ours(host: PaneHost) -> None:
    session = host.session()
    assert session.run("hello", deadline_s=WAIT_S).status == "completed"
    folder = host.kit.root / "state" / "panes"
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    session.close()
    assert list(folder.iterdir()) == []
