"""A session goes on with another provider or model: nothing is ever delivered to the one before (C13, PLAT-099)."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from host_kit import WAIT_S, HeldCommits, Rig, away, bodies, completed, completions, kinds, rig
from kit_system import until
from lastword import AsyncRuntime, Command, JournalError, ProviderError, RejectedError, Session, UsageError, events
from lastword.actors.core.adapter import DialogOpen, LaunchRecipe, LaunchRequest
from lastword.actors.core.ports import Batch
from lastword.actors.session import SessionActor
from lastword.actors.turn import TurnFinished
from lastword.runtime._journal import SqliteJournal
from lastword.runtime.testing.memory import memory_edge
from lastword.transports.memory import MemoryWorld
from lastword.transports.providers.memory import MemoryAdapter, Record

pytestmark = pytest.mark.contract("C13")


class Other(MemoryAdapter):
    """Another provider in the same world. Its model stands in its command line."""

    name = "other"

    def launch(self, request: LaunchRequest) -> LaunchRecipe:
        recipe = super().launch(request)
        return msgspec.structs.replace(recipe, argv=(recipe.argv[0], f"--model={request.model}", *recipe.argv[1:]))


ADAPTERS = {"adapters": (Other(),)}


def switched(host: Rig, session: Session, *args: Any, **named: Any) -> Session:
    return host.runtime.session(*args, session_id=session.session_id, **named)


def prompts(host: Rig, native: str) -> list[str]:
    """What that conversation was told, by its own record."""
    if f"{host.world.root}/{native}.jsonl" not in host.world._files:
        return []
    lines = host.world.contents(f"{host.world.root}/{native}.jsonl").splitlines()
    records = [msgspec.json.decode(line, type=Record) for line in lines]
    return [record.text for record in records if record.k == "prompt"]


def is_switch(batch: Batch) -> bool:
    return any(isinstance(draft.body, events.SessionSwitched) for draft in batch.drafts)


def test_plat099_the_next_message_reaches_the_new_provider_and_none_of_the_history_does(make):
    host = make(**ADAPTERS)
    session = host.session()
    old = host.ready(session)
    assert session.run("one").provider == "memory"
    assert switched(host, session, "other", model="big") is session
    assert not old.alive
    done = session.run("two")
    assert (done.status, done.answer, done.provider) == ("completed", "echo: two", "other")
    new = host.cli(session)
    assert new.native != old.native
    assert (prompts(host, old.native), prompts(host, new.native)) == (["one"], ["two"])
    assert [argv[1] for argv in host.world.opened[1:]] == ["--model=big"]

    (event,) = bodies(host, session, events.SessionSwitched)
    assert event.body == events.SessionSwitched(
        config_epoch=2,
        provider="other",
        transport="memory",
        model="big",
        native_session_id=new.native,
        previous_provider="memory",
        previous_transport="memory",
        previous_native_session_id=old.native,
    )
    told = kinds(host, session)
    assert told[told.index("session_switched") - 1] == "session_gone"
    assert [each.body.reason for each in bodies(host, session, events.ProviderStarted)] == ["open", "switch"]
    assert [each.body.reason for each in bodies(host, session, events.SessionGone)] == ["switched"]
    snapshot = session.snapshot()
    assert (snapshot.provider, snapshot.config_epoch, snapshot.state) == ("other", 2, "idle")
    row = host.runtime._journal.session(session.session_id)
    assert (row.provider, row.config_epoch, row.native_session) == ("other", 2, new.native)


def test_plat099_another_model_goes_on_in_the_same_conversation(make):
    host = make(**ADAPTERS)
    session = host.runtime.session("other", model="small")
    session.run("one")
    first = host.cli(session)
    switched(host, session, model="big")
    assert session.run("two").answer == "echo: two"
    assert [(argv[1], argv[2]) for argv in host.world.opened] == [
        ("--model=small", "--session"),
        ("--model=big", "--resume"),
    ]
    assert prompts(host, first.native) == ["one", "two"]
    (event,) = bodies(host, session, events.SessionSwitched)
    assert (event.body.previous_model, event.body.model) == ("small", "big")
    assert event.body.native_session_id == event.body.previous_native_session_id == first.native
    assert [done.status for done in completions(host, session)] == ["completed", "completed"]


@pytest.mark.parametrize("asked", [{}, {"provider": "other"}, {"provider": "other", "model": "big"}, {"model": "big"}])
def test_plat099_what_the_session_has_already_switches_nothing(make, asked):
    host = make(**ADAPTERS)
    session = host.runtime.session("other", model="big")
    cli = host.ready(session)
    assert host.runtime.session(**asked, session_id=session.session_id) is session
    host.settle()
    assert cli.alive
    assert session.snapshot().config_epoch == 1
    assert "session_switched" not in kinds(host, session)


# --- busy: what was accepted before is the former provider's -----------------------------------------------------------


def refused(host: Rig, session: Session) -> str:
    with pytest.raises(RejectedError) as error:
        switched(host, session, "other")
    return error.value.kind


def test_plat099_a_switch_in_mid_turn_is_busy_and_touches_nothing(make):
    host = make(manual=True, **ADAPTERS)
    session = host.session()
    first = away(session.run, "first")
    cli = host.running(session)
    assert refused(host, session) == "busy"
    second = session.send("second")
    until(lambda: cli.queue == ["second"])
    assert refused(host, session) == "busy"
    cli.finish("one")
    assert first.result(WAIT_S).answer == "one"
    assert refused(host, session) == "busy"
    cli.finish("two")
    assert [done.message_id for done in completed(host, session, 2)][1] == second.message_id
    assert {done.provider for done in completions(host, session)} == {"memory"}
    switched(host, session, "other")
    assert session.snapshot().provider == "other"


def test_plat099_a_message_whose_commit_or_typing_is_under_way_keeps_the_provider(make, monkeypatch):
    host = make(**ADAPTERS)
    session = host.session()
    cli = host.ready(session)
    held = HeldCommits(monkeypatch, lambda batch: batch.accept is not None)
    sent = away(session.send, "on its way")
    held.wait()
    assert refused(host, session) == "busy"
    cli.starting = True  # the box takes no text
    held.release()
    assert sent.result(WAIT_S).taken == "started_turn"
    assert refused(host, session) == "busy"
    cli.starting = False
    (done,) = completed(host, session)
    assert (done.provider, done.answer) == ("memory", "echo: on its way")
    assert prompts(host, cli.native) == ["on its way"]


def test_plat099_a_turn_that_a_person_began_keeps_the_provider_too(make):
    host = make(manual=True, **ADAPTERS)
    session = host.session()
    cli = host.ready(session)
    cli.start_turn("typed in the pane")
    until(lambda: "turn_started" in kinds(host, session))
    assert refused(host, session) == "busy"
    cli.finish("theirs")
    assert [done.origin for done in completed(host, session)] == ["human_terminal"]
    switched(host, session, "other")


def test_plat099_behind_a_completion_that_was_told_a_switch_is_never_busy(make, monkeypatch):
    """The host hears of the end from the journal, before the session's own actor does."""
    host = make(**ADAPTERS)
    session = host.session()
    host.ready(session)
    real, late = SessionActor.receive, list[TurnFinished]()

    def receive(actor: SessionActor, message: Any) -> Any:
        return late.append(message) if isinstance(message, TurnFinished) else real(actor, message)

    monkeypatch.setattr(SessionActor, "receive", receive)
    session.send("one")
    completed(host, session)
    until(lambda: late)
    switching = away(switched, host, session, "other")
    host.settle()
    assert not switching.done()
    monkeypatch.setattr(SessionActor, "receive", real)
    session._counterpart.ref.tell(late[0])
    switching.result(WAIT_S)
    assert session.run("two").provider == "other"


