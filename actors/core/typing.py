"""How a text gets into a CLI's input box, with proof at each step (C24, C25). Pure; owned by one PaneActor.

The steps of one delivery: *ready* (the box takes text, and holds nobody's draft) -> paste -> *landed* (the box shows
exactly our text) -> Enter, guarded by one more look in the same round trip -> *submitted*, which only the record
proves. A step is repeated only when it is proved missing: Enter while the box still holds our text; the paste while
the box is empty. Nothing is submitted that was not seen landed, so nothing is submitted twice. While a dialog is
open nothing is typed, except a host's own answer to that very dialog.
"""

from __future__ import annotations

import enum
import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Literal, assert_never

import msgspec

from lastword.actors.core.adapter import DialogOpen, NotReady, Ready, Signal, TypedText
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.typing_effects import (
    AnswerResult,
    BecameReady,
    Delivered,
    DialogGone,
    DialogSeen,
    Held,
    Interrupted,
    Job,
    LeftBehind,
    Look,
    LookIn,
    NotDelivered,
    NothingToInterrupt,
    PaneEffect,
    Paste,
    Press,
    Submitted,
    TypingRules,
    WithdrawnReport,
)

START_S = 60.0
"""How long a CLI may take until its input box can be read; a dialog on the way stops this clock."""
START_LOOK_S = 0.05
BUSY_LOOK_S = 0.5
IDLE_LOOK_S = 2.0
"""Between looks at a CLI that announces nothing by itself, while nothing is to be typed: a dialog may have opened, or a
person moved it to another conversation."""
HOLD_LOOK_S = 0.25
"""Between looks while a dialog, a person's draft or copy mode holds delivery."""
LAND_LOOK_S = 0.005
LAND_LOOK_MAX_S = 0.2
LANDED_S = 3.0
"""After a paste: how long until a box that shows nothing proves that the paste is missing."""
PASTES_MAX = 3
PROOF_LOOK_S = 0.5
PROOF_LOOK_MAX_S = 5.0
ENTER_AGAIN_S = 0.5
"""Before Enter is repeated on a box that still shows our text; doubled each time: a repaint may be late, and a CLI may
swallow the key for a while (after a paste, while it starts)."""
ENTER_AGAIN_MAX_S = 5.0
ENTERS_MAX = 12
RESOLVE_S = 5.0
"""Idle CLI, empty box, nothing on record for this long after a restart: an uncertain text was not submitted (a record
follows Enter within 0.7 s on a loaded machine)."""
ABSENT_S = 30.0
"""Idle CLI, empty box, nothing on record for this long behind our Enter: proved absent (C24)."""
TAKEN_BACK_S = 5.0
"""The same for a text that is being withdrawn after Enter: how long the record may still show that it was taken."""
CLEARS_MAX = 3
"""Tries to clear a leftover of ours out of the box before it is held for a person."""
OURS_MAX = 8
ANSWER_STEPS_MAX = 60
"""Keys pressed towards one answer before it is given up."""
DRAWN_LOOK_S = 0.1
"""Between the two looks that must show the same dialog before it is told."""
PERHAPS_S = 1.0
"""How long a dialog must stay on the screen that the CLI's own registry does not confirm."""
ANSWER_AGAIN_S = 0.7
"""A dialog that is still open so long after the key that should have closed it did not take the key."""


class Phase(enum.Enum):
    """Where the pane is."""

    UNOPENED = "unopened"
    STARTING = "starting"
    IDLE = "idle"
    READYING = "readying"
    CLEARING = "clearing"
    PASTING = "pasting"
    LANDING = "landing"
    PRESSING = "pressing"
    PROVING = "proving"
    GONE = "gone"


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    dialog_id: str
    option: int
    steps: int = 0
    pressed_s: float | None = None
    stepped_s: float | None = None
    stepped_from: int = 0


def dialog_id(dialog: DialogOpen, epoch: int) -> str:
    """Identity of a dialog: its key within one process of the CLI."""
    return "d_" + hashlib.sha256(f"{epoch}\0{dialog.key}".encode()).hexdigest()[:16]


