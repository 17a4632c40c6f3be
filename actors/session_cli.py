"""The CLI of a session: started, followed, seen ready, asking, gone. One process at a time, each under its own epoch.

What it says about itself comes as reports of its mouth and is told as events; nothing here ends a turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, assert_never

import msgspec

from lastword.actors import mouth, transcript
from lastword.actors.core import events
from lastword.actors.core import session as core
from lastword.actors.core import session_effects as asks
from lastword.actors.core import turn as turn_core
from lastword.actors.core import typing_effects as reports
from lastword.actors.core.adapter import ExpectsTurns, LaunchRequest, Oracle, SourceSpec, TypedText, cli_names_itself
from lastword.actors.core.errors import ProviderError, RejectedError
from lastword.actors.core.facts import EndpointGoneHint, FileChangedHint
from lastword.actors.core.fault import fault_of
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.ports import Cursor
from lastword.actors.core.snapshot import Dialog, Handle, SessionState
from lastword.actors.core.talk import Named, TalkReport
from lastword.actors.core.world import Bytes, Endpoint, StdioEndpoint
from lastword.actors.session_messages import Rows

if TYPE_CHECKING:
    from lastword.actors.session import SessionActor

ORPHAN_GRACE_S = 5.0
"""A CLI behind a pipe whose host died, and that has nothing open any more: how long it may take to end by itself."""
STARTS_MAX = 2
"""Starts of a CLI that ended before its input box was ready, in a row, before waiting messages fail."""
STREAM_HELD_MAX = 64 * 1024
"""Characters of an answer that wait for their turn's start to be on record; of a turn that never comes they go."""


