"""The certifications: what an adapter must show on its CLI, and which capability each of them proves.

Each is one function over a :class:`Bench`; it asserts, and knows no provider. The same ones are run by ``lastword
certify`` and by the pytest plugin, for built-in adapters and for a third party's.
"""

from __future__ import annotations

import signal
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import NamedTuple, get_args

from lastword.actors.core import events
from lastword.actors.core.adapter import Capability
from lastword.actors.core.delivery import Command, Delivery, Interrupt, TransportName
from lastword.actors.core.facts import CliVersionSeen, TurnClosed
from lastword.actors.core.outcome import Completion
from lastword.actors.core.reading import read_turns
from lastword.actors.core.reconcile import unobserved
from lastword.runtime.testing.conformance._bench import GATE_S, Bench, ended
from lastword.transports.process import ProcessId

GATE_TURNS = 10
ACK_S = 1.0


class Certification(NamedTuple):
    """One thing that is shown.

    Attributes:
        rules: of the contract. proves: the capability that must not be claimed without it; None: it is of the floor.
        word: the pattern of :class:`Words` without which it cannot be asked for.
    """

    name: str
    rules: tuple[str, ...]
    proves: Capability | None
    run: Callable[[Bench], None]
    word: str = "say"


# --- the floor: of every transport ----------------------------------------------------------------------------------


def plain_turn(bench: Bench) -> None:
    """One message, one turn, one completion that holds the answer itself."""
    session = bench.session()
    ack = session.send(bench.subject.words.say.format(text="the last word"))
    adapter = bench.subject.adapter
    assert (ack.taken, ack.transport) == ("started_turn", adapter.transport)
    done = bench.end_of(session, ack)
    assert (done.turn_id, done.status, done.answer, done.error) == (ack.turn_id, "completed", "the last word", None)
    assert (done.provider, done.transport, done.message_id) == (adapter.name, adapter.transport, ack.message_id)
    assert done.evidence is not None, "it was settled by no record"
    told = [event.type for event in bench.events(session)]
    for kind in ("message_accepted", "turn_started", "unified_completion"):
        assert told.count(kind) == 1, f"{told.count(kind)} x {kind}"
    assert told.index("message_accepted") < told.index("turn_started") < told.index("unified_completion")
    assert [event.seq for event in bench.events(session)] == list(range(1, len(told) + 1))


def completion_gate(bench: Bench) -> None:
    """Once the native terminal record exists, the completion follows within the gate."""
    session = bench.session()
    for number in range(GATE_TURNS):
        assert bench.say(session, f"turn {number}").answer == f"turn {number}"
    assert len(bench.delays_s) == GATE_TURNS, f"only {len(bench.delays_s)} of {GATE_TURNS} turns could be measured"
    worst = max(bench.delays_s)
    allowed = GATE_S + bench.subject.stamped_early_s
    assert worst <= allowed, f"terminal record -> completion took {worst:.2f} s, at most {allowed:g} s are allowed"


def retained_turn(bench: Bench) -> None:
    """A warm follow-up rebuilds nothing: the same process, and an acknowledgement in well under a second."""
    session = bench.session()
    bench.say(session, "first")
    bench.until(lambda: session.snapshot().state == "idle", "the session to be idle behind its completion")
    before, acks = session.snapshot(), list[float]()
    assert before.turn_id is None
    for number in range(3):
        began = time.monotonic()
        ack = session.send(bench.subject.words.say.format(text=f"warm {number}"))
        acks.append(time.monotonic() - began)
        assert bench.end_of(session, ack).answer == f"warm {number}"
    assert session.snapshot().handle == before.handle, "another process"
    assert len(bench.events(session, events.ProviderStarted)) == 1
    assert statistics.median(acks) < ACK_S


