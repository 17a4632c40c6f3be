"""How a text gets into a CLI's input box, with proof at each step (C24, C25). Pure; owned by one PaneActor.

The steps of one delivery: *ready* (the box takes text, and holds nobody's draft) -> paste -> *landed* (the box shows
exactly our text) -> Enter, guarded by one more look in the same round trip -> *submitted*, which only the record
proves. A step is repeated only when it is proved missing: Enter while the box still holds our text; the paste while
the box is empty. Nothing is submitted that was not seen landed, so nothing is submitted twice. What the CLI made of a
paste beyond recognition is taken out of the box again, and the text is not delivered. While a dialog is
open nothing is typed, except a host's own answer to that very dialog (:mod:`~lastword.actors.core.typing_dialogs`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from itertools import count
from typing import Literal, assert_never

from lastword.actors.core.adapter import DialogOpen, NotReady, Ready, Signal, TypedText
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.likeness import perhaps
from lastword.actors.core.typing_bounds import (
    ABSENT_S,
    BUSY_LOOK_S,
    CLEARS_MAX,
    COMMAND_LOOK_S,
    ENTER_AGAIN_MAX_S,
    ENTER_AGAIN_S,
    ENTERS_MAX,
    HOLD_LOOK_S,
    IDLE_LOOK_S,
    LAND_EVEN_S,
    LAND_LOOK_MAX_S,
    LAND_LOOK_S,
    LANDED_S,
    PASTES_MAX,
    PROOF_LOOK_MAX_S,
    PROOF_LOOK_S,
    RESOLVE_S,
    START_LOOK_S,
    START_S,
    TAKEN_BACK_S,
)
from lastword.actors.core.typing_dialogs import Dialogs
from lastword.actors.core.typing_effects import (
    BecameReady,
    Delivered,
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
from lastword.actors.core.typing_ours import Ours


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
        self.jobs: list[Job] = []
        self._dialogs = Dialogs(rules, epoch)
        self._ours = Ours(rules)
        self._interrupt: TurnId | None = None
        self._interrupted_once: set[TurnId] = set()
        self._withdraw: set[MessageId] = set()
        self._since = 0.0
        self._absent_since: float | None = None
        self._absence_proved = False
        self._moved_unseen = False
        self._delay = 0.0
        self._pastes = 0
        self._enters = 0
        self._entered_at = 0.0
        self._clears = 0
        self._first_seen = ""
        self._changes = False
        self._unrecognised = False
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
            self._ours.extend([TypedText(text=command, paste=command.encode(), rewritten=command)])
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
        effects, taken = self._dialogs.answer(token, wanted_dialog, option)
        return [*effects, *self._look()] if taken else effects

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
        return self._dialogs.answered_by_exit()

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
        signal = self._dialogs.believe(signal, now_s)
        effects = self._dialogs.see(signal)
        effects += self._dialogs.towards_the_answer(signal, now_s, interrupting=self._interrupt is not None)
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
                if self._dialogs.open is not None or isinstance(signal, NotReady):
                    effects.append(LookIn(HOLD_LOOK_S))  # a dialog may close without a word in the registry
                elif self.unannounced and not any(isinstance(effect, LookIn) for effect in effects):
                    busy = isinstance(signal, Ready) and signal.busy
                    effects.append(LookIn(BUSY_LOOK_S if busy else IDLE_LOOK_S))
            case Phase.PASTING | Phase.PRESSING | Phase.UNOPENED | Phase.GONE:
                pass
            case _:
                assert_never(self.phase)
        return effects

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
        self._first_seen, self._changes = "", False
        return self._look(fresh=True) if ok else [LookIn(HOLD_LOOK_S)]

    def pressed(self, press: Press, *, ok: bool, now_s: float) -> list[PaneEffect]:
        """Keys went out, or the guard (or tmux) refused them."""
        if press.what == "clear":
            return self._cleared(ok=ok, now_s=now_s)
        if press.what == "answer" and not ok:
            self._dialogs.not_pressed()
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
        return [*report, *self._look_sooner(PROOF_LOOK_S if job.proved_by_record else COMMAND_LOOK_S)]

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
                    job = self.jobs.pop(0)
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
                if self.jobs[0].message_id in self._withdraw and not self._ours.shown_by(signal.draft):
                    return self._withdrawn(now_s)  # nothing of it is in the box, and Enter was never pressed
                if self._unrecognised and (self._clears >= CLEARS_MAX or not self._ours.shown_by(signal.draft)):
                    return self._fail("the input box showed another text than the one that was pasted", now_s)
                if copy_mode:
                    return [*self._hold("copy_mode"), LookIn(HOLD_LOOK_S)]
                if signal.draft and self.jobs[0].uncertain and self._rules.landed(self.jobs[0].typed, signal.draft):
                    self.phase = Phase.LANDING  # pasted by an earlier life, not submitted: go on from there
                    self._delay = LAND_LOOK_S
                    return self._look(fresh=True)
                if signal.draft:
                    if self._ours.shown_by(signal.draft) and self._clears < CLEARS_MAX:
                        return self._clear(signal.draft)
                    return [*self._hold("draft"), LookIn(HOLD_LOOK_S)]
                if self.jobs[0].uncertain and not self._proved_absent(busy=signal.busy, now_s=now_s):
                    return [LookIn(HOLD_LOOK_S)]
                if self._moved_unseen and self.jobs[0].entered:
                    return [LeftBehind(message_id=self.jobs[0].message_id), *self._done(now_s)]
                self._held.clear()
                self.phase = Phase.PASTING
                self._pastes += 1
                self._ours.pasted(self.jobs[0].typed, self._pastes)
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
            case Ready(draft=draft) if self._ours.shown_by(draft) and self._clears < CLEARS_MAX:
                return self._clear(draft)  # a CLI that stalled took more than one of our pastes
            case Ready(draft=""):
                if waited > LANDED_S:
                    if job.message_id in self._withdraw:
                        return self._withdrawn(now_s)
                    if self._pastes >= PASTES_MAX:
                        return self._fail(f"{PASTES_MAX} pastes left the input box empty", now_s)
                    self.phase = Phase.READYING
                    return self._look()
            case Ready(draft=draft):
                self._first_seen = self._first_seen or draft
                self._changes = self._changes or draft != self._first_seen
                if waited > LANDED_S and not self._changes and not copy_mode and perhaps(draft, job.typed.rewritten):
                    # it came in one piece with our paste, and nobody goes on typing: it is what the CLI made of ours
                    self._unrecognised = True
                    self._ours.remember(TypedText(text=draft, paste=draft.encode(), rewritten=draft))
                    return self._clear(draft)
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
        if waited >= LAND_EVEN_S:
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

    # --- interrupts -------------------------------------------------------------------------------------------

    def _try_interrupt(self, signal: Signal, *, copy_mode: bool) -> list[PaneEffect]:
        assert self._interrupt is not None
        turn_id = self._interrupt
        if self.phase is Phase.PRESSING:
            return []  # first what became of that Enter: an Escape right behind it would hide it
        if isinstance(signal, NotReady) or copy_mode:
            return [LookIn(HOLD_LOOK_S)]  # the turn's own grace bounds this: it asks again, then ends the CLI
        if self._dialogs.answering:
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

    # --- shared -----------------------------------------------------------------------------------------------

    def guard(self, press: Press) -> Callable[[Signal], bool]:
        """The check that a guarded press makes on the last look before it; pure and short."""
        job = self.jobs[0] if self.jobs else None
        return self._ours.guard(press, None if job is None else job.typed, self._epoch)

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
        self._unrecognised = False
        self._absent_since = None
        self._held.clear()
        return self._look(fresh=True)

    def _done(self, now_s: float) -> list[PaneEffect]:
        job = self.jobs.pop(0)
        self._withdraw.discard(job.message_id)
        self._ours.remember(job.typed)
        self.phase = Phase.IDLE
        return self._next(now_s)

    def _withdrawn(self, now_s: float) -> list[PaneEffect]:
        message_id = self.jobs[0].message_id
        return [WithdrawnReport(message_id=message_id), *self._done(now_s)]

    def _fail(self, reason: str, now_s: float) -> list[PaneEffect]:
        message_id = self.jobs[0].message_id
        failed = NotDelivered(message_id=message_id, kind="not_delivered", reason=reason)
        return [failed, *self._done(now_s)]

    def _hold(self, reason: Literal["draft", "copy_mode", "dialog"]) -> list[PaneEffect]:
        if reason in self._held:
            return []
        self._held.add(reason)
        return [Held(reason=reason)]


__all__ = ["Job", "PaneCore", "Phase"]