class Cli:
    """Runs on the session actor's thread only.

    Attributes:
        state: as far as the CLI goes: ``starting``, ``idle`` (it takes text), ``gone``.
        epoch: of the process; what an earlier one still says is not taken.
        exhausted: it is gone and its record was read to the end, or it never came up.
        held: what of a person delivery waits for, or "".
        last_at: when the last event before this life of the host was recorded, Unix seconds.
        caught_up: all that was on record when it began to be followed has been taken: what is missing is missing.
        uncertain: messages of an earlier life that may have been typed: the record is asked before the pane is.
        told: the dialog that an earlier life told as open, until it is seen open or gone.
    """

    def __init__(self, session: SessionActor, request: LaunchRequest) -> None:
        row = session.record.row
        self._session = session
        self._request = request
        self.state: SessionState = "starting"
        self.epoch = row.epoch
        self.exhausted = False
        self.dialog: Dialog | None = None
        self.told: Dialog | None = None
        self.handle = Handle(native_session_id=row.native_session)
        self.last_at = row.opened_at
        self.held = ""
        self.caught_up = False
        self.uncertain: tuple[MessageId, ...] = ()
        self._live = False
        self._status: SourceSpec | None = None
        self._launch_reason = "open"
        self._orphan = False
        """It was started by a host that is dead, behind a pipe: mute."""
        self._tidied = 0
        self._failed_starts = 0
        self._last_gone: mouth.Gone | None = None
        self._last_words = ""
        """Of the starts that failed in a row: tmux discards what it has not read when a program ends (issue 506)."""
        self._streamed_turn: TurnId | None = None
        self._streaming: reports.Streamed | None = None

    # --- start and following ------------------------------------------------------------------------------------------

    def launch(self, reason: str) -> None:
        """Start it: a conversation that is on record is resumed. An adapter that raises over it costs the start, and
        what waits for it, no more.
        """
        try:
            self._launch(reason)
        except ProviderError as error:
            self._unlaunched(error)

    def _unlaunched(self, error: ProviderError) -> None:
        session = self._session
        fault = fault_of(error, "the start", [row.text for row in session.book.rows.values()])
        self.epoch += 1  # whatever was told of this one is not heard
        self.caught_up = False
        self.tell(events.InvariantViolated(what=fault.what, repair="the CLI was not started"))
        self._not_opened(fault.what)

    def _launch(self, reason: str) -> None:
        session = self._session
        resume = self._on_record()
        if not resume and cli_names_itself(session.deps.adapter):
            session.core.native_session = ""  # nothing was ever said under that name: the CLI chooses another
        self.epoch += 1
        request = self._asked(resume=resume)
        if resume and session.deps.streams is not None:
            started_at = session.deps.reader.last_at(session.record.row.session_id, "provider_started")
            since_s = session.clock.wall() - started_at if started_at is not None else 0.0
            request = msgspec.structs.replace(request, since_start_s=max(0.0, since_s))
        recipe = session.deps.adapter.launch(request)
        self.state = "starting"
        self.exhausted = False
        self._live = True
        self._orphan = False
        self._launch_reason = reason
        self.uncertain = ()  # its record was read to the end: they wait, or have ended
        self._follow()
        session.mouth.tell(
            mouth.Open(
                name=self._name(self.epoch),  # the one before may not be gone from tmux yet
                recipe=recipe,
                request=request,
                epoch=self.epoch,
            )
        )

    def attach(self, endpoint: Endpoint) -> None:
        """Take over one that lives already. One behind a pipe is mute: it is followed until it has ended."""
        self._live = True
        self._launch_reason = "attach"
        self._orphan = isinstance(endpoint, StdioEndpoint) and endpoint.orphaned
        if self._orphan:
            self.state = "idle"
        self._follow(earlier=True)
        self._session.mouth.tell(
            mouth.Attach(
                endpoint=endpoint,
                request=self._asked(resume=True),
                epoch=self.epoch,
                command=self._session.record.row.command,
                texts=self._perhaps_in_box() if self._session.deps.streams is None else (),
            )
        )

    def _perhaps_in_box(self) -> tuple[TypedText, ...]:
        """Texts of the open turns and of the last one: an interrupted CLI puts them back into its box."""
        session, last = self._session, self._session.last_completion
        ids = [message_id for message_id in session.book.rows if message_id not in session.core.pending]
        rows = [session.book.rows[message_id] for message_id in ids]
        if last is not None and last.status != "completed":
            of_last = (*((last.message_id,) if last.message_id is not None else ()), *last.joined)
            rows += [row for row in map(session.deps.reader.message, of_last) if row is not None]
        escaped = (session.admission.escape(row.text) for row in rows)
        return tuple(text for text in escaped if isinstance(text, TypedText))

    def mourn(self) -> None:
        """It died while nobody looked: have its record read to the end."""
        self._live = True
        self._follow(earlier=True)
        self._gone_process(
            mouth.Gone(
                epoch=self.epoch,
                exit_status=None,
                was_ready=True,
                last_words="",
            )
        )

    def sleep(self) -> None:
        """None runs and nothing is open: the next message starts one."""
        self.state = "gone"
        self.exhausted = True

    def rebound(self, rebound: asks.Rebound) -> events.Draft:
        """It is in another conversation now: follow that one."""
        session = self._session
        session.record.move(rebound.native_session)
        self.handle = msgspec.structs.replace(self.handle, native_session_id=rebound.native_session)
        now = session.clock.wall() - core.RECORD_SKEW_S
        seen_at = rebound.seen_at
        if seen_at is None:
            seen_at = self.last_at
            session.mouth.tell(mouth.MovedUnseen(epoch=self.epoch))
        session.core.history_before = min(now, seen_at)
        self._follow()
        body = events.SessionRebound(native_session_id=rebound.native_session, previous=rebound.previous)
        return events.Draft(body=body)

    @property
    def ending(self) -> bool:
        """Whether it is gone and its record is not read to the end yet."""
        return not self._live and not self.exhausted

    def following(self) -> transcript.Follow:
        """The record that it writes now, and from where it can be read without any state."""
        return self._following(self.epoch)

    def _following(self, epoch: int) -> transcript.Follow:
        session = self._session
        adapter, native = session.deps.adapter, session.core.native_session
        *earlier, source = adapter.sources(self._asked(resume=False, epoch=epoch))
        source = self._placed(source)
        begun = tuple(each for each in session.core.open.values() if each)

        def oracle(offset: int) -> Oracle:
            made = adapter.oracle(source, native, offset)
            if begun and isinstance(made, ExpectsTurns):
                made.expect(begun)
            return made

        return transcript.Follow(
            source=source,
            earlier=tuple(earlier),
            oracle=oracle,
            cursor=self._usable_place(source) if session.deps.streams is None else None,  # one process's life is short
            epoch=epoch,
            goes_on=session.deps.streams is not None,
        )

    def reader_caught_up(self, caught_up: transcript.CaughtUp) -> tuple[MessageId, ...]:
        """Its record has been taken as far as it goes; the messages whose fate can be found out now."""
        if caught_up.epoch != self.epoch:
            return ()
        self.caught_up = True
        if not caught_up.read:
            return ()  # it could not look: no proof of anything
        uncertain, self.uncertain = self.uncertain, ()
        return uncertain

    def _usable_place(self, source: SourceSpec) -> Cursor | None:
        """The place on record, where it is one of this very file. Without one the record is read from its start,
        in pieces, and what it stamps before the conversation was ours is passed over.
        """
        session = self._session
        cursor = session.record.row.cursor
        if cursor is not None and cursor.path == source.path:
            return cursor
        moved_at = session.deps.reader.last_at(session.record.row.session_id, "session_rebound")
        if moved_at is not None:
            session.core.history_before = max(session.core.history_before or 0.0, moved_at - core.RECORD_SKEW_S)
        return None

    def follow_again(self) -> None:
        """Another watcher takes over: tell it all that the one before was told."""
        self._follow()
        if self._live:
            self._session.watcher.tell(transcript.FollowStatus(source=self._status))
        elif self.ending:
            self._session.watcher.tell(EndpointGoneHint(exit_status=self._exit_status))

    @property
    def _exit_status(self) -> int | None:
        return self._last_gone.exit_status if self._last_gone is not None else None

    def _follow(self, *, earlier: bool = False) -> None:
        """``earlier``: first what processes before this one said and what may not be settled yet."""
        session, streams = self._session, self._session.deps.streams
        self.caught_up = False
        if streams is not None and earlier:
            if session.deps.adapter.launch(self._asked(resume=True)).exit_noted:
                streams.note_orphaned(self._name(self.epoch))  # first: what it makes of that is no word of ours
            for epoch in streams.epochs(session.record.row.session_id):
                if session.record.row.config_floor < epoch < self.epoch:
                    session.watcher.tell(self._following(epoch))
        session.watcher.tell(self.following())

    def _name(self, epoch: int) -> str:
        return f"{self._session.record.row.session_id}-{epoch}"

    def _asked(self, *, resume: bool, epoch: int | None = None) -> LaunchRequest:
        session, streams = self._session, self._session.deps.streams
        stream = streams.stream(self._name(self.epoch if epoch is None else epoch)) if streams is not None else ""
        native = session.core.native_session
        return msgspec.structs.replace(self._request, native_session=native, resume=resume, stream=stream)

    def _placed(self, source: SourceSpec) -> SourceSpec:
        """With its path: where the CLI chose it, the one on record, or the one that is found by its end."""
        if source.path or not source.suffix:
            return source
        cursor = self._session.record.row.cursor
        if cursor is not None and cursor.path.endswith(source.suffix):
            return source.found(cursor.path)
        return source.found(self._session.deps.files.find(source.root, source.suffix))

    def _on_record(self) -> bool:
        """Whether the conversation is there to be resumed."""
        session = self._session
        transcript_file = session.deps.adapter.transcript(self._asked(resume=False))
        if transcript_file is None:
            return bool(session.core.native_session) and self._something_ended()
        path = self._placed(transcript_file).path
        probe = session.deps.files.read_from(path, 0, 1, 0, 0) if path else None
        return isinstance(probe, Bytes) and probe.size > 0

    def _something_ended(self) -> bool:
        """Whether a turn of it had an end of its own: else there may be nothing of it that its CLI has kept."""
        session, last = self._session, self._session.last_completion
        if last is None:
            return False
        native = session.core.native_session
        if last.native_session_id == native and last.status != "lost":
            return True
        return any(
            each.status != "lost" and each.native_session_id == native
            for each in session.deps.reader.completions(session.record.row.session_id)
        )

    # --- what processes behind pipes leave ---------------------------------------------------------------------------

    def tidy(self) -> None:
        """Nothing is open in what earlier processes said, and all of it is on record: those files go. One that is mute
        and has nothing left to do is ended.
        """
        session, streams = self._session, self._session.deps.streams
        if streams is None or any(session.core.open.values()) or session.core.ending or not self.caught_up:
            return
        if self._orphan and self._live:
            self._orphan = False
            session.mouth.tell(mouth.Close(grace_s=ORPHAN_GRACE_S))
        if self._tidied < self.epoch and session.record.acknowledged:
            self._tidied = self.epoch
            streams.discard(session.record.row.session_id, self.epoch)

    def discard(self) -> None:
        """The conversation is closed for ever: nothing of it is left."""
        if self._session.deps.streams is not None:
            self._session.deps.streams.discard(self._session.record.row.session_id, None)

    def recorded(self, native_session: str) -> None:
        """That name is committed. Who chooses it for the CLI needs no word of it."""
        session = self._session
        if native_session and native_session == session.core.native_session and cli_names_itself(session.deps.adapter):
            session.mouth.tell(mouth.Known(epoch=self.epoch, native_session=native_session))

    def _named(self, named: Named) -> None:
        """Its first name, or, in a pane, another one: a person moved it. It is left where a turn of ours runs."""
        session = self._session
        if named.native_session == session.core.native_session:
            return
        if session.core.native_session and session.deps.streams is None:
            if not any(session.core.open.values()) and not session.core.backlog:
                session.apply(session.core.moved(named.native_session, named.before_at))
            return
        previous, session.core.native_session = session.core.native_session, named.native_session
        self.handle = msgspec.structs.replace(self.handle, native_session_id=named.native_session)
        rebound = events.SessionRebound(native_session_id=named.native_session, previous=previous)
        session.record.send(
            drafts=(events.Draft(body=rebound),) if previous else (),
            session=session.record.change(
                native_session=named.native_session, handle=msgspec.json.encode(self.handle).decode()
            ),
        )
        if session.deps.streams is None:
            self._follow()

    # --- what is said of it -------------------------------------------------------------------------------------------

    def heard(self, message: mouth.MouthReport) -> None:
        """A word of the mouth; one of an earlier epoch is of no interest any more."""
        if message.epoch != self.epoch:
            return
        self._session.stalls.heard()
        match message:
            case mouth.Opened():
                self._opened(message)
            case mouth.OpenFailed():
                self._open_failed(message)
            case mouth.Said():
                self._report(message.report, message.at)
            case mouth.Gone():
                self._gone_process(message)
            case mouth.Closed():
                self._closed_process()
            case _:
                assert_never(message)

    def _opened(self, opened: mouth.Opened) -> None:
        session = self._session
        self.handle = Handle(
            native_session_id=session.core.native_session,
            pane=opened.pane_id,
            pid=opened.pid,
            pid_start=opened.pid_start,
            attach=opened.attach,
        )
        row = session.record.change(handle=msgspec.json.encode(self.handle).decode(), epoch=self.epoch)
        started = events.ProviderStarted(
            pid=opened.pid,
            pane=opened.pane_id,
            reason=self._launch_reason,
            cli_version=session.core.cli_version,
        )
        # one that was started before is not started now: nothing was rebuilt
        drafts = () if self._launch_reason == "attach" else (events.Draft(body=started),)
        session.record.send(drafts=drafts, session=row)
        session.mouth.tell(mouth.Kept(epoch=self.epoch))
        self.tidy()
        self._status = session.deps.adapter.status_file(self._request, opened.pid)
        session.watcher.tell(transcript.FollowStatus(source=self._status))

    def _open_failed(self, failed: mouth.OpenFailed) -> None:
        self._not_opened(failed.error.reason)

    def _not_opened(self, reason: str) -> None:
        self._live = False
        self.state = "gone"
        self.exhausted = True
        self._fail_waiting(reason)
        self._session.maybe_ended()

    def _fail_waiting(self, reason: str) -> None:
        session = self._session
        for pending in list(session.core.pending.values()):
            if pending.message_id in session.book.deliverable:  # one whose commit is on its way has no turn to tell yet
                session.apply(session.core.undeliverable(pending.message_id, "launch_failed", reason))
        session.controls.fail_all(ProviderError("launch_failed", reason, provider=session.record.row.provider))

    def _report(self, report: TalkReport | reports.LoopReport, at: float) -> None:
        session = self._session
        match report:
            case reports.Queued():
                once = f"queued:{report.message_id}"
                draft = events.Draft(body=events.MessageQueued(), message_id=report.message_id, once=once)
                session.record.send(drafts=(draft,))
            case reports.Streamed():
                self._streamed(report, at)
            case reports.Submitted():
                self._submitted(report)
            case reports.WithdrawnReport():
                session.apply(session.core.withdraw(report.message_id))
            case reports.NotDelivered():
                error = RejectedError("not_delivered", report.reason, provider=session.record.row.provider)
                session.controls.failed(report.message_id, error)
                session.apply(session.core.undeliverable(report.message_id, report.kind, report.reason))
            case reports.LeftBehind():
                session.apply(session.core.left_behind(report.message_id))
            case reports.Delivered():
                session.controls.done(report.message_id)
            case reports.Interrupted():
                session.turns.tell(report.turn_id, turn_core.InterruptPressed(at=at))
            case reports.NothingToInterrupt():
                session.turns.tell(report.turn_id, turn_core.InterruptMoot())
            case reports.DialogSeen():
                self._dialog_seen(report)
            case reports.DialogGone():
                self._dialog_gone(report)
            case reports.AnswerResult(applied=True):
                session.controls.done(report.token)
            case reports.AnswerResult():
                session.controls.failed(
                    report.token, RejectedError("unknown_dialog", "that dialog is not open any more, or was answered")
                )
            case reports.BecameReady():
                self._failed_starts, self._last_words = 0, ""
                if self.state == "starting":
                    self.state = "idle"
                self._told_is_gone()
            case reports.Held():
                self._held(report)
            case Named():
                self._named(report)
            case _:
                assert_never(report)

    def _streamed(self, report: reports.Streamed, at: float) -> None:
        """Told once the turn's own start is on record: until then it waits for the next piece. The first ones may come
        before the record itself was read, when nobody knows the turn yet.
        """
        session, natives = self._session, self._session.core.open
        turn_id = next((turn_id for turn_id, native in natives.items() if native == report.native_turn), None)
        text = report.text
        held, self._streaming = self._streaming, None
        if held is not None and (held.native_turn, held.native_message) == (report.native_turn, report.native_message):
            text = held.text + text
        if turn_id is None or self._streamed_turn != turn_id:
            if turn_id is None or not self._has_started(turn_id):
                if len(text) <= STREAM_HELD_MAX:
                    self._streaming = msgspec.structs.replace(report, text=text)
                return
            self._streamed_turn = turn_id
        body = events.AssistantDelta(text=text, native_message_id=report.native_message)
        session_id = session.record.row.session_id
        session.deps.live(events.Event(session_id=session_id, seq=0, at=at, body=body, turn_id=turn_id))

    def _has_started(self, turn_id: TurnId) -> bool:
        told = self._session.deps.reader.turn_events(turn_id)
        return any(isinstance(each.body, events.TurnStarted) for each in told)

    def _submitted(self, report: reports.Submitted) -> None:
        session = self._session
        self.held = ""
        unplaced = session.record.row.cursor is None and session.deps.streams is None
        if unplaced and cli_names_itself(session.deps.adapter):
            session.watcher.tell(FileChangedHint(path="submitted"))  # the record may begin now, under a name of its own
        pending = session.core.pending.get(report.message_id)
        session.belongs_to(session.book.trace_of(report.message_id), surely=True)
        rows: Rows = {}
        drafts: tuple[events.Draft, ...] = ()
        if pending is not None:
            session.book.advance(rows, report.message_id, "submitted")
            if pending.turn_id is None:
                body = events.MessageSubmitted(rewritten=report.rewritten)
                drafts = (events.Draft(body=body, message_id=report.message_id, once=f"submitted:{report.message_id}"),)
        owner = session.book.rows.get(report.message_id)
        effects = session.core.submitted(report.message_id, report.rewritten, report.at)
        if not effects and owner is not None and owner.turn_id is not None and owner.taken == "started_turn":
            # the record was read before this report came: the turn wants its stamp all the same
            effects = [asks.ToTurn(turn_id=owner.turn_id, event=turn_core.Submitted(rewritten=report.rewritten))]
        session.apply(effects, rows, drafts)

    def _dialog_seen(self, seen: reports.DialogSeen) -> None:
        shown = seen.dialog
        # trust is asked before the box ever takes text; what looks like it later may be a model's own words
        fresh = self.state == "starting" and not any(self._session.core.open.values())
        kind = "other" if shown.kind == "trust" and not fresh else shown.kind
        dialog = Dialog(dialog_id=seen.dialog_id, kind=kind, question=shown.question, options=shown.options)
        if self.told is not None and self.told.dialog_id == dialog.dialog_id:
            dialog, self.told = self.told, None  # it is open still
        else:
            self._told_is_gone()
            self.tell(
                events.DialogOpened(
                    dialog_id=dialog.dialog_id, kind=kind, question=dialog.question, options=dialog.options
                )
            )
        self.dialog = dialog
        self._session.policy.opened(dialog)

    def _told_is_gone(self) -> None:
        """What an earlier life told as open is not: whoever answered it was no host."""
        told, self.told = self.told, None
        if told is not None:
            self.tell(events.DialogClosed(dialog_id=told.dialog_id, by="elsewhere"))

    def _dialog_gone(self, gone: reports.DialogGone) -> None:
        self.dialog = None
        policy = self._session.policy
        policy.overtaken()
        ours: Literal["host", "policy"] = "policy" if policy.chose(gone.token) else "host"
        self.tell(events.DialogClosed(dialog_id=gone.dialog_id, by=ours if gone.answered else "elsewhere"))

    def _held(self, held: reports.Held) -> None:
        if held.reason == "dialog":
            return  # the dialog's own event says it
        self.held = {
            "draft": "a draft in the input box",
            "copy_mode": "the attached one's copy mode",
        }[held.reason]
        waits_for = f"a person: {self.held}"
        body = events.StallDiagnosed(
            kind="person",
            waits_for=waits_for,
            elapsed_s=0.0,
            quiet_s=0.0,
            evidence="seen in the pane",
            provider=self._session.record.row.provider,
        )
        self.tell(body)

    def tell(self, body: events.EventBody) -> None:
        """Have it recorded, with the turn that runs."""
        session = self._session
        session.record.send(drafts=(events.Draft(body=body, turn_id=session.core.interrupted_turn()),))

    # --- its end ------------------------------------------------------------------------------------------------------

    def _gone_process(self, gone: mouth.Gone) -> None:
        if not self._live:
            return
        session = self._session
        self._live = False
        self.held = ""
        self._last_gone, self._last_words = gone, gone.last_words or self._last_words
        self.handle = Handle(native_session_id=session.core.native_session)
        self._told_is_gone()
        if self.dialog is not None:
            self._dialog_gone(reports.DialogGone(dialog_id=self.dialog.dialog_id, answered=False))
        session.watcher.tell(transcript.FollowStatus(source=None))
        session.watcher.tell(EndpointGoneHint(exit_status=gone.exit_status))

    def _closed_process(self) -> None:
        if self._live:  # it never opened: nobody else will report its end
            self._live = False
            self._session.watcher.tell(EndpointGoneHint())

    def gone(self, gone: asks.Gone) -> None:
        """It is gone and its record was read to the end."""
        session = self._session
        self.state = "gone"
        self.exhausted = True
        last = self._last_gone
        reason = "closed" if session.closing else "switched" if session.switching.active else "provider_exited"
        body = events.SessionGone(reason=reason, exit_status=gone.exit_status)
        session.record.send(drafts=(events.Draft(body=body),), session=session.record.change(handle="{}"))
        provider = session.record.row.provider
        session.controls.fail_all(RejectedError("not_delivered", "the CLI ended", provider=provider))
        if session.closing or session.switching.active:
            session.maybe_ended()
            return
        if last is not None and not last.was_ready:
            self._failed_starts += 1
        if self._failed_starts >= STARTS_MAX:
            shown = self._last_words
            self._failed_starts, self._last_words = 0, ""
            status = f" with status {gone.exit_status}" if gone.exit_status is not None else ""
            self._fail_waiting(f"the CLI ended{status} before it was ready" + (f": {shown}" if shown else ""))
        else:
            session.dispatch()
