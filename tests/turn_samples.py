"""One of each thing that a turn may be told, for the tests of its machine."""

from __future__ import annotations

import msgspec

from lastword.actors.core import turn as core
from lastword.actors.core.facts import (
    AssistantSaid,
    CliStatusSeen,
    CompactionRecorded,
    PromptRecorded,
    ProviderRetrying,
    RecordExhausted,
    ToolFinished,
    ToolStarted,
    TurnClosed,
    TurnContinued,
)
from lastword.actors.core.ids import MessageId, SessionId, TurnId
from lastword.actors.core.outcome import Completion, Evidence, TurnError
from lastword.actors.core.turn import Now, Turn, step

T0 = 1_000_000.0


def at(offset: int = 0, native: float | None = T0) -> Evidence:
    return Evidence(source="f", offset=offset, native_at=native)


def now(seconds: float = 0.0) -> Now:
    return Now(mono_s=seconds, wall_s=T0 + seconds)


def a_turn(**fields: object) -> Turn:
    base = Turn(
        turn_id=TurnId("t"),
        session_id=SessionId("s"),
        provider="p",
        transport="memory",
        message_id=MessageId("m"),
        accepted_at=T0,
    )
    return msgspec.structs.replace(base, **fields)


PROMPT = PromptRecorded(native_turn="n", text="hi", evidence=at())
BOUND = core.Bound(prompt=PROMPT, native_session="ns", cli_version="1")
DONE = TurnClosed(native_turn="n", status="completed", answer="the answer", evidence=at(9, T0 + 3))
EVENTS: list[core.TurnEvent] = [
    core.Begin(),
    BOUND,
    core.Adopted(native_turn="other", from_turn_id=None, evidence=at()),
    core.Submitted(),
    core.Joined(message_id=MessageId("j"), evidence=at()),
    core.Undeliverable(kind="not_delivered", reason="r"),
    core.Undeliverable(kind="launch_failed", reason="r"),
    core.Cancel(),
    core.Cancel(reason="deadline"),
    core.Withdrawn(),
    core.InterruptPressed(at=T0),
    core.InterruptMoot(),
    core.LookedAgain(),
    *(core.TimerFired(name=name) for name in ("deadline", "reread", "interrupt_again", "interrupt_grace", "end_grace", "record_retry", "answer_grace", "record_gone")),
    core.RecordingFailed(),
    core.Superseded(),
    AssistantSaid(native_turn="n", native_message="a", text="so far", evidence=at(3)),
    AssistantSaid(native_turn="n", native_message="b", text="final", evidence=at(4), ends_by_itself=True),
    ToolStarted(native_turn="n", call_id="c", name="Bash", arguments="{}", evidence=at(5)),
    ToolFinished(native_turn="n", call_id="c", status="ok", result="r", evidence=at(6, T0 + 2)),
    ProviderRetrying(native_turn="n", message="529", evidence=at(7)),
    TurnContinued(native_turn="n", reason="stop_hook", evidence=at(8)),
    DONE,
    TurnClosed(native_turn="n", status="failed", evidence=at(9), error=TurnError(kind="rate_limited")),
    TurnClosed(native_turn="n", status="cancelled", evidence=at(9)),
    TurnClosed(native_turn="n", status="lost", evidence=at(9)),
    CompactionRecorded(evidence=at()),
    CliStatusSeen(status="idle", waiting_for="", updated_at=T0 + 100, native_session="ns"),
    CliStatusSeen(status="busy", waiting_for="", updated_at=T0 + 100, native_session="ns"),
    RecordExhausted(exit_status=0),
]  # fmt: skip


def play(turn: Turn, *told: core.TurnEvent, at_s: float = 0.0) -> tuple[Turn, list[core.Effect]]:
    effects: list[core.Effect] = []
    for event in told:
        turn, more = step(turn, event, now(at_s))
        effects += more
    return turn, effects


def offered(effects: list[core.Effect]) -> list[Completion]:
    return [effect.completion for effect in effects if isinstance(effect, core.RecordCompletion)]


def settle(turn: Turn) -> Turn:
    assert turn.completion is not None
    return play(turn, core.CompletionRecorded(completion=turn.completion, won=True))[0]


def running() -> Turn:
    return play(a_turn(), core.Begin(), core.Submitted(), BOUND)[0]