def isolation(bench: Bench) -> None:
    """Two sessions in one directory, at the same time: each hears its own answers and no other."""
    sessions = [bench.session() for _ in range(2)]
    answers: list[list[str | None]] = [[], []]

    def drive(which: int) -> None:
        for number in range(2):
            answers[which].append(bench.say(sessions[which], f"session {which} turn {number}").answer)

    _together([partial(drive, which) for which in range(2)])
    assert answers == [[f"session {which} turn {n}" for n in range(2)] for which in range(2)]
    natives = [session.snapshot().handle.native_session_id for session in sessions]
    assert all(natives), "a conversation without a name"
    assert natives[0] != natives[1], "both are bound to one conversation"


def many_senders(bench: Bench) -> None:
    """What several threads send into one session ends in exactly one completion each, in the order accepted."""
    session = bench.session()
    bench.say(session, "warm")
    acks: list[Delivery] = []

    def sender(name: int) -> None:
        acks.extend(session.send(bench.subject.words.say.format(text=f"{name}.{n}")) for n in range(2))

    _together([partial(sender, name) for name in range(3)])
    wanted = [ack.message_id for ack in sorted(acks, key=lambda ack: ack.seq)]

    def ends() -> list[str]:
        return [m for done in bench.completions(session)[1:] for m in (done.message_id, *done.joined) if m]

    bench.until(lambda: len(ends()) >= len(wanted), "an end for each message")
    assert ends() == wanted


def failure(bench: Bench) -> None:
    """What the provider refuses is a failed turn with a kind and no answer; the session goes on."""
    session = bench.session()
    done = bench.run(session, bench.subject.words.fail)
    assert (done.status, done.answer) == ("failed", None)
    assert done.error is not None
    assert bench.say(session, "on").status in ("completed", "failed")  # some resend the failed prompt with the next
    assert len(bench.completions(session)) == 2


def killed_provider(bench: Bench) -> None:
    """A CLI that is killed in mid turn loses that turn, once; the next message starts it again."""
    session = bench.session()
    bench.say(session, "before")
    ack = session.send(bench.subject.words.slow.format(text="never", seconds=30))
    bench.under_way(session, ack)
    process = bench.process(session)
    assert process is not None, "nothing of it can be killed"
    process.send(signal.SIGKILL)
    done = bench.end_of(session, ack)
    assert (done.turn_id, done.status) == (ack.turn_id, "lost")
    assert bench.say(session, "after").answer == "after"
    assert len(bench.completions(session)) == 3


def clean_end(bench: Bench) -> None:
    """Closed: the CLI is gone, the turn that ran is settled, and nothing else of it is left."""
    session = bench.session()
    bench.say(session, "one")
    process = bench.process(session)
    ack = session.send(bench.subject.words.slow.format(text="never", seconds=30))
    session.close(grace_s=1.0)
    assert ended(process), "its process lives"
    (done,) = [each for each in bench.completions(session) if each.turn_id == ack.turn_id]
    assert done.status in ("cancelled", "lost")
    assert bench.events(session)[-1].type == "session_closed"
    bench.close()  # whose report must be clean


def oracle_rules(bench: Bench) -> None:
    """The same bytes give the same facts in any pieces, and no bytes at all make it raise."""
    session = bench.session()
    done = bench.say(session, "to be read")
    whole = bench.read(session, done)
    assert bench.read(session, done, chunk_bytes=7) == whole
    source = bench.sources(session, done)[-1]
    for junk in (b"\n", b"{}\n", b"null\n[1]\n", b'{"type": 7}\n', b"\xff\xfe\n", b"[" * 5000 + b"\n", b'{"a'):
        oracle = bench.subject.adapter.oracle(source, done.native_session_id)
        ends = [fact for fact in oracle.feed(source.path, junk) if isinstance(fact, TurnClosed)]
        assert not ends, "junk ended a turn"


# --- capabilities ---------------------------------------------------------------------------------------------------


def interrupt(bench: Bench) -> None:
    """An interrupt settles the turn as cancelled, once; the session goes on."""
    session = bench.session()
    bench.say(session, "warm")
    ack = session.send(bench.subject.words.slow.format(text="never", seconds=30))
    bench.under_way(session, ack)
    assert session.send(Interrupt(turn_id=ack.turn_id)).taken == "applied"
    done = bench.end_of(session, ack)
    assert (done.status, done.error.kind if done.error else "") == ("cancelled", "interrupted")
    assert session.send(Interrupt()).taken == "nothing_to_do"
    assert bench.say(session, "on").answer == "on"
    assert len(bench.completions(session)) == 3