def test_plat099_to_and_fro_between_turns_that_follow_each_other_at_once(make):
    host = make(**ADAPTERS)
    session = host.session()
    for number in range(20):
        provider = ("other", "memory")[number % 2]
        assert session.run(f"prompt {number}").status == "completed"
        switched(host, session, provider)
        assert session.snapshot().provider == provider
    assert session.snapshot().config_epoch == 21


def test_plat099_a_dialog_without_a_turn_is_left_behind(make):
    host = make(**ADAPTERS)
    session = host.session()
    cli = host.ready(session)
    cli.open_dialog(DialogOpen(key="k", question="Trust this folder?", options=("Yes", "No"), kind="trust"))
    until(lambda: session.snapshot().state == "awaiting_user")
    switched(host, session, "other")
    assert session.run("go").provider == "other"
    assert [event.body.by for event in bodies(host, session, events.DialogClosed)] == ["elsewhere"]


# --- what is sent while the switch is under way ------------------------------------------------------------------------


@pytest.mark.parametrize("dispatcher", ["pooled", "pinned"])
def test_plat099_what_is_sent_while_the_switch_commits_waits_and_is_the_new_providers(make, monkeypatch, dispatcher):
    host = make(dispatcher=dispatcher, **ADAPTERS)
    session = host.session()
    old = host.ready(session)
    held = HeldCommits(monkeypatch, is_switch)
    switching = away(switched, host, session, "other")
    held.wait()
    first = away(session.send, "first", message_id="m1")
    assert session.snapshot().state == "starting"
    twin = away(session.send, "first", message_id="m1")
    running = away(session.run, "second", queue=True)
    assert session.snapshot().waiting == ()
    assert refused(host, session) == "busy"
    with pytest.raises(RejectedError) as error:
        session.send(Command("/clear"))
    assert error.value.kind == "busy"
    assert not any(future.done() for future in (first, twin, running, switching))
    held.release()
    switching.result(WAIT_S)
    assert running.result(WAIT_S).provider == "other"
    assert (first.result(WAIT_S).duplicate, twin.result(WAIT_S).duplicate) in ((False, True), (True, False))
    completed(host, session, 2)
    assert {done.provider for done in completions(host, session)} == {"other"}
    assert prompts(host, old.native) == []
    assert sorted(prompts(host, host.cli(session).native)) == ["first", "second"]


