"""Admission, order and binding: which message belongs to which turn, by the provider's own record.

Pure and single-threaded: owned by one SessionActor. It answers with effects, which the actor carries out in order.

Rules
-----
- A session is idle when no turn of it is open and no message waits. A message for an idle session starts a turn and
  gets its turn id at once; any other is *pending* until the record binds it (C20).
- A prompt in the record is ours when it is the text of the first message that we delivered and that is not bound
  yet. The CLI may have merged several of them into one prompt: the first starts the turn, the others joined it.
  Where none is it to the letter, one that is it but for what a terminal program may do to any text is taken, and then
  the one that our Enter alone can have made (:meth:`SessionCore._only_candidate`, ADR 0019).
  A prompt that nobody sent through us gets a turn of its own (C19). While one stands behind our Enter for a message,
  absence of that message's own prompt proves nothing: it is ``lost``, never ``not_delivered``.
- After a terminal fact nothing more is read out until that turn is settled, so a turn's completion always comes
  before the next turn's start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from lastword.actors.core import turn as turns
from lastword.actors.core.adapter import TypedText
from lastword.actors.core.bounded import forget_oldest
from lastword.actors.core.errors import RejectedKind
from lastword.actors.core.facts import (
    AssistantSaid,
    CliStatusSeen,
    CliVersionSeen,
    CompactionRecorded,
    Fact,
    InputDropped,
    InputJoined,
    InputQueued,
    PromptRecorded,
    ProviderRetrying,
    RecordExhausted,
    ToolFinished,
    ToolStarted,
    TurnClosed,
    TurnContinued,
    TurnInherited,
    UnknownRecord,
)
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.likeness import folded, perhaps
from lastword.actors.core.limits import WAITING_MAX
from lastword.actors.core.outcome import Evidence, Origin
from lastword.actors.core.pending import Pending, Stage, cover, record_of
from lastword.actors.core.session_effects import (
    Count,
    Gone,
    Moved,
    OpenTurn,
    Proved,
    Rebound,
    SessionEffect,
    ToTurn,
    Undelivered,
)

RECORD_SKEW_S = 1.0
"""How much earlier than our own stamp of a message the CLI may stamp its record of it. One machine, one clock; where
that clock was set back since, by so much more (:meth:`SessionCore.clock_seen`)."""
OUR_ENTER_S = 2.0
"""So long behind our Enter, by the CLI's own stamp, a prompt that is like our text may be the one that it made (a
record follows Enter within 0.7 s on a loaded machine). Later ones are left to whoever typed them."""
UNOWNED_MAX = 100
"""Prompts that nobody sent through us and whose stamps are remembered."""
CLOSED_KEPT_MAX = 1_000
"""Settled native turns that are remembered; of older ones the journal is asked when the record shows them again."""
STRANGERS_MAX = 100
"""Messages in the CLI's queue that nobody sent through us and that are remembered: it may merge one with ours."""
READ_BEFORE_MAX = 1_000
"""Records of the CLI's queue that are remembered: read again, one says nothing of a later message with that text."""
FOREIGN_ORIGINS: frozenset[str] = frozenset({"task_notification", "hook", "local_command", "resubmitted_steer"})


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a message. ``refused`` is an error kind, or "" when it is taken."""

    starts_turn: bool = False
    refused: RejectedKind | None = None
    reason: str = ""


class SessionCore:
    """State of one session's messages and native turns.

    Args:
        matches: whether a recorded input is that typed text (the adapter's rule).
        mint: makes a new turn id.
        native_session: the provider's conversation.
        was_settled: whether a native turn that is not remembered here was settled: a transcript that is read again must
            not open any of them anew. Asked only while this may have forgotten one: see :attr:`remembers_all`.
        key: by what the record names a message; "" where only its text tells.
    """

    def __init__(
        self,
        matches: Callable[[TypedText, str], bool],
        mint: Callable[[], TurnId],
        native_session: str,
        was_settled: Callable[[str], bool] = lambda _: False,
        key: Callable[[MessageId], str] = lambda _: "",
    ) -> None:
        self._matches = matches
        self._key = key
        self._mint = mint
        self._was_settled = was_settled
        self.native_session = native_session
        self.cli_version = ""
        self.cli_status: CliStatusSeen | None = None
        self.history_before: float | None = None
        """What the record stamps before this is history: of before this session, or before the CLI was moved there."""
        self._clock_s: float | None = None
        self.pending: dict[MessageId, Pending] = {}
        self.open: dict[TurnId, str] = {}
        """Open turns, in order of acceptance or binding, with the native turn of each ("" while unbound)."""
        self._strangers: list[Pending] = []
        self._unowned: list[float | None] = []
        self._closed_natives: dict[str, TurnId] = {}
        self.remembers_all = False
        """Whether every settled turn of the session was settled here, and none was forgotten."""
        self._settling: set[TurnId] = set()
        self._backlog: deque[Fact | turns.Superseded | Moved] | None = None  # made when there is one: 0.75 KiB
        self._read_before: dict[str, int] = {}
        """Records of the CLI's queue, and how many messages each of them told of."""

    # --- the clock ------------------------------------------------------------------------------------------

    def clock_seen(self, clock_s: float) -> None:
        """Wall minus monotonic clock, now. It falls when the wall clock is set back, and then records of what was
        accepted before bear stamps from before: time of day is compared in the terms of the clock that stamped it.
        """
        if self.history_before is not None and self._clock_s is not None:
            self.history_before += min(0.0, clock_s - self._clock_s)
        self._clock_s = clock_s
        for pending in self.pending.values():
            if pending.clock_s is None:
                pending.clock_s = clock_s
            pending.set_back_s = max(pending.set_back_s, pending.clock_s - clock_s)

    # --- admission ------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """No turn is open and no message waits."""
        return not self.open and not self.pending

    def admit(self, *, run: bool, waiting_max: int = WAITING_MAX) -> Admission:
        """Whether a message may be taken now, and how; ``run`` refuses where a turn is open or a message waits,
        ``waiting_max`` where so many do.
        """
        if run and not self.idle:
            return Admission(refused="busy", reason="a turn is being delivered or is active")
        if len(self.pending) >= waiting_max:
            return Admission(refused="overloaded", reason=f"{waiting_max} messages of this session are waiting")
        return Admission(starts_turn=self.idle)

    def accept(
        self, message_id: MessageId, typed: TypedText, turn_id: TurnId | None, *, accepted_at: float = 0.0
    ) -> None:
        """Note a message; ``turn_id`` where it starts a turn, ``accepted_at`` in Unix seconds."""
        self.pending[message_id] = Pending(
            message_id=message_id, typed=typed, turn_id=turn_id, accepted_at=accepted_at, clock_s=self._clock_s
        )
        if turn_id is not None:
            self.open[turn_id] = ""

    def restore(
        self,
        message_id: MessageId,
        typed: TypedText,
        turn_id: TurnId | None,
        stage: Stage,
        *,
        accepted_at: float = 0.0,
        clock_s: float | None = None,
    ) -> None:
        """Note a message of an earlier life. How far it really came, only the record tells: any but ``queued`` is taken
        as handed to the pane, so that its prompt is recognised.
        """
        self.pending[message_id] = Pending(
            message_id=message_id, typed=typed, turn_id=turn_id, stage=stage, accepted_at=accepted_at, clock_s=clock_s
        )
        if turn_id is not None:
            self.open[turn_id] = ""

    def refuse(self, message_id: MessageId) -> None:
        """Take back an ``accept`` whose commit failed."""
        pending = self.pending.pop(message_id, None)
        if pending is not None and pending.turn_id is not None:
            self.open.pop(pending.turn_id, None)

    def interrupted_turn(self) -> TurnId | None:
        """Which turn an interrupt means: the one that runs, else the one that is being delivered."""
        return next(iter(self.interruptible()), None)

    def interruptible(self) -> list[TurnId]:
        """Open turns whose end is not known: those that run first."""
        going = [turn_id for turn_id in self.open if turn_id not in self._settling]
        return sorted(going, key=lambda turn_id: not self.open[turn_id])

    def settling(self, turn_id: TurnId) -> bool:
        """Whether its end is known and on its way to the journal: there is nothing to interrupt any more."""
        return turn_id in self._settling

    # --- delivery -------------------------------------------------------------------------------------------

    def typing(self, message_id: MessageId) -> None:
        """The message went to the pane."""
        self._advance(message_id, "typing")

    def submitted(
        self, message_id: MessageId, rewritten: tuple[str, ...], entered_at: float | None = None
    ) -> list[SessionEffect]:
        """Enter was pressed for it, on a box that showed it and nothing else; ``entered_at``: see :class:`Pending`."""
        pending = self._advance(message_id, "submitted")
        if pending is not None and pending.entered_at is None:
            pending.entered_at = entered_at
        if pending is not None and pending.turn_id is not None:
            return [ToTurn(turn_id=pending.turn_id, event=turns.Submitted(rewritten=rewritten))]
        return []

    def unwanted(self, message_id: MessageId) -> bool:
        """Its turn asks to withdraw it. True where nothing was typed, so that it can be withdrawn at once."""
        pending = self.pending.get(message_id)
        if pending is None:
            return False
        pending.unwanted = True
        return pending.stage == "waiting"

    def withdraw(self, message_id: MessageId) -> list[SessionEffect]:
        """It was never typed and will not be."""
        pending = self.pending.pop(message_id, None)
        if pending is None:
            return []
        if pending.turn_id is not None:
            self._settling.add(pending.turn_id)
            return [ToTurn(turn_id=pending.turn_id, event=turns.Withdrawn())]
        return [Undelivered(message_id=message_id, reason="withdrawn")]

    def undeliverable(
        self, message_id: MessageId, kind: Literal["not_delivered", "launch_failed"], reason: str
    ) -> list[SessionEffect]:
        """Proved: it never became a prompt. One that nobody owns behind our Enter for it is against that proof."""
        if self._contested(self.pending.get(message_id)):
            return self.left_behind(
                message_id, "a prompt with another text was recorded behind our Enter, and none of it"
            )
        return self._undeliverable(message_id, kind, reason)

    def _undeliverable(
        self, message_id: MessageId, kind: Literal["not_delivered", "launch_failed"], reason: str
    ) -> list[SessionEffect]:
        pending = self.pending.pop(message_id, None)
        if pending is None:
            return []
        if pending.turn_id is not None:
            self._settling.add(pending.turn_id)
            event = turns.Undeliverable(kind=kind, reason=reason)
            return [ToTurn(turn_id=pending.turn_id, event=event)]
        return [Undelivered(message_id=message_id, reason=kind)]

    def _contested(self, pending: Pending | None) -> bool:
        if pending is None or pending.entered_at is None:
            return False
        since = pending.entered_at - pending.set_back_s
        return any(stamp is None or stamp >= since for stamp in self._unowned)

    def left_behind(self, message_id: MessageId, why: str = "") -> list[SessionEffect]:
        """It was entered, and its record, if there is one, is none that will ever be known for it."""
        pending = self.pending.pop(message_id, None)
        if pending is None:
            return []
        if pending.turn_id is not None:
            self._settling.add(pending.turn_id)
            return [ToTurn(turn_id=pending.turn_id, event=turns.Superseded(why=why))]
        return [Undelivered(message_id=message_id, reason="superseded")]

    def _advance(self, message_id: MessageId, stage: Stage) -> Pending | None:
        order: tuple[Stage, ...] = ("waiting", "typing", "submitted", "queued")
        pending = self.pending.get(message_id)
        if pending is not None and order.index(stage) > order.index(pending.stage):
            pending.stage = stage
        return pending

    # --- facts ----------------------------------------------------------------------------------------------

    def read(self, facts: Sequence[Fact | turns.Superseded]) -> list[SessionEffect]:
        """Take facts in the order of the record. A record that is read again (the file was replaced, or another reader
        took over) is told again, and is passed over where only its text would say which message it is about.
        """
        told: dict[str, int] = {}
        backlog = self._backlog = self._backlog or deque()
        for fact in facts:
            if not isinstance(fact, InputQueued | InputJoined | InputDropped) or fact.key:
                backlog.append(fact)
                continue
            record = record_of(fact)
            told[record] = told.get(record, 0) + 1  # one record may tell of two messages with one text
            if told[record] > self._read_before.get(record, 0):
                self.read_before(record, told[record])
                backlog.append(fact)
        return self._drain()

    def read_before(self, record: str, times: int = 1) -> None:
        """That record was taken, in this life or an earlier one."""
        self._read_before[record] = times
        forget_oldest(self._read_before, READ_BEFORE_MAX)

    def finished(self, turn_id: TurnId) -> list[SessionEffect]:
        """That turn is settled and committed."""
        self._settling.discard(turn_id)
        native = self.open.pop(turn_id, "")
        if native:
            self._remember_closed(native, turn_id)
        for message_id, pending in list(self.pending.items()):
            if pending.turn_id == turn_id:
                del self.pending[message_id]
        return self._drain()

    def known_native(self, native_turn: str, turn_id: TurnId) -> None:
        """Tell the binding of an open turn of an earlier life: reading its records again binds nothing twice."""
        self.open[turn_id] = native_turn

    def _remember_closed(self, native_turn: str, turn_id: TurnId) -> None:
        self._closed_natives[native_turn] = turn_id
        self.remembers_all = self.remembers_all and len(self._closed_natives) <= CLOSED_KEPT_MAX
        forget_oldest(self._closed_natives, CLOSED_KEPT_MAX)

    def _over(self, native_turn: str) -> bool:
        """Whether that native turn was settled, in this life or an earlier one."""
        if native_turn in self._closed_natives:
            return True
        if self.remembers_all or not self._was_settled(native_turn):
            return False
        self._remember_closed(native_turn, TurnId(""))
        return True

    @property
    def ending(self) -> frozenset[TurnId]:
        """Turns that were told their end and have not settled yet; nothing more is read out until they have."""
        return frozenset(self._settling)

    @property
    def backlog(self) -> int:
        """Facts that wait for a turn to settle."""
        return len(self._backlog or ())

    def _drain(self) -> list[SessionEffect]:
        effects: list[SessionEffect] = []
        while self._backlog and not self._settling:
            effects += self._one(self._backlog.popleft())
        self._backlog = self._backlog or None
        return effects

    def _one(self, fact: Fact | turns.Superseded | Moved) -> list[SessionEffect]:
        match fact:
            case PromptRecorded():
                return self._prompt(fact)
            case InputQueued():
                return self._queued(fact)
            case InputJoined():
                return self._joined(fact)
            case InputDropped():
                return self._dropped(fact)
            case AssistantSaid() | ToolStarted() | ToolFinished() | ProviderRetrying() | TurnContinued():
                return self._to_native(fact.native_turn, fact)
            case TurnClosed():
                return self._closed(fact)
            case TurnInherited():
                return self._superseded(
                    [turn_id for turn_id, native in self.open.items() if native == fact.native_turn]
                )
            case CompactionRecorded():
                return []
            case CliVersionSeen():
                self.cli_version = fact.version
                return []
            case CliStatusSeen():
                return self._status(fact)
            case UnknownRecord():
                return [Count(what=fact.what, times=fact.times)]
            case RecordExhausted():
                return self._exhausted(fact)
            case turns.Superseded():
                assert self._backlog is not None
                self._backlog.appendleft(Moved())  # behind the settling of what it ends
                return self._superseded([turn_id for turn_id, native in self.open.items() if native])
            case Moved():
                return [fact]

    def _superseded(self, bound: list[TurnId]) -> list[SessionEffect]:
        self._settling.update(bound)
        return [ToTurn(turn_id=turn_id, event=turns.Superseded()) for turn_id in bound]

    def _prompt(self, fact: PromptRecorded) -> list[SessionEffect]:
        bound = turns.Bound(prompt=fact, native_session=self.native_session, cli_version=self.cli_version)
        if fact.native_turn in self.open.values() or self._over(fact.native_turn):
            owners = [turn_id for turn_id, native in self.open.items() if native == fact.native_turn]
            return [ToTurn(turn_id=turn_id, event=bound) for turn_id in owners]  # read before
        native_at = fact.evidence.native_at
        ours = [] if fact.origin in FOREIGN_ORIGINS else self._match(fact, strangers=True)
        by_text = bool(ours)
        if not ours and fact.taken == "typed":
            ours = self._only_candidate(fact)
        if not ours and self.history_before is not None and native_at is not None and native_at < self.history_before:
            self._remember_closed(fact.native_turn, TurnId(""))
            return [Count(what="history")]  # of a conversation older than this session, or that the CLI was moved into
        if not ours:
            if not fact.origin and fact.taken in {"typed", "queued"}:
                self._unowned.append(native_at)
                del self._unowned[:-UNOWNED_MAX]
            opened = self._open(None, self._foreign_origin(fact), bound)
            return [opened, *self._known_status(opened.turn_id)]
        first, *others = ours
        del self.pending[first.message_id]
        effects: list[SessionEffect] = [Proved(message_id=first.message_id, stage="submitted", evidence=fact.evidence)]
        if not by_text:
            effects.append(Count(what="undeclared_rewriting"))
        if first.turn_id is not None:
            self.open[first.turn_id] = fact.native_turn
            if first.stage == "typing":  # the record was faster than the report
                effects.append(ToTurn(turn_id=first.turn_id, event=turns.Submitted(rewritten=first.typed.notes)))
            effects += [ToTurn(turn_id=first.turn_id, event=bound), *self._known_status(first.turn_id)]
        else:
            opened = self._open(first.message_id, "host", bound)
            effects += [opened, *self._known_status(opened.turn_id)]
        for other in others:
            effects.append(Proved(message_id=other.message_id, stage="submitted", evidence=fact.evidence))
            effects += self._join_native(other, fact.native_turn, fact.evidence)
        return effects

    def _known_status(self, turn_id: TurnId) -> list[SessionEffect]:
        """What the CLI said of itself before the turn was known: the registry may be read before the record is."""
        return [ToTurn(turn_id=turn_id, event=self.cli_status)] if self.cli_status is not None else []

    def _open(self, message_id: MessageId | None, origin: Origin, bound: turns.Bound) -> OpenTurn:
        turn_id = self._mint()
        self.open[turn_id] = bound.prompt.native_turn
        return OpenTurn(turn_id=turn_id, message_id=message_id, origin=origin, bound=bound)

    def _foreign_origin(self, fact: PromptRecorded) -> Origin:
        match fact.origin:
            case "task_notification":
                return "task_notification"
            case "hook":
                return "hook"
            case "local_command":
                return "local_command"
            case "resubmitted_steer":
                return "resubmitted_steer"
            case _:
                return "human_terminal"

    def _queued(self, fact: InputQueued) -> list[SessionEffect]:
        matched = self._match(fact, stages=("typing", "submitted"))
        for pending in matched or self._only_candidate(fact):
            pending.stage, pending.recorded = "queued", fact.text
            effects: list[SessionEffect] = []
            if pending.turn_id is not None:  # the record was faster than the pane's report, or a person pressed Enter
                submitted = turns.Submitted(rewritten=pending.typed.notes)
                effects.append(ToTurn(turn_id=pending.turn_id, event=submitted))
            proved = Proved(
                message_id=pending.message_id, stage="queued", evidence=fact.evidence, record=record_of(fact)
            )
            return [*effects, proved]
        if fact.key:
            return []  # it cannot be merged with one of ours unseen: what it is merged with is named too
        stranger = TypedText(text=fact.text, paste=b"", rewritten=fact.text)
        self._strangers.append(Pending(message_id=MessageId(""), typed=stranger, turn_id=None, stage="queued"))
        del self._strangers[:-STRANGERS_MAX]
        return []

    def _forget_stranger(self, text: str) -> None:
        """That message left the CLI's queue, and was none of ours."""
        found = next((each for each in self._strangers if each.typed.text == text), None)
        if found is not None:
            self._strangers.remove(found)

    def _joined(self, fact: InputJoined) -> list[SessionEffect]:
        effects: list[SessionEffect] = []
        for pending in self._match(fact):
            proved = Proved(
                message_id=pending.message_id, stage="submitted", evidence=fact.evidence, record=record_of(fact)
            )
            effects += [proved, *self._join_native(pending, fact.native_turn, fact.evidence)]
        if not effects:
            self._forget_stranger(fact.text)
        return effects

    def _join_native(self, pending: Pending, native_turn: str, evidence: Evidence) -> list[SessionEffect]:
        self.pending.pop(pending.message_id, None)
        host = next((turn_id for turn_id, native in self.open.items() if native == native_turn), None)
        if pending.turn_id is not None and host is None and self._over(native_turn):
            self._settling.add(pending.turn_id)
            late = turns.Undeliverable(kind="not_delivered", reason="the CLI took it into a turn that was over")
            return [ToTurn(turn_id=pending.turn_id, event=late)]
        if pending.turn_id is not None:  # it owns a turn, but the CLI was in another: that one's end is its end
            self.open[pending.turn_id] = native_turn
            moved = turns.Adopted(native_turn=native_turn, from_turn_id=host, evidence=evidence)
            return [ToTurn(turn_id=pending.turn_id, event=moved)]
        if host is None:
            return [Undelivered(message_id=pending.message_id, reason="joined_unknown_turn")]
        return [ToTurn(turn_id=host, event=turns.Joined(message_id=pending.message_id, evidence=evidence))]

    def _dropped(self, fact: InputDropped) -> list[SessionEffect]:
        effects: list[SessionEffect] = []
        for pending in self._match(fact, stages=("queued", "submitted", "typing")):
            proved = Proved(  # the CLI had it: the pane must not try again
                message_id=pending.message_id, stage="submitted", evidence=fact.evidence, record=record_of(fact)
            )
            effects.append(proved)
            effects += self._undeliverable(pending.message_id, "not_delivered", f"the CLI dropped it: {fact.reason}")
        if not effects:
            self._forget_stranger(fact.text)
        return effects

    def _to_native(self, native_turn: str, event: turns.TurnEvent) -> list[SessionEffect]:
        owner = next((turn_id for turn_id, native in self.open.items() if native == native_turn), None)
        if owner is None:
            return [Count(what="late_fact" if native_turn in self._closed_natives else "fact_of_unknown_turn")]
        return [ToTurn(turn_id=owner, event=event)]

    def _closed(self, fact: TurnClosed) -> list[SessionEffect]:
        owners = [turn_id for turn_id, native in self.open.items() if native == fact.native_turn]
        if not owners:
            late = fact.native_turn in self._closed_natives
            return [Count(what="late_terminal" if late else "terminal_of_unknown_turn")]
        self._settling.update(owners)
        return [ToTurn(turn_id=turn_id, event=fact) for turn_id in owners]

    def moved(self, native_session: str, seen_at: float | None) -> list[SessionEffect]:
        """Our own CLI shows another conversation, and nothing of ours runs in the one before."""
        previous, self.native_session = self.native_session, native_session
        return [Rebound(native_session=native_session, previous=previous, seen_at=seen_at)]

    def _status(self, fact: CliStatusSeen) -> list[SessionEffect]:
        seen_at = self.cli_status.updated_at if self.cli_status is not None else None
        self.cli_status = fact
        effects: list[SessionEffect] = []
        if fact.native_session and fact.native_session != self.native_session:
            effects.append(
                Rebound(
                    native_session=fact.native_session,
                    previous=self.native_session,
                    seen_at=seen_at,
                )
            )
            self.native_session = fact.native_session
        return effects + [ToTurn(turn_id=turn_id, event=fact) for turn_id in self.open]

    def _exhausted(self, fact: RecordExhausted) -> list[SessionEffect]:
        effects: list[SessionEffect] = []
        redeliver: list[MessageId] = []
        for pending in list(self.pending.values()):
            if pending.stage in ("waiting", "typing") and pending.unwanted:
                effects += self.withdraw(pending.message_id)
            elif pending.stage in ("waiting", "typing"):
                pending.stage = "waiting"
                redeliver.append(pending.message_id)
            elif pending.turn_id is None:
                del self.pending[pending.message_id]
                effects.append(Undelivered(message_id=pending.message_id, reason="provider_exited"))
        untyped = {pending.turn_id for pending in self.pending.values() if pending.stage == "waiting"}
        for turn_id in self.open:
            if turn_id not in untyped and turn_id not in self._settling:
                effects.append(ToTurn(turn_id=turn_id, event=fact))
                self._settling.add(turn_id)
        effects.append(Gone(redeliver=tuple(redeliver), exit_status=fact.exit_status))
        return effects

    # --- matching -------------------------------------------------------------------------------------------

    def _match(
        self,
        fact: PromptRecorded | InputQueued | InputJoined | InputDropped,
        stages: tuple[Stage, ...] = ("typing", "submitted", "queued"),
        *,
        strangers: bool = False,
    ) -> list[Pending]:
        """The first delivered message with this text, or those that the CLI merged into it, in the order merged; with
        ``strangers``, also together with queued ones that are none of ours, which this is the end of.

        Their order in the record need not be ours: of two equal texts the CLI may have dropped the other one.

        A record from before a message was accepted is no record of it, whatever its text. One that names the message
        is of that message and of no other.
        """
        recorded, native_at = fact.text, fact.evidence.native_at
        if fact.key:
            return [
                pending
                for pending in self.pending.values()
                if pending.stage in stages and self._key(pending.message_id) == fact.key
            ]
        delivered = [
            pending
            for pending in self.pending.values()
            if pending.stage in stages
            and (native_at is None or native_at >= pending.accepted_at - pending.set_back_s - RECORD_SKEW_S)
        ]
        for pending in delivered:
            if self._matches(pending.typed, recorded) or (pending.recorded and pending.recorded == recorded):
                return [pending]
        by_text: dict[str, deque[Pending]] = {}
        for pending in (*delivered, *(self._strangers if strangers else ())):
            text = pending.recorded or pending.typed.rewritten
            by_text.setdefault("".join(text.split()), deque()).append(pending)
        by_text.pop("", None)
        covered = cover("".join(recorded.split()), by_text)
        for pending in covered:
            if not pending.message_id:
                self._strangers.remove(pending)
        alike = folded(recorded) if delivered and not covered else ""
        for pending in delivered if alike else ():
            if folded(pending.typed.rewritten) == alike:
                return [pending]
        if strangers and not covered:
            self._forget_stranger(recorded)
        return [pending for pending in covered if pending.message_id]

    def _only_candidate(self, fact: PromptRecorded | InputQueued) -> list[Pending]:
        """The message whose Enter alone can have made this record, whatever the CLI made of its text.

        Enter was pressed for it in this life, on a box that was seen in the same round trip to show it and nothing
        else; the CLI stamped the record behind that Enter, and at once; it is the first record of a typed text that
        nobody owns since; no other message of ours is typed and not bound; and most of the text is ours.
        """
        native_at = fact.evidence.native_at
        typed = [pending for pending in self.pending.values() if pending.stage != "waiting"]
        if len(typed) != 1 or native_at is None or fact.key or (isinstance(fact, PromptRecorded) and fact.origin):
            return []
        (only,) = typed
        if only.stage != "submitted" or only.entered_at is None or self._key(only.message_id) or self._contested(only):
            return []
        since = only.entered_at - only.set_back_s
        at_once = since <= native_at <= since + only.set_back_s + OUR_ENTER_S
        return [only] if at_once and perhaps(fact.text, only.typed.text) else []