def resume(bench: Bench) -> None:
    """The next life of the host goes on in the same conversation, in another process."""
    session = bench.session()
    first = bench.say(session, "before")
    process = bench.process(session)
    bench.close()
    bench.until(lambda: ended(process), "the end of the first process")
    bench.open()
    again = bench.again(session)
    second = bench.say(again, "after")
    assert (second.answer, second.native_session_id) == ("after", first.native_session_id)
    assert len(bench.completions(again)) == 2, "history was told as a turn"


def queue(bench: Bench) -> None:
    """A message while a turn runs is taken at once and has its one end."""
    session = bench.session()
    first = session.send(bench.subject.words.slow.format(text="one", seconds=4))
    bench.under_way(session, first)
    second = session.send(bench.subject.words.say.format(text="two"))
    injects = "injects_while_busy" in bench.subject.adapter.capabilities
    assert (second.taken, second.turn_id) == ("queued" if injects else "pending", None)
    assert bench.end_of(session, first).status == "completed"
    assert bench.end_of(session, second).status == "completed"
    ends = [m for done in bench.completions(session) for m in (done.message_id, *done.joined)]
    assert ends == [first.message_id, second.message_id]


def steer(bench: Bench) -> None:
    """A message while a tool runs goes into that turn, whose completion answers it; its record says so."""
    session = bench.session()
    first = session.send(bench.subject.words.slow_tool.format(text="both", seconds=3))
    bench.seen(session, events.ToolStarted)
    second = session.send(bench.subject.words.say.format(text="both"))
    joined = bench.seen(session, events.MessageJoined)
    assert (joined.turn_id, joined.message_id) == (first.turn_id, second.message_id)
    done = bench.end_of(session, first)
    assert (done.status, done.joined) == ("completed", (second.message_id,))


def inject(bench: Bench) -> None:
    """A message while a tool runs waits with us, and is told to the model with its next request of that turn."""
    session = bench.session()
    first = session.send(bench.subject.words.slow_tool.format(text="both", seconds=3))
    bench.seen(session, events.ToolStarted)
    second = session.send(bench.subject.words.say.format(text="both"))
    assert (second.taken, second.turn_id) == ("queued", None)
    assert bench.end_of(session, first).joined == (second.message_id,)
    told = [event.type for event in bench.events(session) if event.message_id == second.message_id]
    assert told.index("message_queued") < told.index("message_joined")


def fresh_process(bench: Bench) -> None:
    """Each turn is one process, gone behind it; the next one goes on in the same conversation, and the ack is quick."""
    session = bench.session()
    ran, acks, dones = list[ProcessId | None](), list[float](), list[Completion]()
    for number in range(3):
        began = time.monotonic()
        ack = session.send(bench.subject.words.say.format(text=f"turn {number}"))
        acks.append(time.monotonic() - began)
        dones.append(bench.end_of(session, ack))
        assert dones[-1].answer == f"turn {number}"
        ran.append(bench.process(session))
        bench.until(lambda: ended(ran[-1]), "the end of its process")
        bench.until(lambda: session.snapshot().turn_id is None, "the session to be free of that turn")
    assert len(set(ran)) == len(ran), "one process had two turns"
    started = [event.body for event in bench.events(session, events.ProviderStarted)]
    assert [body.reason for body in started if isinstance(body, events.ProviderStarted)] == ["open", "resume", "resume"]
    assert len({done.native_session_id for done in dones[1:]}) == 1, "another conversation"
    assert statistics.median(acks) < ACK_S


def label(bench: Bench) -> None:
    """What is shown on an emulator is never passed off as shown on the CLI: no version counts as certified."""
    assert bench.subject.realness == "emulated", "it says that it is emulated and was put to the real one"
    assert bench.subject.adapter.certified_versions == ()