@pytest.mark.parametrize("dispatcher", ["pooled", "pinned"])
def test_plat099_many_senders_and_a_switcher_and_each_message_meets_the_provider_of_its_acceptance(make, dispatcher):
    """Four threads send without a pause while a fifth switches to and fro as often as it is let."""
    host = make(dispatcher=dispatcher, **ADAPTERS)
    session = host.session()
    stop = threading.Event()
    ids: list[str] = []

    def sender(name: int) -> None:
        draw = random.Random(name)
        for number in range(40):
            ids.append(session.send(f"{name}/{number}").message_id)
            if draw.random() < 0.5:
                until(lambda: session.snapshot().state != "busy", within_s=WAIT_S)

    def switcher() -> tuple[int, set[str]]:
        done, refusals = 0, set[str]()
        while not stop.is_set():
            try:
                switched(host, session, ("other", "memory")[done % 2])
                done += 1
            except RejectedError as error:
                refusals.add(error.kind)
        return done, refusals

    switching = away(switcher)
    for future in [away(sender, name) for name in range(4)]:
        future.result(60.0)
    stop.set()
    count, refusals = switching.result(WAIT_S)
    assert count > 1, "nothing was tried"
    assert refusals <= {"busy"}
    ends = lambda: [m for done in completions(host, session) for m in (done.message_id, *done.joined)]  # noqa: E731
    until(lambda: len(ends()) >= len(ids), within_s=WAIT_S)
    assert sorted(ends()) == sorted(ids)

    provider, conversation = "memory", bodies(host, session, events.SessionOpened)[0].body.native_session_id
    accepted: dict[str, tuple[str, str]] = {}
    for event in host.events(session):
        if isinstance(event.body, events.SessionSwitched):
            provider, conversation = event.body.provider, event.body.native_session_id
        elif isinstance(event.body, events.MessageAccepted):
            accepted[event.message_id] = provider, conversation
    for done in completions(host, session):
        assert accepted[done.message_id] == (done.provider, done.native_session_id)
    by_conversation: dict[str, list[str]] = {}
    for message_id, (_, native) in accepted.items():
        by_conversation.setdefault(native, []).append(host.runtime._journal.message(message_id).text)
    for native, texts in by_conversation.items():
        assert prompts(host, native) == texts, "in the order accepted, each once, and nowhere else"
    assert sum(map(len, by_conversation.values())) == len(ids)
    assert session.snapshot().config_epoch == 1 + count


