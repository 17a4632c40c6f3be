"""A simulated pane around the typing machine: an input box with bad manners, and a clock that only the test moves.

It carries out the machine's effects the way the pane's actor does (one look timer, guarded presses in one round trip)
and keeps what a CLI would have taken. It may not know how the machine decides.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from itertools import count, cycle

import msgspec

from lastword.actors.core import typing as core
from lastword.actors.core import typing_effects
from lastword.actors.core.adapter import DialogOpen, NotReady, Ready, Signal, TypedText
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.typing_dialogs import dialog_id

STEPS_MAX = 20_000
"""Events of one simulation."""


def typed(text: str) -> TypedText:
    return TypedText(text=text, paste=text.encode(), rewritten=text)


class Rules:
    """A CLI whose box shows a text as it is; dialogs with a cursor are walked, others take digits."""

    def landed(self, typed: TypedText, draft: str) -> bool:
        return typed.text == draft

    def interrupt_keys(self) -> tuple[str, ...]:
        return ("Escape",)

    def clear_draft_keys(self, draft: str) -> tuple[str, ...]:
        return ("C-u",)

    def answer_keys(self, dialog: DialogOpen, option: int) -> tuple[str, ...]:
        if not 1 <= option <= len(dialog.options):
            return ()
        if not dialog.cursor:
            return (str(option),)
        if dialog.cursor == option:
            return ("Enter",)
        return ("Down",) if dialog.cursor < option else ("Up",)


class Manners(msgspec.Struct, frozen=True, kw_only=True):
    """How the pane behaves. Times are seconds."""

    starts_after: float = 0.0
    swallowed_enters: int = 0
    lost_pastes: int = 0
    look_ages: tuple[float, ...] = (0.0,)
    """How old the screens are that looks show; a screen never goes back in time."""
    latencies: tuple[float, ...] = (0.001,)
    landing: tuple[float, ...] = (0.0,)
    proof_after: float = 0.1
    busy_for: float = 0.5
    puts_back: bool = False
    """An interrupt puts a text that the record does not show yet back into the box, and it is never recorded."""
    box_makes: tuple[tuple[str, str], ...] = ()
    """What the box makes of a text that is pasted."""
    answers_dialogs: bool = False
    dialogs: tuple[tuple[float, float], ...] = ()
    drafts: tuple[tuple[float, float, bool], ...] = ()
    """From, how long, and whether the person takes our text away with their own."""
    copy_modes: tuple[tuple[float, float], ...] = ()


class State(msgspec.Struct, frozen=True, kw_only=True):
    started: bool = False
    box: tuple[str, ...] = ()
    dialog: DialogOpen | None = None
    busy: bool = False
    copy_mode: bool = False

    @property
    def signal(self) -> Signal:
        if not self.started:
            return NotReady(reason="starting")
        if self.dialog is not None:
            return self.dialog
        return Ready(draft="".join(self.box), busy=self.busy)


DRAFT = "a person's draft "


class PaneModel:
    """The pane, its CLI, the person in front of it, and the carrying out of effects."""

    def __init__(self, manners: Manners) -> None:
        self.manners = manners
        self.core = core.PaneCore(Rules(), 1)
        self.now = 0.0
        self.state = State()
        self.history: list[tuple[float, State]] = [(0.0, self.state)]
        self.jobs: dict[str, typing_effects.Job] = {}
        self.delivered: list[str] = []
        self.submitted: list[str] = []
        self.pastes: list[str] = []
        self.keys: list[tuple[str, tuple[str, ...]]] = []
        self.reports: list[typing_effects.PaneEffect] = []
        self.ended: dict[str, str] = {}
        """Text to how it ended for the machine: proved, withdrawn, not_delivered, launch_failed, delivered."""
        self.asked_answers: set[str] = set()
        self.deaf_to_answers = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._ages = cycle(manners.look_ages)
        self._latencies = cycle(manners.latencies)
        self._landing = cycle(manners.landing)
        self._swallow = manners.swallowed_enters
        self._lose = manners.lost_pastes
        self._shown = 0.0
        self._tty = 0.0
        self._timer = 0
        self._turn = 0
        self._unproved: set[str] = set()
        self._running = ""
        self.steps = 0
        self.before_step: dict[int, list[Callable[[], None]]] = {}
        self._script()

    # --- clock ------------------------------------------------------------------------------------------------

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (max(when, self.now), next(self._order), action))

    def run(self, until: float = 1e9, *, stop: Callable[[], bool] | None = None) -> None:
        """Until nothing is left to happen, that time, or that condition."""
        while self._heap and self._heap[0][0] <= until and not (stop is not None and stop()):
            self.steps += 1
            assert self.steps < STEPS_MAX, "the simulation does not end"
            self.now, _, action = heapq.heappop(self._heap)
            for early in self.before_step.pop(self.steps, []):
                early()
            action()

    def _script(self) -> None:
        manners = self.manners
        self.at(manners.starts_after, lambda: self.become(started=True))
        for number, (start, length) in enumerate(manners.dialogs):
            self.at(start, lambda key=f"dialog {number}", length=length: self.open_dialog(key, length))  # type: ignore[misc]
        for start, length, takes_all in manners.drafts:
            self.at(start, lambda length=length, takes_all=takes_all: self.begin_draft(length, takes_all=takes_all))  # type: ignore[misc]
        for start, length in manners.copy_modes:
            self.at(start, lambda: self.become(copy_mode=True))
            self.at(start + length, lambda: self.become(copy_mode=False))

    def open_dialog(self, key: str, length: float) -> None:
        if self.state.started:
            dialog = DialogOpen(key=key, question="May I?", options=("yes", "no"))
            self.become(dialog=dialog)
            self.at(self.now + length, lambda: self._close_dialog(dialog))

    def begin_draft(self, length: float, *, takes_all: bool) -> None:
        if self.state.started and self.state.dialog is None:
            self.become(box=(*self.state.box, DRAFT))
            self.at(self.now + length, lambda: self._end_draft(takes_all=takes_all))

    def _close_dialog(self, dialog: DialogOpen) -> None:
        if self.state.dialog is not None and self.state.dialog.key == dialog.key:
            self.become(dialog=None)

    def _end_draft(self, *, takes_all: bool) -> None:
        if DRAFT in self.state.box:
            kept = () if takes_all else tuple(part for part in self.state.box if part != DRAFT)
            self.become(box=kept)

    def become(self, **changes: object) -> None:
        self.state = msgspec.structs.replace(self.state, **changes)
        self.history.append((self.now, self.state))

    # --- commands ---------------------------------------------------------------------------------------------

    def open(self) -> None:
        self.do(self.core.opened(self.now))

    def deliver(self, text: str, *, proved_by_record: bool = True, uncertain: bool = False) -> None:
        job = typing_effects.Job(
            message_id=MessageId(f"m:{text}"),
            typed=typed(text),
            turn_id=TurnId("t1"),
            proved_by_record=proved_by_record,
            uncertain=uncertain,
        )
        self.jobs[text] = job
        self.delivered.append(text)
        self.do(self.core.deliver(job, self.now))

    def withdraw(self, text: str) -> None:
        self.do(self.core.withdraw(MessageId(f"m:{text}"), self.now))

    def interrupt(self, turn: str) -> None:
        self.do(self.core.interrupt(TurnId(turn)))

    def prove(self, text: str) -> None:
        if text in self._unproved:
            self._unproved.discard(text)
            open_before = text not in self.ended
            assert open_before, f"{text!r} was submitted, but reported as {self.ended.get(text)}"
            self.ended[text] = "proved"
            self.do(self.core.proved(MessageId(f"m:{text}"), self.now))

    # --- effects ----------------------------------------------------------------------------------------------

    def do(self, effects: list[typing_effects.PaneEffect]) -> None:
        for effect in effects:
            match effect:
                case typing_effects.Look(number=number):
                    self._timer += 1
                    self.at(self.now + next(self._latencies), lambda number=number: self._looked(number))  # type: ignore[misc]
                case typing_effects.LookIn(delay_s=delay_s):
                    self._timer += 1
                    self.at(self.now + delay_s, lambda mine=self._timer: self._due(mine))  # type: ignore[misc]
                case typing_effects.Paste(data=data):
                    self._to_tty(lambda data=data: self._paste(data.decode()))  # type: ignore[misc]
                case typing_effects.Press():
                    guard = self.core.guard(effect)
                    self._to_tty(lambda press=effect, guard=guard: self._press(press, guard))  # type: ignore[misc]
                case _:
                    self._reported(effect)

    def _to_tty(self, action: Callable[[], None]) -> None:
        self._tty = max(self._tty, self.now + next(self._latencies))
        self.at(self._tty, action)

    def _due(self, mine: int) -> None:
        if mine == self._timer:
            self.do(self.core.look_due())

    def _looked(self, number: int) -> None:
        self._shown = max(self._shown, self.now - next(self._ages))
        state = next(state for when, state in reversed(self.history) if when <= self._shown)
        self.do(self.core.looked(number, state.signal, copy_mode=self.state.copy_mode, now_s=self.now))

    def _paste(self, text: str) -> None:
        assert text not in self.ended, f"{text!r} was pasted after it was reported as {self.ended[text]}"
        self.pastes.append(text)
        if self._lose:
            self._lose -= 1
        elif self.state.dialog is None:
            self.at(self.now + next(self._landing), lambda: self._land(text))
        self.do(self.core.pasted(ok=True, now_s=self.now))

    def _land(self, text: str) -> None:
        if self.state.dialog is None:
            self.become(box=(*self.state.box, dict(self.manners.box_makes).get(text, text)))

    def _press(self, press: typing_effects.Press, guard: Callable[[Signal], bool]) -> None:
        ok = not press.guard or (not self.state.copy_mode and guard(self.state.signal))
        if ok:
            self.keys.append((press.what, press.keys))
            match press.what:
                case "enter":
                    self._enter()
                case "clear":
                    assert self.state.dialog is None, "keys that clear the box went into a dialog"
                    assert DRAFT not in self.state.box, "a person's draft was cleared"
                    self.become(box=())
                case "interrupt":
                    self._escape()
                case "answer":
                    dialog = self.state.dialog
                    assert dialog is not None
                    assert dialog_id(dialog, 1) in self.asked_answers, "nobody answered this"
                    if self.deaf_to_answers:
                        self.deaf_to_answers -= 1
                    else:
                        self.become(dialog=None)
        self.do(self.core.pressed(press, ok=ok, now_s=self.now))

    def _enter(self) -> None:
        assert self.state.dialog is None, "Enter went into a dialog"
        if self._swallow:
            self._swallow -= 1
            return
        text = "".join(self.state.box)
        assert text in self.jobs, f"submitted {text!r}, which is none of ours alone"
        assert text not in self.ended, f"{text!r} was submitted after it was reported as {self.ended[text]}"
        self.submitted.append(text)
        self._unproved.add(text)
        self._turn += 1
        self._running = text
        self.become(box=(), busy=True)
        if self.jobs[text].proved_by_record:
            self.at(self.now + self.manners.proof_after, lambda: self.prove(text))
        self.at(self.now + self.manners.busy_for, lambda turn=self._turn: self._idle(turn))  # type: ignore[misc]

    def _idle(self, turn: int) -> None:
        if turn == self._turn:
            self.become(busy=False)

    def _escape(self) -> None:
        if self.state.dialog is not None:
            self.become(dialog=None)
            return
        if not self.state.busy:
            return
        self.become(busy=False)
        if self.manners.puts_back and self._running in self._unproved:
            self._unproved.discard(self._running)
            self.submitted.remove(self._running)  # taken back: it is not submitted any more, and may be again
            self.become(box=(self._running, *self.state.box))

    # --- reports ----------------------------------------------------------------------------------------------

    def _reported(self, report: typing_effects.PaneEffect) -> None:
        self.reports.append(report)
        match report:
            case typing_effects.WithdrawnReport(message_id=message_id):
                self._end(message_id, "withdrawn")
                text = message_id.removeprefix("m:")
                assert text not in self._unproved, f"{text!r} was submitted, but reported as withdrawn"
            case typing_effects.NotDelivered(message_id=message_id, kind=kind):
                self._end(message_id, kind)
            case typing_effects.Delivered(message_id=message_id):
                self._end(message_id, "delivered")
            case typing_effects.DialogSeen(dialog_id=dialog_id):
                if self.manners.answers_dialogs:
                    self.at(self.now + 0.2, lambda: self.answer(dialog_id, 1))
            case _:
                pass

    def answer(self, dialog_id: str, option: int, token: str = "token") -> None:
        self.asked_answers.add(dialog_id)
        self.do(self.core.answer(token, dialog_id, option))

    def _end(self, message_id: str, how: str) -> None:
        text = message_id.removeprefix("m:")
        assert text not in self.ended, f"{text!r} was reported as {how} after {self.ended.get(text)}"
        self.ended[text] = how

    def check(self) -> None:
        """What must hold once nothing more happens."""
        assert set(self.ended) == set(self.delivered), f"no end: {set(self.delivered) - set(self.ended)}"
        assert self.core._interrupt is None, "an interrupt was forgotten"
        twice = [text for text, times in Counter(self.submitted).items() if times > 1]
        assert not twice, f"submitted twice: {twice}"
        assert self.submitted == [text for text in self.delivered if text in set(self.submitted)], "out of order"
        for text, how in self.ended.items():
            assert how != "proved" or text in self.submitted

    def of(self, kind: type) -> list[typing_effects.PaneEffect]:
        return [report for report in self.reports if isinstance(report, kind)]