def dialog(bench: Bench) -> None:
    """What it asks is a dialog with options; nothing runs before the host has answered, and then it does."""
    session = bench.session(asking=True)
    ack = session.send(bench.subject.words.ask.format(file="allowed", text="done"))
    opened = bench.seen(session, events.DialogOpened).body
    assert isinstance(opened, events.DialogOpened)
    bench.until(lambda: session.snapshot().state == "awaiting_user", "the state awaiting_user")
    assert not (bench.kit.cwd / "allowed").exists(), "it ran unasked"
    assert len(opened.options) > 1
    bench.allow(session, opened.dialog_id, opened.options)
    assert bench.end_of(session, ack).status == "completed"
    assert (bench.kit.cwd / "allowed").exists(), "it was allowed and did not run"
    closed = bench.seen(session, events.DialogClosed).body
    assert isinstance(closed, events.DialogClosed)
    assert closed.by == "host"


def tool_receipts(bench: Bench) -> None:
    """Each real tool execution appears once: a start with its arguments and an end with its result."""
    session = bench.session()
    for word in ("alpha", "beta"):
        done = bench.run(session, bench.subject.words.tool.format(command=f"touch {word}", text=word))
        assert (done.status, done.answer) == ("completed", word)
        assert (bench.kit.cwd / word).exists(), "the tool did not run"
    bodies = [event.body for event in bench.events(session)]
    started = [body.arguments for body in bodies if isinstance(body, events.ToolStarted)]
    assert [("alpha" in each, "beta" in each) for each in started] == [(True, False), (False, True)]
    assert [body.status for body in bodies if isinstance(body, events.ToolFinished)] == ["ok", "ok"]
    order = [event.type for event in bench.events(session) if event.type in ("tool_started", "tool_finished")]
    assert order == ["tool_started", "tool_finished"] * 2


def stall_diagnosis(bench: Bench) -> None:
    """Its record alone tells the very text and time of the last turn, honours ``since``, and says not-found.

    A stream that we keep may tell no time (Claude Code's ``result``): when that turn was over is not shown then.
    """
    session = bench.session()
    bench.say(session, "the one before")
    done = bench.say(session, "the very text")
    assert done.evidence is not None
    facts = tuple(bench.read(session, done))
    last = read_turns(facts)[-1]
    assert (last.status, last.final_text) == ("completed", "the very text")
    natives = frozenset({done.native_turn_id})
    missed = unobserved(facts, done.evidence.offset - 1, natives)
    assert missed is not None, "not found: the end that the runtime did not observe"
    end = missed.ends[-1]
    assert (end.native_turn, end.answer) == (done.native_turn_id, "the very text")
    assert end.evidence.offset == done.evidence.offset
    if end.evidence.native_at is None:
        nothing = "its record tells no time: nothing says when that turn was over"
        assert bench.subject.adapter.transport != "tmux", nothing
        bench.not_shown["C42"] = nothing
    assert end.evidence.native_at == done.times.native_ended_at, "not the time of that turn"
    assert unobserved(facts, done.evidence.offset + 1, natives) is None, "told again what was observed already"
    nobody = unobserved(facts, done.evidence.offset - 1, frozenset({"a turn that never was"}))
    assert nobody is None or not nobody.ends, "found the end of a turn that never was"
    ends = [fact.evidence.offset for fact in facts if isinstance(fact, TurnClosed)]
    assert all(one < two for one, two in pairwise(ends)), "ends out of order"


def version(bench: Bench) -> None:
    """Each completion names the version of the CLI that gave it, as its own record does."""
    session = bench.session()
    done = bench.say(session, "who are you")
    told = {fact.version for fact in bench.read(session, done) if isinstance(fact, CliVersionSeen)}
    assert told == {done.cli_version}, f"its record names {sorted(told) or 'no version'}"
    if bench.subject.adapter.certified_versions:
        assert done.cli_version == bench.version()


def clear(bench: Bench) -> None:
    """``/clear`` is applied; the session goes on."""
    session = bench.session()
    bench.say(session, "before")
    assert session.send(Command("/clear")).taken == "applied"
    assert bench.say(session, "after").answer == "after"
    assert len(bench.completions(session)) == 2