# --- what the one before still says ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wake", [True, False])
def test_plat099_a_former_process_that_outlives_its_end_is_heard_no_more(make, monkeypatch, wake):
    host = make(**ADAPTERS)
    session = host.session()
    session.run("one")
    old = host.cli(session)
    monkeypatch.setattr(old, "close", lambda _grace_s, on_done: on_done())  # it survives every signal
    switched(host, session, "other")
    host.ready(session)
    until(lambda: kinds(host, session)[-1] == "provider_started")
    before = kinds(host, session)
    old.start_turn("late words")
    if not wake:
        host.world.sweep()
    host.settle()
    assert kinds(host, session) == before
    assert session.run("two").answer == "echo: two"
    assert prompts(host, old.native) == ["one", "late words"]


def test_plat099_a_former_process_that_works_on_while_the_switch_commits_is_not_heard(make, monkeypatch):
    host = make(**ADAPTERS)
    session = host.session()
    session.run("one")
    old = host.cli(session)
    monkeypatch.setattr(old, "close", lambda _grace_s, on_done: on_done())
    held = HeldCommits(monkeypatch, is_switch)
    switching = away(switched, host, session, "other")
    held.wait()
    old.start_turn("late words")
    host.world.sweep()
    until(lambda: host.dead_letters().counts().get("fact_of_former_provider"))
    held.release()
    switching.result(WAIT_S)
    assert session.run("two").answer == "echo: two"
    assert [done.answer for done in completions(host, session)] == ["echo: one", "echo: two"]


# --- a crash between ----------------------------------------------------------------------------------------------------


def next_host(host: Rig, folder: Path, **options: Any) -> Any:
    host.world.host_died()
    return rig(folder, world=host.world, **ADAPTERS, **options)


@pytest.mark.contract("C17")
def test_plat099_a_host_that_dies_before_the_switch_is_on_record_left_the_former_provider(make, tmp_path, monkeypatch):
    host = make(**ADAPTERS)
    session = host.session()
    session.run("one")
    old = host.cli(session)
    real = SqliteJournal.record

    def record(journal: SqliteJournal, batches: Any, now: float) -> Any:
        if any(map(is_switch, batches)):
            raise JournalError("journal_failed", "as asked")
        return real(journal, batches, now)

    monkeypatch.setattr(SqliteJournal, "record", record)
    switching = away(switched, host, session, "other")
    until(lambda: not old.alive)
    late = away(session.send, "for whom?")
    host.abandon()
    monkeypatch.setattr(SqliteJournal, "record", real)
    with next_host(host, tmp_path) as again:
        known = again.runtime.session(session_id=session.session_id)
        assert known.snapshot().provider == "memory"
        assert known.run("two").provider == "memory"
        assert prompts(again, old.native) == ["one", "two"]
        switched(again, known, "other")
        assert known.run("three").provider == "other"
        assert known.snapshot().config_epoch == 2
    for future in (switching, late):
        with pytest.raises(RejectedError):
            future.result(WAIT_S)