def _repeated(typed: TypedText, times: int) -> TypedText:
    """What the box holds where that many pastes of it landed at once."""
    return msgspec.structs.replace(
        typed, text=typed.text * times, paste=typed.paste * times, rewritten=typed.rewritten * times
    )


class PaneCore:
    """The typing machine of one pane.

    Args:
        rules: the adapter.
        epoch: of the CLI process in the pane.
    """

    def __init__(self, rules: TypingRules, epoch: int) -> None:
        self._rules = rules
        self._epoch = epoch
        self.phase = Phase.UNOPENED
        self.jobs: deque[Job] = deque()
        self.dialog: tuple[str, DialogOpen] | None = None
        self._answered: str = ""
        self._answered_by: str = ""
        self._answer: _Answer | None = None
        self._interrupt: TurnId | None = None
        self._interrupted_once: set[TurnId] = set()
        self._ours: deque[TypedText] = deque(maxlen=OURS_MAX)
        self._withdraw: set[MessageId] = set()
        self._since = 0.0
        self._absent_since: float | None = None
        self._absence_proved = False
        self._moved_unseen = False
        self._perhaps_since: float | None = None
        self._drawing = ""
        self._delay = 0.0
        self._pastes = 0
        self._enters = 0
        self._entered_at = 0.0
        self._clears = 0
        self._held: set[str] = set()
        self._looking = 0
        self._numbers = count(1)
        self._entering = 0
        self._clear_out = False
        self._ready_once = False
        self.unannounced = False
        """The CLI keeps no registry that would wake us: it is looked at every now and then."""

    # --- commands -------------------------------------------------------------------------------------------

    def left_behind(self, command: str, texts: Sequence[TypedText]) -> None:
        """What of an earlier life may stand in the box, ours to clear: a command of the CLI's own that was typed, not
        submitted, and the texts of a turn that the CLI put back behind an interrupt.
        """
        if command:
            self._ours.append(TypedText(text=command, paste=command.encode(), rewritten=command))
        self._ours.extend(texts)

    def opened(self, now_s: float) -> list[PaneEffect]:
        """The CLI's process runs."""
        self.phase = Phase.STARTING
        self._since = now_s
        return self._look()

    def deliver(self, job: Job, now_s: float) -> list[PaneEffect]:
        """Take a text; they are typed one after the other, in order."""
        if self.phase is Phase.GONE or any(waiting.message_id == job.message_id for waiting in self.jobs):
            return []  # the session delivers all that was not typed to the next CLI, in order
        self.jobs.append(job)
        return self._next(now_s)

    def withdraw(self, message_id: MessageId, now_s: float) -> list[PaneEffect]:
        """Forget a text if Enter was not pressed for it yet; answered by a report, unless it was."""
        for job in self.jobs:
            if job.message_id != message_id:
                continue
            if job is self.jobs[0] and self.phase not in (Phase.UNOPENED, Phase.STARTING, Phase.IDLE, Phase.READYING):
                self._withdraw.add(message_id)
                return [] if self.phase in (Phase.PRESSING, Phase.PROVING) else self._look()
            self.jobs.remove(job)
            if self.phase is Phase.READYING:
                self.phase = Phase.IDLE
            return [WithdrawnReport(message_id=message_id), *self._next(now_s)]
        return []

    def interrupt(self, turn_id: TurnId) -> list[PaneEffect]:
        """Press the interrupt key as soon as a look allows it."""
        self._interrupt = turn_id
        return self._look()

    def answer(self, token: str, wanted_dialog: str, option: int) -> list[PaneEffect]:
        """Answer that dialog, if it is the one that is open.

        One answer at a time: a later one takes the place of one that was not pressed yet.
        """
        before = self._answer
        if before is not None and before.dialog_id == wanted_dialog and before.pressed_s is not None:
            return [AnswerResult(token=token, applied=False)]  # the key is on its way: no dialog is answered twice
        replaced: list[PaneEffect] = []
        if before is not None:
            replaced.append(AnswerResult(token=before.token, applied=False))
        self._answer = _Answer(token=token, dialog_id=wanted_dialog, option=option)
        return [*replaced, *self._look()]

    def proved(self, message_id: MessageId, now_s: float) -> list[PaneEffect]:
        """The record shows that the message was submitted."""
        if not self.jobs or self.jobs[0].message_id != message_id:
            for job in self.jobs:
                if job.message_id == message_id and job.uncertain:
                    self.jobs.remove(job)  # an earlier life typed it
                    break
            return []
        job = self.jobs[0]
        early: list[PaneEffect] = []
        if self.phase is Phase.PRESSING and self._enters == 0:  # the record was faster than the report of the key
            early.append(Submitted(message_id=message_id, rewritten=job.typed.notes))
        return [*early, *self._done(now_s)]

    def moved_unseen(self) -> None:
        """The CLI went to other conversations while no host looked: the record that we read proves no absence."""
        self._moved_unseen = True

    def nudge(self) -> list[PaneEffect]:
        """Something changed (the CLI's registry): look."""
        return self._look()

    def answered_by_exit(self) -> list[PaneEffect]:
        """The CLI is gone: an answer that was pressed has been taken (it may have said so: "No, exit")."""
        answer, self._answer = self._answer, None
        if answer is None:
            return []
        return [AnswerResult(token=answer.token, applied=answer.pressed_s is not None)]

    def gone(self) -> tuple[MessageId | None, bool]:
        """The CLI is gone. Gives the message in progress, and whether Enter was pressed for it."""
        pressed = self.phase is Phase.PROVING
        current = self.jobs[0].message_id if self.jobs else None
        self.phase = Phase.GONE
        self.jobs.clear()
        return current, pressed

    # --- what was seen ----------------------------------------------------------------------------------------

    def look_due(self) -> list[PaneEffect]:
        """The timer of a :class:`LookIn`."""
        return self._look()

    def looked(self, number: int, signal: Signal, *, copy_mode: bool, now_s: float) -> list[PaneEffect]:
        """The answer to a look. One that was asked for before the last step says nothing about what came of it."""
        if number != self._looking:
            return []
        self._looking = 0
        if self.phase in (Phase.GONE, Phase.UNOPENED):
            return []
        signal = self._believe(signal, now_s)
        effects = self._see_dialog(signal)
        if self._answer is not None:
            effects += self._try_answer(signal, now_s)
        if self._interrupt is not None:
            effects += self._try_interrupt(signal, copy_mode=copy_mode)
        match self.phase:
            case Phase.STARTING:
                effects += self._starting(signal, now_s)
            case Phase.READYING:
                effects += self._readying(signal, copy_mode=copy_mode, now_s=now_s)
            case Phase.CLEARING:
                effects += self._clearing(signal, now_s)
            case Phase.LANDING:
                effects += self._landing(signal, copy_mode=copy_mode, now_s=now_s)
            case Phase.PROVING:
                effects += self._proving(signal, copy_mode=copy_mode, now_s=now_s)
            case Phase.IDLE:
                if self.dialog is not None or isinstance(signal, NotReady):
                    effects.append(LookIn(HOLD_LOOK_S))  # a dialog may close without a word in the registry
                elif self.unannounced and not any(isinstance(effect, LookIn) for effect in effects):
                    busy = isinstance(signal, Ready) and signal.busy
                    effects.append(LookIn(BUSY_LOOK_S if busy else IDLE_LOOK_S))
            case Phase.PASTING | Phase.PRESSING | Phase.UNOPENED | Phase.GONE:
                pass
            case _:
                assert_never(self.phase)
        return effects

    def _believe(self, signal: Signal, now_s: float) -> Signal:
        """A dialog that only the screen speaks of is believed once it stays."""
        perhaps = signal.perhaps if isinstance(signal, NotReady) else None
        if perhaps is None:
            self._perhaps_since = None
            return signal
        if self._perhaps_since is None:
            self._perhaps_since = now_s
        return perhaps if now_s - self._perhaps_since >= PERHAPS_S else signal

    def look_failed(self, number: int) -> list[PaneEffect]:
        """The pane could not be looked at; that is no proof of anything."""
        if number != self._looking:
            return []
        self._looking = 0
        return [] if self.phase in (Phase.GONE, Phase.UNOPENED) else [LookIn(HOLD_LOOK_S)]

    def pasted(self, *, ok: bool, now_s: float) -> list[PaneEffect]:
        """The paste went out, or answered with an error, which is no proof that it did not: the box will show."""
        if self.phase is not Phase.PASTING:
            return []
        self.phase = Phase.LANDING
        self._since = now_s
        self._delay = LAND_LOOK_S
        return self._look(fresh=True) if ok else [LookIn(HOLD_LOOK_S)]

    def pressed(self, press: Press, *, ok: bool, now_s: float) -> list[PaneEffect]:
        """Keys went out, or the guard (or tmux) refused them."""
        if press.what == "clear":
            return self._cleared(ok=ok, now_s=now_s)
        if press.what == "answer" and not ok and self._answer is not None:
            self._answer = msgspec.structs.replace(self._answer, pressed_s=None, stepped_s=None)  # the guard dropped it
            self._answered = self._answered_by = ""
        if press.what != "enter":
            return self._look(fresh=True) if press.what == "answer" else []
        if press.number != self._entering or self.phase is not Phase.PRESSING or not self.jobs:
            return []
        job = self.jobs[0]
        first = self._enters == 0
        if not ok:
            if first:
                self.phase = Phase.LANDING
                return [LookIn(LAND_LOOK_MAX_S)]
            self.phase = Phase.PROVING
            return self._look_sooner(PROOF_LOOK_S)
        self.phase = Phase.PROVING
        self._enters += 1
        self._entered_at = now_s
        if first:
            self._since = now_s
            self._delay = PROOF_LOOK_S
            self._absent_since = None
        report: list[PaneEffect] = [Submitted(message_id=job.message_id, rewritten=job.typed.notes)] if first else []
        return [*report, *self._look_sooner(PROOF_LOOK_S if job.proved_by_record else LAND_LOOK_S * 4)]

    # --- phases ---------------------------------------------------------------------------------------------

    def _starting(self, signal: Signal, now_s: float) -> list[PaneEffect]:
        match signal:
            case Ready():
                self.phase = Phase.IDLE
                if self._ready_once:
                    return self._next(now_s)
                self._ready_once = True
                return [BecameReady(), *self._next(now_s)]
            case DialogOpen():
                self._since = now_s
                return [LookIn(HOLD_LOOK_S)]
            case NotReady():
                if now_s - self._since > START_S and self.jobs:
                    job = self.jobs.popleft()
                    reason = f"its input box was not readable within {START_S:g} s: {signal.reason or 'no prompt seen'}"
                    failed = NotDelivered(message_id=job.message_id, kind="launch_failed", reason=reason)
                    return [failed, LookIn(HOLD_LOOK_S)]
                return [LookIn(START_LOOK_S if now_s - self._since < START_S else HOLD_LOOK_S)]
            case _:
                assert_never(signal)

    def _readying(self, signal: Signal, *, copy_mode: bool, now_s: float) -> list[PaneEffect]:
        match signal:
            case NotReady():
                if now_s - self._since > START_S:
                    reason = f"its input box could not be read for {START_S:g} s: {signal.reason or 'no prompt seen'}"
                    return self._fail(reason, now_s)
                return [LookIn(START_LOOK_S)]
            case DialogOpen():
                self._since = now_s
                return [*self._hold("dialog"), LookIn(HOLD_LOOK_S)]
            case Ready(busy=True) if not self.jobs[0].proved_by_record:
                if now_s - self._since > START_S:
                    return self._fail(f"it takes no command while it works, and did so for {START_S:g} s", now_s)
                return [LookIn(START_LOOK_S)]  # the end of the turn is on record before the screen has left it
            case Ready():
                self._since = now_s
                if self.jobs[0].message_id in self._withdraw and not self._is_ours(signal.draft):
                    return self._withdrawn(now_s)  # nothing of it is in the box, and Enter was never pressed
                if copy_mode:
                    return [*self._hold("copy_mode"), LookIn(HOLD_LOOK_S)]
                if signal.draft and self.jobs[0].uncertain and self._rules.landed(self.jobs[0].typed, signal.draft):
                    self.phase = Phase.LANDING  # pasted by an earlier life, not submitted: go on from there
                    return self._look(fresh=True)
                if signal.draft:
                    if self._is_ours(signal.draft) and self._clears < CLEARS_MAX:
                        return self._clear(signal.draft)
                    return [*self._hold("draft"), LookIn(HOLD_LOOK_S)]
                if self.jobs[0].uncertain and not self._proved_absent(busy=signal.busy, now_s=now_s):
                    return [LookIn(HOLD_LOOK_S)]
                if self._moved_unseen and self.jobs[0].entered:
                    return [LeftBehind(message_id=self.jobs[0].message_id), *self._done(now_s)]
                self._held.clear()
                self.phase = Phase.PASTING
                self._pastes += 1
                self._remember(_repeated(self.jobs[0].typed, self._pastes))
                self._remember(self.jobs[0].typed)
                return [Paste(self.jobs[0].typed.paste)]
            case _:
                assert_never(signal)

    def _proved_absent(self, *, busy: bool, now_s: float) -> bool:
        """All that an earlier life may have typed was typed before this one began: what is absent once, with the wait
        that a record may take, is absent for good. One wait proves it for every text that waits here.
        """
        if self._absence_proved:
            return True
        if busy or self._absent_since is None:
            self._absent_since = None if busy else now_s
            return False
        self._absence_proved = now_s - self._absent_since > RESOLVE_S
        return self._absence_proved

    def _clear(self, draft: str) -> list[PaneEffect]:
        keys = self._rules.clear_draft_keys(draft)
        if not keys:
            return [*self._hold("draft"), LookIn(HOLD_LOOK_S)]
        self.phase = Phase.CLEARING
        self._clears += 1
        self._clear_out = True
        return [Press(keys=keys, what="clear", guard="ours")]

    def _cleared(self, *, ok: bool, now_s: float) -> list[PaneEffect]:
        """The keys went out, or the box did not show a text of ours any more."""
        if self.phase is not Phase.CLEARING:
            return []
        self._clear_out = False
        self._since = now_s
        if not ok:
            self._after_clearing()
            return [LookIn(START_LOOK_S)]
        return self._look(fresh=True)

    def _after_clearing(self) -> None:
        """Behind an Enter only the record, or the emptied box, tells what became of the text."""
        self.phase = Phase.PROVING if self._enters else Phase.READYING

    def _clearing(self, signal: Signal, now_s: float) -> list[PaneEffect]:
        if self._clear_out:
            return []  # seen before the keys: no proof of what they did
        match signal:
            case Ready(draft=""):
                self.phase = Phase.READYING
                if self.jobs[0].message_id in self._withdraw:
                    return self._withdrawn(now_s)
                return self._look()
            case Ready():
                if now_s - self._since > LANDED_S:
                    self._after_clearing()  # again, or it is somebody's draft after all
            case DialogOpen() | NotReady():
                self._since = now_s
            case _:
                assert_never(signal)
        return [LookIn(HOLD_LOOK_S if isinstance(signal, DialogOpen) else START_LOOK_S)]

    def _landing(self, signal: Signal, *, copy_mode: bool, now_s: float) -> list[PaneEffect]:
        job = self.jobs[0]
        waited = now_s - self._since
        match signal:
            case Ready(draft=draft) if draft and self._rules.landed(job.typed, draft):
                if job.message_id in self._withdraw:
                    return self._clear(draft)
                if copy_mode:
                    return [*self._hold("copy_mode"), LookIn(HOLD_LOOK_S)]
                return self._enter()
            case Ready(draft=draft) if self._is_ours(draft) and self._clears < CLEARS_MAX:
                return self._clear(draft)  # a CLI that stalled took more than one of our pastes
            case Ready(draft=""):
                if waited > LANDED_S:
                    if job.message_id in self._withdraw:
                        return self._withdrawn(now_s)
                    if self._pastes >= PASTES_MAX:
                        return self._fail(f"{PASTES_MAX} pastes left the input box empty", now_s)
                    self.phase = Phase.READYING
                    return self._look()
            case Ready():
                if waited > LANDED_S and job.message_id in self._withdraw:
                    return self._withdrawn(now_s)  # whatever stands there is not ours, and Enter was never pressed
                if waited > LANDED_S:  # somebody types there too: theirs to finish; ours goes in when the box is empty
                    return [*self._hold("draft"), LookIn(HOLD_LOOK_S)]
            case DialogOpen():
                # what was pasted before or into a dialog may be swallowed: see what the box holds once it is closed
                self._since = now_s
                return [*self._hold("dialog"), LookIn(HOLD_LOOK_S)]
            case NotReady():
                if waited > START_S:
                    return self._fail("the input box could not be read after the paste", now_s)
            case _:
                assert_never(signal)
        self._delay = min(self._delay * 1.5, LAND_LOOK_MAX_S)
        return [LookIn(self._delay)]

    def _proving(self, signal: Signal, *, copy_mode: bool, now_s: float) -> list[PaneEffect]:
        job = self.jobs[0]
        match signal:
            case Ready(draft=draft) if draft and self._rules.landed(job.typed, draft):
                self._absent_since = None
                if copy_mode:
                    return [*self._hold("copy_mode"), LookIn(HOLD_LOOK_S)]
                again_s = min(ENTER_AGAIN_S * 2 ** (self._enters - 1), ENTER_AGAIN_MAX_S)
                waited_s = now_s - self._entered_at
                if waited_s < again_s:
                    return [LookIn(max(LAND_LOOK_S, min(again_s - waited_s, LAND_LOOK_MAX_S)))]
                if job.message_id in self._withdraw:
                    if self._clears >= CLEARS_MAX:
                        return self._fail("the text could not be taken back out of the input box", now_s)
                    return self._clear(draft)
                if self._enters >= ENTERS_MAX:
                    return self._fail(f"{ENTERS_MAX} times Enter did not submit the text", now_s)
                return self._enter()
            case Ready(busy=busy):
                if not job.proved_by_record:
                    return [Delivered(message_id=job.message_id), *self._done(now_s)]
                if busy:
                    self._absent_since = None
                elif self._absent_since is None:
                    self._absent_since = now_s
                elif job.message_id in self._withdraw:
                    if now_s - self._absent_since > TAKEN_BACK_S:
                        return self._withdrawn(now_s)
                elif now_s - self._absent_since > ABSENT_S:
                    why = f"idle, with an empty input box and nothing on record for {ABSENT_S:g} s after Enter"
                    return self._fail(why, now_s)
            case DialogOpen() | NotReady():
                if not job.proved_by_record and isinstance(signal, DialogOpen):
                    return [Delivered(message_id=job.message_id), *self._done(now_s)]
                self._absent_since = None
            case _:
                assert_never(signal)
        self._delay = min(self._delay * 1.5, PROOF_LOOK_MAX_S)
        return [LookIn(self._delay)]

    # --- interrupts, dialogs ----------------------------------------------------------------------------------

    def _try_interrupt(self, signal: Signal, *, copy_mode: bool) -> list[PaneEffect]:
        assert self._interrupt is not None
        turn_id = self._interrupt
        if self.phase is Phase.PRESSING:
            return []  # first what became of that Enter: an Escape right behind it would hide it
        if isinstance(signal, NotReady) or copy_mode:
            return [LookIn(HOLD_LOOK_S)]  # the turn's own grace bounds this: it asks again, then ends the CLI
        if self._answer is not None:
            return []  # its key is out: first what becomes of that, for a CLI may read both keys as one
        self._interrupt = None
        mine = bool(self.jobs) and self.jobs[0].turn_id == turn_id and self.phase is Phase.PROVING
        if isinstance(signal, Ready) and mine:
            job = self.jobs[0]
            if signal.draft and self._rules.landed(job.typed, signal.draft):
                self._withdraw.add(job.message_id)  # Enter was swallowed: the text is still ours to take back
                return []
        first = turn_id not in self._interrupted_once
        if isinstance(signal, Ready) and not signal.busy and not first:
            return [NothingToInterrupt(turn_id=turn_id)]
        self._interrupted_once.add(turn_id)
        if mine:
            # a CLI may put what was entered back into its box: that is to be taken out, never to be entered again
            self._withdraw.add(self.jobs[0].message_id)
        return [Interrupted(turn_id=turn_id), Press(keys=self._rules.interrupt_keys(), what="interrupt")]

    def _see_dialog(self, signal: Signal) -> list[PaneEffect]:
        if isinstance(signal, NotReady):
            return []
        seen = (dialog_id(signal, self._epoch), signal) if isinstance(signal, DialogOpen) else None
        before = self.dialog
        if (seen and seen[0]) == (before and before[0]):
            self._drawing = ""
            return []
        if seen is not None and seen[0] != self._drawing:
            self._drawing = seen[0]  # perhaps half drawn: told once it is seen twice alike; nothing is typed meanwhile
            return [LookIn(DRAWN_LOOK_S)]
        self._drawing = ""
        self.dialog = seen
        effects: list[PaneEffect] = []
        if before is not None:
            ours = before[0] == self._answered
            effects.append(DialogGone(dialog_id=before[0], answered=ours, token=self._answered_by if ours else ""))
            self._answered = self._answered_by = ""
        if seen is not None:
            effects.append(DialogSeen(dialog_id=seen[0], dialog=seen[1]))
        return effects

    def _try_answer(self, signal: Signal, now_s: float) -> list[PaneEffect]:
        """Towards the answer, one seen step at a time; it is applied when the dialog is seen gone."""
        assert self._answer is not None
        wanted = self._answer
        if isinstance(signal, NotReady) and wanted.pressed_s is None:
            return [LookIn(START_LOOK_S)]
        if not isinstance(signal, DialogOpen) or dialog_id(signal, self._epoch) != wanted.dialog_id:
            self._answer = None
            return [AnswerResult(token=wanted.token, applied=wanted.pressed_s is not None)]
        if wanted.pressed_s is not None and now_s - wanted.pressed_s < ANSWER_AGAIN_S:
            return [LookIn(START_LOOK_S)]
        if self._interrupt is not None:  # no key is out that could still be taken: none follows
            self._answer = None
            self._answered = self._answered_by = ""
            return [AnswerResult(token=wanted.token, applied=False)]
        stepping = wanted.stepped_s is not None and signal.cursor == wanted.stepped_from
        if stepping and wanted.stepped_s is not None and now_s - wanted.stepped_s < ANSWER_AGAIN_S:
            return [LookIn(START_LOOK_S)]  # the step is on its way: a second one would go too far
        keys = self._rules.answer_keys(signal, wanted.option)
        if not keys or wanted.steps >= ANSWER_STEPS_MAX:
            self._answer = None
            return [AnswerResult(token=wanted.token, applied=False)]
        final = not signal.cursor or keys == ("Enter",)
        if final:
            self._answered, self._answered_by = wanted.dialog_id, wanted.token
        self._answer = _Answer(
            token=wanted.token,
            dialog_id=wanted.dialog_id,
            option=wanted.option,
            steps=wanted.steps + 1,
            pressed_s=now_s if final else None,
            stepped_s=None if final else now_s,
            stepped_from=signal.cursor,
        )
        return [
            Press(keys=keys, what="answer", guard="dialog", dialog_id=wanted.dialog_id, cursor=signal.cursor),
            LookIn(START_LOOK_S),
        ]

    # --- shared -----------------------------------------------------------------------------------------------

    def guard(self, press: Press) -> Callable[[Signal], bool]:
        """The check that a guarded press makes on the last look before it; pure and short."""
        job = self.jobs[0] if self.jobs else None
        epoch, rules = self._epoch, self._rules
        ours = (*self._ours, job.typed) if job is not None else tuple(self._ours)

        def holds(signal: Signal) -> bool:
            match press.guard:
                case "landed":
                    return job is not None and isinstance(signal, Ready) and rules.landed(job.typed, signal.draft)
                case "ours":
                    return isinstance(signal, Ready) and any(rules.landed(text, signal.draft) for text in ours)
                case "dialog":
                    same = isinstance(signal, DialogOpen) and dialog_id(signal, epoch) == press.dialog_id
                    return same and isinstance(signal, DialogOpen) and signal.cursor == press.cursor
                case "":
                    return True
                case _:
                    assert_never(press.guard)

        return holds

    def _enter(self) -> list[PaneEffect]:
        self.phase = Phase.PRESSING
        self._entering = next(self._numbers)
        return [Press(keys=("Enter",), what="enter", guard="landed", number=self._entering)]

    def _look(self, *, fresh: bool = False) -> list[PaneEffect]:
        """Look, unless a look is on its way; ``fresh``: that one was asked for too early to tell what is wanted."""
        if (self._looking and not fresh) or self.phase in (Phase.UNOPENED, Phase.GONE):
            return []
        self._looking = next(self._numbers)
        return [Look(self._looking)]

    def _look_sooner(self, delay_s: float) -> list[PaneEffect]:
        """After that long, or now where an interrupt waits."""
        return [LookIn(delay_s)] if self._interrupt is None else self._look(fresh=True)

    def _next(self, now_s: float) -> list[PaneEffect]:
        if self.phase is not Phase.IDLE or not self.jobs:
            if self._interrupt is not None:
                return self._look()
            return [LookIn(BUSY_LOOK_S)] if self.unannounced and self.phase is Phase.IDLE else []
        self.phase = Phase.READYING
        self._since = now_s
        self._pastes = 0
        self._enters = 0
        self._clears = 0
        self._absent_since = None
        self._held.clear()
        return self._look(fresh=True)

    def _done(self, now_s: float) -> list[PaneEffect]:
        job = self.jobs.popleft()
        self._withdraw.discard(job.message_id)
        self._remember(job.typed)
        self.phase = Phase.IDLE
        return self._next(now_s)

    def _withdrawn(self, now_s: float) -> list[PaneEffect]:
        message_id = self.jobs[0].message_id
        return [WithdrawnReport(message_id=message_id), *self._done(now_s)]

    def _fail(self, reason: str, now_s: float) -> list[PaneEffect]:
        message_id = self.jobs[0].message_id
        failed = NotDelivered(message_id=message_id, kind="not_delivered", reason=reason)
        return [failed, *self._done(now_s)]

    def _is_ours(self, draft: str) -> bool:
        return bool(draft) and any(self._rules.landed(ours, draft) for ours in self._ours)

    def _remember(self, typed: TypedText) -> None:
        if typed not in self._ours:
            self._ours.append(typed)

    def _hold(self, reason: Literal["draft", "copy_mode", "dialog"]) -> list[PaneEffect]:
        if reason in self._held:
            return []
        self._held.add(reason)
        return [Held(reason=reason)]


