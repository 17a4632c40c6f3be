"""A simulated CLI behind the session's core: it takes delivered messages in its own way, and its record is read late.

It plays the pane, the record and the turns' actors; what it checks is the account of messages and turns at the end.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from itertools import count
from typing import assert_never

from lastword.actors.core import session as core
from lastword.actors.core import session_effects as asks
from lastword.actors.core import turn as turns
from lastword.actors.core.adapter import TypedText
from lastword.actors.core.facts import (
    AssistantSaid,
    Fact,
    InputDropped,
    InputJoined,
    InputQueued,
    PromptRecorded,
    RecordExhausted,
    TurnClosed,
)
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.outcome import Evidence

HERE = Evidence(source="record", offset=0)
_OFFSETS = count(1)


def somewhere() -> Evidence:
    """The place of a further record."""
    return Evidence(source="record", offset=next(_OFFSETS))


def typed(text: str) -> TypedText:
    return TypedText(text=text, paste=text.encode(), rewritten=text)


def matches(mine: TypedText, recorded: str) -> bool:
    return mine.rewritten == recorded


def new_core(
    native_session: str = "conversation", was_settled: Callable[[str], bool] = lambda _: False
) -> core.SessionCore:
    numbers = count(1)
    return core.SessionCore(matches, lambda: TurnId(f"minted {next(numbers)}"), native_session, was_settled)


class SessionModel:
    """Everything around one session's core."""

    def __init__(self) -> None:
        self.core = new_core()
        self.texts: dict[MessageId, str] = {}
        self.inbox: deque[MessageId] = deque()
        """What the CLI has and did not use yet."""
        self.queued: set[MessageId] = set()
        self.record: deque[Fact] = deque()
        self.native = ""
        self.alive = True
        self.at_pane: MessageId | None = None
        """What the pane waits for the proof of; it types nothing else before."""
        self.reports: deque[MessageId] = deque()
        """Enters that went out and are not reported yet."""
        self.to_finish: list[TurnId] = []
        self.turns: list[TurnId] = []
        self.begun: list[TurnId] = []
        self.ended: Counter[TurnId] = Counter()
        self.finished: set[TurnId] = set()
        self.in_turn: dict[MessageId, TurnId] = {}
        self.undelivered: Counter[MessageId] = Counter()
        self.natives: dict[str, set[TurnId]] = {}
        self.closed: Counter[str] = Counter()
        self.closes_told: dict[str, list[TurnId]] = {}
        self.lost: list[MessageId] = []
        self._numbers = count(1)

    # --- host -------------------------------------------------------------------------------------------------

    def send(self, text: str) -> None:
        message_id = MessageId(f"m{next(self._numbers)}")
        admission = self.core.admit(run=False)
        assert admission.refused is None
        turn_id = TurnId(f"t {message_id}") if admission.starts_turn else None
        self.texts[message_id] = text
        self.core.accept(message_id, typed(text), turn_id)
        if turn_id is not None:
            self.turns.append(turn_id)
            self.in_turn[message_id] = turn_id

    def withdraw(self) -> None:
        waiting = [each for each, pending in self.core.pending.items() if pending.stage == "waiting"]
        if waiting:
            self.do(self.core.withdraw(waiting[-1]))

    # --- pane -------------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """The next text goes to the pane, one at a time, and gets its Enter."""
        waiting = [each for each, pending in self.core.pending.items() if pending.stage == "waiting"]
        if waiting and self.alive and self.at_pane is None:
            self.at_pane = waiting[0]
            self.core.typing(waiting[0])
            self.inbox.append(waiting[0])
            self.reports.append(waiting[0])

    def report(self) -> None:
        if self.reports:
            self.do(self.core.submitted(self.reports.popleft(), ()))

    # --- the CLI ----------------------------------------------------------------------------------------------

    def _prompt(self, text: str, origin: str = "") -> None:
        self.native = f"n{next(self._numbers)}"
        self.natives[self.native] = set()
        self.record.append(PromptRecorded(native_turn=self.native, text=text, evidence=HERE, origin=origin))

    def take(self, merged: int = 1) -> None:
        """Idle: it runs what it has, perhaps several as one prompt. Busy: it queues it."""
        if not self.alive or not self.inbox:
            return
        if self.native:
            for message_id in self.inbox:
                if message_id not in self.queued:
                    self.queued.add(message_id)
                    self.record.append(InputQueued(text=self.texts[message_id], evidence=somewhere()))
                    return
            return
        took = [self.inbox.popleft() for _ in range(min(merged, len(self.inbox)))]
        self._prompt("\n".join(self.texts[message_id] for message_id in took))

    def absorb(self) -> None:
        if self.alive and self.native and self.inbox:
            text = self.texts[self.inbox.popleft()]
            self.record.append(InputJoined(native_turn=self.native, text=text, evidence=somewhere()))

    def drop(self) -> None:
        if self.alive and self.inbox:
            self.record.append(
                InputDropped(text=self.texts[self.inbox.popleft()], reason="removed", evidence=somewhere())
            )

    def lose(self) -> None:
        """It never becomes a prompt and leaves no record; the pane proves that later."""
        if self.alive and self.inbox and self.inbox[0] not in self.queued:
            self.lost.append(self.inbox.popleft())

    def prove_lost(self) -> None:
        if self.lost:
            self.report()
            message_id = self.lost.pop(0)
            if message_id == self.at_pane:
                self.at_pane = None
                self.do(self.core.undeliverable(message_id, "not_delivered", "proved absent"))

    def person(self, text: str, origin: str) -> None:
        if self.alive and not self.native:
            self._prompt(text, origin)

    def say(self) -> None:
        if self.alive and self.native:
            said = AssistantSaid(native_turn=self.native, native_message="x", text="y", evidence=HERE)
            self.record.append(said)

    def close(self) -> None:
        if self.alive and self.native:
            self.record.append(TurnClosed(native_turn=self.native, status="completed", answer="", evidence=HERE))
            self.closed[self.native] += 1
            self.native = ""

    def die(self) -> None:
        if self.alive:
            while self.reports:
                self.report()
            self.alive = False
            self.native = ""
            self.inbox.clear()
            self.lost.clear()
            self.record.append(RecordExhausted(exit_status=1))

    # --- the record and the turns -----------------------------------------------------------------------------

    def read(self, how_many: int) -> None:
        self.do(self.core.read([self.record.popleft() for _ in range(min(how_many, len(self.record)))]))

    def finish(self, which: int) -> None:
        if self.to_finish:
            turn_id = self.to_finish.pop(which % len(self.to_finish))
            self.finished.add(turn_id)
            self.do(self.core.finished(turn_id))

    def do(self, effects: list[asks.SessionEffect]) -> None:
        for effect in effects:
            match effect:
                case asks.OpenTurn():
                    assert effect.turn_id not in self.turns
                    self.turns.append(effect.turn_id)
                    if effect.message_id is not None:
                        assert effect.message_id not in self.in_turn
                        self.in_turn[effect.message_id] = effect.turn_id
                    self._begin(effect.turn_id, effect.bound.prompt.native_turn)
                case asks.ToTurn():
                    self._turn(effect.turn_id, effect.event)
                case asks.Undelivered():
                    self.undelivered[effect.message_id] += 1
                case asks.Gone():
                    waiting = [each for each, pending in self.core.pending.items() if pending.stage == "waiting"]
                    assert list(effect.redeliver) == waiting
                    self.at_pane = None
                    self.alive = True
                case asks.Proved():
                    if effect.message_id == self.at_pane:
                        self.report()
                        self.at_pane = None
                case asks.Rebound() | asks.Moved():
                    pass
                case asks.Count():
                    raise AssertionError(effect.what)
                case _:
                    assert_never(effect)

    def _begin(self, turn_id: TurnId, native_turn: str) -> None:
        unsettled = [each for each in self.begun if self.ended[each] and each not in self.finished]
        assert not unsettled, f"{turn_id} starts before {unsettled} are settled"
        assert turn_id not in self.begun
        self.begun.append(turn_id)
        self.natives[native_turn].add(turn_id)

    def _turn(self, turn_id: TurnId, event: turns.TurnEvent) -> None:
        assert turn_id in self.turns
        assert not self.ended[turn_id] or isinstance(event, RecordExhausted), f"{event} after the end of {turn_id}"
        match event:
            case turns.Bound():
                self._begin(turn_id, event.prompt.native_turn)
            case turns.Adopted():
                self._begin(turn_id, event.native_turn)
            case turns.Joined():
                assert event.message_id not in self.in_turn
                self.in_turn[event.message_id] = turn_id
            case TurnClosed():
                assert turn_id in self.natives[event.native_turn]
                self.closes_told.setdefault(event.native_turn, []).append(turn_id)
                self._end(turn_id)
            case turns.Withdrawn() | turns.Undeliverable() | RecordExhausted():
                if self.core.settling(turn_id):
                    self._end(turn_id)
            case _:
                pass

    def _end(self, turn_id: TurnId) -> None:
        self.ended[turn_id] += 1
        self.to_finish.append(turn_id)

    # --- the account ------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """The CLI goes on until it has used up everything, and all of it is read and settled."""
        for _ in range(10_000):
            busy = bool(self.record or self.to_finish or self.lost or self.core.pending or self.native)
            if not busy and not self.core.open and not self.core.backlog:
                break
            self.read(3)
            self.finish(0)
            self.prove_lost()
            self.deliver()
            self.report()
            self.close()
            self.take()
        assert self.core.idle, f"left: {self.core.pending} {self.core.open}"
        assert self.core.backlog == 0
        assert self.at_pane is None, f"the pane waits for ever for the proof of {self.at_pane}"

    def check(self) -> None:
        assert {turn_id: self.ended[turn_id] for turn_id in self.turns} == dict.fromkeys(self.turns, 1)
        for message_id in self.texts:
            ends = self.undelivered[message_id] + (message_id in self.in_turn)
            assert ends == 1, f"{message_id} has {ends} ends"
        for native_turn, times in self.closed.items():
            assert times == 1
            told = self.closes_told[native_turn]
            assert sorted(told) == sorted(self.natives[native_turn])
            assert told