@pytest.mark.contract("C17")
@pytest.mark.parametrize(("started", "outlived"), [(False, False), (False, True), (True, True)])
def test_plat099_a_restart_behind_the_switch_finds_the_new_provider(make, tmp_path, monkeypatch, outlived, started):
    """``started``: its CLI runs already, and nobody has heard of it. ``outlived``: so does the former one's."""
    host = make(**ADAPTERS)
    session = host.session()
    session.run("one")
    old = host.cli(session)
    if outlived:
        monkeypatch.setattr(old, "close", lambda _grace_s, on_done: on_done())
    if started:
        host.world.hold_opens = True
    else:
        monkeypatch.setattr(host.world, "open", lambda *_, **__: None)
    switched(host, session, "other")
    ack = session.send("two")
    if started:
        until(lambda: host.world.held_opens)
    host.abandon()
    monkeypatch.undo()
    host.world.hold_opens = False
    with next_host(host, tmp_path) as again:
        known = again.runtime.session(session_id=session.session_id)
        (_, done) = completed(again, known, 2)
        assert (done.message_id, done.provider, done.answer) == (ack.message_id, "other", "echo: two")
        assert known.run("three").provider == "other"
        assert prompts(again, old.native) == ["one"]
        assert prompts(again, again.cli(known).native) == ["two", "three"]
        assert not old.alive, "what is left of the former provider is ended"
        assert len(again.world.alive()) == 1


@pytest.mark.contract("C17")
def test_plat099_a_session_that_sleeps_is_switched_and_wakes_as_the_other(make, tmp_path):
    host = make(**ADAPTERS)
    session = host.session()
    session.run("one")
    host.runtime.close()
    with rig(tmp_path, world=MemoryWorld(), **ADAPTERS) as again:
        known = switched(again, session, "other")
        assert known.run("two").provider == "other"
        assert [argv[0:2] for argv in again.world.opened] == [(again.world.opened[0][0], "--model=")]


# --- refusals ------------------------------------------------------------------------------------------------------------


def test_plat099_a_switch_that_cannot_be_leaves_the_session_as_it_is(make, tmp_path):
    class Missing(Other):
        name = "missing"
        executables = ("no-such-program-anywhere",)

    host = make(adapters=(Other(), Missing()))
    session = host.session()
    session.run("one")
    cli = host.cli(session)
    for asked, error, kind in (
        ({"provider": "nobody"}, UsageError, "unknown_provider"),
        ({"provider": "missing"}, ProviderError, "provider_unavailable"),
        ({"transport": "structured"}, UsageError, "unsupported_capability"),
    ):
        with pytest.raises(error) as told:
            host.runtime.session(**asked, session_id=session.session_id)
        assert told.value.kind == kind
    assert cli.alive
    assert session.run("two").provider == "memory"
    session.close()
    assert host.runtime.session(session_id=session.session_id).snapshot().state == "closed"
    assert refused(host, session) == "session_closed"


def test_plat099_a_close_that_meets_a_switch_ends_the_session_once(make, monkeypatch):
    host = make(**ADAPTERS)
    session = host.session()
    host.ready(session)
    held = HeldCommits(monkeypatch, is_switch)
    switching = away(switched, host, session, "other")
    held.wait()
    waiting = away(session.send, "too late")
    closing = away(session.close)
    held.release()
    closing.result(WAIT_S)
    with pytest.raises(RejectedError) as error:
        waiting.result(WAIT_S)
    assert error.value.kind == "session_closed"
    switching.exception(WAIT_S)
    assert kinds(host, session)[-1] == "session_closed"
    assert not host.world.alive()


def test_plat099_for_asyncio_hosts_too(tmp_path):
    async def main() -> list[str]:
        world = MemoryWorld()
        options = {"edge": memory_edge(world), "durability": "process", "adapters": (Other(),)}
        async with AsyncRuntime.open(tmp_path / "state", **options) as runtime:
            session = await runtime.session("memory")
            first = await session.run("one")
            again = await runtime.session("other", session_id=session.session_id)
            second = await again.run("two")
            return [first.provider, second.provider]

    assert asyncio.run(main()) == ["memory", "other"]