__all__ = [
    "ABSENT_S",
    "ANSWER_AGAIN_S",
    "ANSWER_STEPS_MAX",
    "BUSY_LOOK_S",
    "CLEARS_MAX",
    "DRAWN_LOOK_S",
    "ENTERS_MAX",
    "ENTER_AGAIN_MAX_S",
    "ENTER_AGAIN_S",
    "HOLD_LOOK_S",
    "IDLE_LOOK_S",
    "LANDED_S",
    "LAND_LOOK_MAX_S",
    "LAND_LOOK_S",
    "OURS_MAX",
    "PASTES_MAX",
    "PERHAPS_S",
    "PROOF_LOOK_MAX_S",
    "PROOF_LOOK_S",
    "RESOLVE_S",
    "START_LOOK_S",
    "START_S",
    "TAKEN_BACK_S",
    "AnswerResult",
    "BecameReady",
    "Delivered",
    "DialogGone",
    "DialogSeen",
    "Held",
    "Interrupted",
    "Job",
    "LeftBehind",
    "Look",
    "LookIn",
    "NotDelivered",
    "NothingToInterrupt",
    "PaneCore",
    "PaneEffect",
    "Paste",
    "Phase",
    "Press",
    "Submitted",
    "TypingRules",
    "WithdrawnReport",
    "dialog_id",
]