def compact(bench: Bench) -> None:
    """``/compact`` is applied and is no turn; the session goes on."""
    session = bench.session()
    bench.say(session, "before")
    assert session.send(Command("/compact")).taken == "applied"
    assert bench.say(session, "after").answer == "after"
    assert [done.answer for done in bench.completions(session) if done.origin == "host"] == ["before", "after"]


def own_turn(bench: Bench) -> None:
    """A turn that the CLI begins by itself has an id and an end of its own and closes none of ours."""
    session = bench.session()
    done = bench.run(session, bench.subject.words.background.format(text="ours"))
    assert (done.status, done.answer) == ("completed", "ours")
    bench.until(lambda: len(bench.completions(session)) > 1, "the end of its own turn")
    own = bench.completions(session)[1]
    assert own.origin != "host"
    assert own.message_id is None
    assert bench.say(session, "after it").answer == "after it"


# --- the registry ---------------------------------------------------------------------------------------------------

_ALL = (
    Certification("plain_turn", ("C01", "C02", "C03", "C30"), None, plain_turn),
    Certification("completion_gate", ("C05",), None, completion_gate),
    Certification("retained_turn", ("C08", "C15"), None, retained_turn),
    Certification("isolation", ("C51",), None, isolation),
    Certification("many_senders", ("C12", "C13"), None, many_senders),
    Certification("failure", ("C03",), None, failure, "fail"),
    Certification("killed_provider", ("C02", "C08", "C22"), None, killed_provider, "slow"),
    Certification("clean_end", ("C61",), None, clean_end, "slow"),
    Certification("oracle_rules", ("C50",), None, oracle_rules),
    Certification("fresh_process", ("C08", "C15"), "process_per_turn", fresh_process),
    Certification("interrupt", ("C07",), "interrupt", interrupt, "slow"),
    Certification("resume", ("C17",), "resume", resume),
    Certification("queue", ("C20", "C22"), "queues_while_busy", queue, "slow"),
    Certification("steer", ("C20",), "absorbs_while_busy", steer, "slow_tool"),
    Certification("inject", ("C20", "C22"), "injects_while_busy", inject, "slow_tool"),
    Certification("label", ("C53",), "emulated", label),
    Certification("dialog", ("C25",), "dialogs", dialog, "ask"),
    Certification("tool_receipts", ("C32",), "tool_calls", tool_receipts, "tool"),
    Certification("stall_diagnosis", ("C41", "C42"), "asserts_completion", stall_diagnosis),
    Certification("version", ("C03",), "versions_in_record", version),
    Certification("clear", ("C19",), "clear", clear),
    Certification("compact", ("C19",), "compact", compact),
    Certification("own_turn", ("C19",), "cli_started_turns", own_turn, "background"),
)
CERTIFICATIONS: Mapping[str, Certification] = {each.name: each for each in _ALL}
"""All there are, in the order in which they are shown."""
_OF_PROCESSES = tuple(each.name for each in _ALL if each.proves is None)
FLOORS: Mapping[TransportName, tuple[str, ...]] = {
    "tmux": _OF_PROCESSES,
    "structured": _OF_PROCESSES,
    "api": tuple(name for name in _OF_PROCESSES if name != "killed_provider"),  # nothing there can be killed
    "memory": _OF_PROCESSES,
}
"""What every adapter of a transport must show, whatever it claims."""
INSTEAD: Mapping[str, Capability] = {"retained_turn": "process_per_turn"}
"""What of a floor is not due where the adapter claims, and so must prove, that its CLI is built otherwise."""
PROOFS: Mapping[Capability, tuple[Certification, ...]] = {
    capability: tuple(each for each in _ALL if each.proves == capability) for capability in get_args(Capability)
}
"""What a capability must not be claimed without."""


def _together(work: list[Callable[[], None]]) -> None:
    """All at once, to the end; a failure of one is the failure of all."""
    faults: list[BaseException] = []

    def guarded(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=guarded, args=(one,), daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
