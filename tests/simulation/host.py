"""One run: a host with several sessions in a simulated world, its lives and its bad luck, from one seed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import Any

from lastword.actors.core import events
from lastword.actors.core.delivery import Answer, Command, Delivery, Interrupt
from lastword.actors.core.errors import LastwordError
from lastword.actors.core.ids import MessageId
from lastword.actors.core.outcome import Completion
from lastword.actors.pane import PaneActor
from lastword.actors.session import Abandon, Control, SessionActor, Submit
from lastword.actors.system.simulation import Simulation
from lastword.actors.transcript import TranscriptWatcherActor
from lastword.actors.turn import TurnActor
from lastword.runtime import Runtime
from lastword.runtime._preflight import Versions
from lastword.runtime.testing.memory import memory_edge
from simulation.cli import BY_PERSON
from simulation.weather import Weather, calm, drawn
from simulation.world import SimWorld

VERSIONS = Versions()
PATIENCE_S = 100.0
"""How long the host waits for a turn before it interrupts whatever runs."""
QUIET_S = 1500.0
"""Virtual seconds within which everything must be settled once nothing goes wrong any more."""
REVIVALS_MAX = 2
NEVER = 1 << 60
FAILING = {SessionActor: "session", PaneActor: "pane", TranscriptWatcherActor: "watcher", TurnActor: "turn"}


class InjectedError(Exception):
    """A handler that raises."""


class Asked:
    """One message as the host knows it."""

    def __init__(self, session_id: str, submit: Submit) -> None:
        self.session_id, self.submit = session_id, submit
        self.accepted: Delivery | None = None
        self.refused: BaseException | None = None


class Run:
    """See :meth:`play`. ``folder`` holds the journal; ``weather`` is drawn from the seed unless given."""

    def __init__(
        self, seed: int, folder: Path, *, sessions: int = 6, messages: int = 40, weather: Weather | None = None
    ) -> None:
        self.random = Random(f"play {seed}")
        self.weather = weather or drawn(self.random)
        self.simulation = Simulation(seed, hold_up_s=self._hold_up_s if self.weather.held_up else None)
        self.world = SimWorld(self.simulation, self.random, self.weather)
        self.state = folder
        self.seed = seed
        self.faults: list[str] = []
        self.asked: list[Asked] = []
        self.session_ids: list[str] = []
        self.down: list[tuple[float, float]] = []
        self.disk: list[tuple[float, float]] = []
        """When the disk took nothing."""
        self._disk_since: float | None = None
        self.count: Counter[str] = Counter()
        self._sessions = sessions
        self._left: dict[str, int] = {}
        self._messages = messages
        self._texts = 0
        self._spell = 0
        self._failed: Counter[str] = Counter()
        self._rigged: list[Any] = []
        self._armed: set[str] = set()
        self.calm = False
        self._crash_at = NEVER
        self._open()

    # --- the host's lives -------------------------------------------------------------------------------------

    def _hold_up_s(self, random: Random) -> float:
        return random.uniform(0.0, 0.3) if random.random() < self.weather.held_up else 0.0

    def _open(self) -> None:
        self.runtime = Runtime.open(
            self.state,
            env={"PATH": "/usr/bin:/bin"},
            edge=memory_edge(self.world),
            durability="process",
            simulation=self.simulation,
        )
        self.runtime._providers.versions = VERSIONS
        self._record = self.runtime._journal._record
        self.runtime._journal._record = self._recording  # type: ignore[method-assign]
        committer = self.runtime._writer._cell.actor.committer  # type: ignore[union-attr]
        self._publish = committer._publish
        committer._publish = self._publishing
        self.eyes = sqlite3.connect(f"file:{self.state / 'journal.db'}?mode=ro", uri=True, isolation_level=None)
        self._failed.clear()

    def crash(self) -> None:
        """The host is gone between two steps; its CLIs go on; after a while it is opened again."""
        self.count["crash"] += 1
        began = self.simulation.wall()
        self._die()
        down_s = self.random.choice((0.0, 0.1, 1.0, 10.0, 60.0)) * self.random.random()
        self.simulation.run_for(down_s)
        self.down.append((began, self.simulation.wall()))
        self._open()
        for session_id in self.session_ids:
            if not self.calm:
                self._soon(session_id, self.random.uniform(0.0, 2.0))

    def _die(self) -> None:
        self.eyes.close()
        self.runtime._system.drop()
        self.runtime._hub.close()
        self.runtime._journal.close()
        self.world.host_died()

    # --- bad luck of ours -------------------------------------------------------------------------------------

    def _recording(self, db: Any, batches: Sequence[Any], now_wall_s: float) -> Any:
        """In place of the journal's transaction, within what it does about a failure."""
        if self._spell > 0:
            self._spell -= 1
            self.count["disk"] += 1
            self._disk_since = self._disk_since or self.simulation.wall()
            if self.random.random() < 0.2:
                self._record(db, batches, now_wall_s)  # a COMMIT that failed may have been carried out after all
            error = sqlite3.OperationalError("as asked")
            error.sqlite_errorcode = self.random.choice((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL))
            raise error
        if self._disk_since is not None:
            self.disk.append((self._disk_since, self.simulation.wall()))
            self._disk_since = None
        return self._record(db, batches, now_wall_s)

    def _publishing(self, published: Sequence[events.Event]) -> None:
        for event in published:
            body = event.body
            if isinstance(body, events.CompletionReached):
                self.on_record("completion", "SELECT 1 FROM completion WHERE turn_id = ?", event.turn_id)
            elif isinstance(body, events.DialogOpened):
                self._answer_soon(event.session_id, body.dialog_id)
        last = published[-1]
        self.on_record("event", "SELECT 1 FROM event WHERE session_id = ? AND seq = ?", last.session_id, last.seq)
        self._publish(published)

    def on_record(self, what: str, query: str, *values: Any) -> None:
        """C09: nobody is told of what is not committed."""
        if self.eyes.execute(query, values).fetchone() is None:
            self.faults.append(f"C09: {what} {values} was told before it was committed")

    def _fail_an_actor(self) -> None:
        cells = [cell for cell in self.runtime._system._cells.values() if type(cell.actor) in FAILING]
        if not cells:
            return
        cell = self.random.choice(cells)
        kind = FAILING[type(cell.actor)]
        key = cell.ref.name.split("#")[0] if kind == "turn" else cell.ref.name.split("/")[0]
        if self._failed[key] >= REVIVALS_MAX:
            return
        self._failed[key] += 1
        self.count[f"{kind} fails"] += 1
        receive, first = cell.actor.receive, self.random.random() < 0.5

        def raising(message: object) -> object:
            vars(cell.actor).pop("receive", None)
            if not first:
                receive(message)
            raise InjectedError

        cell.actor.receive = raising
        self._rigged.append(cell)

    # --- the plan ---------------------------------------------------------------------------------------------

    def play(self) -> Run:
        """From the first session to the end, and the account of it. Faults are left in ``faults``."""
        for _ in range(self._sessions):
            session = self.runtime.session("memory", cwd="/", transport="memory")
            self.session_ids.append(session.session_id)
            self._left[session.session_id] = self._messages
            self._soon(session.session_id, self.random.uniform(0.0, 1.0))
        simulation, random = self.simulation, self.random
        end_s = simulation.monotonic() + 40_000
        while any(self._left.values()) and simulation.monotonic() < end_s:
            simulation.step()
            if simulation.steps >= self._crash_at:
                self._crash_at = NEVER
                self.crash()
        for session_id in self._left:
            self._left[session_id] = 0
        simulation.run_for(random.uniform(0.0, 30.0))
        self._calm()
        return self

    def _soon(self, session_id: str, delay_s: float) -> None:
        if session_id in self._armed:
            return
        self._armed.add(session_id)
        self.simulation.after(delay_s, lambda: self._act(session_id))

    def _act(self, session_id: str) -> None:
        self._armed.discard(session_id)
        if self.calm or self._left.get(session_id, 0) <= 0:
            return
        self._left[session_id] -= 1
        random, weather = self.random, self.weather
        if random.random() < weather.disk_fails:
            self._spell = random.choice((1, 3, 8))
        if random.random() < weather.actor_fails:
            self._fail_an_actor()
        cli = self.world.cli_of(session_id)
        if cli is not None:
            if random.random() < weather.by_itself:
                cli.by_itself()
            if random.random() < weather.person_types:
                cli.person(f"{BY_PERSON}{self._text()}")
            if random.random() < weather.person_clears:
                cli.person_clears()
            if random.random() < weather.replaces and not cli.writing:
                self.world.replace(cli.path, self.world.contents_or_empty(cli.path))
        if random.random() < weather.interrupts:
            self.simulation.after(random.uniform(0.0, 8.0), lambda: self.control(session_id, Interrupt()))
        if random.random() < weather.clears:
            self.control(session_id, Command(text="/clear"))
        asked = self.send(session_id, deadline_s=random.uniform(0.1, 20.0) if self._may(weather.deadlines) else None)
        if self._may(weather.abandons):
            self.simulation.after(
                random.uniform(0.0, 3.0), lambda: self._tell(session_id, Abandon(submit=asked.submit))
            )
        if self._may(weather.same_id) and asked.submit.message_id is not None:
            self.simulation.after(random.uniform(0.0, 5.0), lambda: self._again(asked))
        if random.random() < weather.bursts:
            self._soon(session_id, random.uniform(0.0, 1.0))
        else:
            self._after_outcome(asked)
        if random.random() < weather.crashes:
            self._crash_at = self.simulation.steps + random.randrange(400)

    def _may(self, odds: float) -> bool:
        return self.random.random() < odds

    def _after_outcome(self, asked: Asked) -> None:
        assert asked.submit.outcome is not None
        asked.submit.outcome.add_done_callback(
            lambda _: self._soon(asked.session_id, self.random.choice((0.0, 0.0, 0.5)) * self.random.random())
        )

        def impatient() -> None:
            outcome = asked.submit.outcome
            if not self.calm and outcome is not None and not outcome.done():
                self.control(asked.session_id, Interrupt())
                self._soon(asked.session_id, 10.0)

        self.simulation.after(PATIENCE_S, impatient)

    def _text(self) -> str:
        if self._texts and self._may(self.weather.same_text):
            return f"m{self._texts}"
        self._texts += 1
        return f"m{self._texts}"

    # --- what a host does -------------------------------------------------------------------------------------

    def _tell(self, session_id: str, message: Any) -> bool:
        known = self.runtime._sessions.get(session_id)  # type: ignore[call-overload]
        if known is None:
            known = self.runtime.session(session_id=session_id)
        return known._counterpart.ref is not None and known._counterpart.ref.try_tell(message)

    def send(self, session_id: str, *, deadline_s: float | None = None, text: str = "") -> Asked:
        reply: Future[Delivery] = Future()
        outcome: Future[Completion] = Future()
        submit = Submit(
            text=text or self._text(),
            reply=reply,
            message_id=MessageId(f"host-{len(self.asked)}") if self._may(0.5) else None,
            run=self._may(0.1),
            deadline_s=deadline_s,
            outcome=outcome,
        )
        asked = Asked(session_id, submit)
        self.asked.append(asked)
        reply.add_done_callback(lambda _: self._acknowledged(asked))
        if not self._tell(session_id, submit):
            _refuse(submit)
        return asked

    def _again(self, asked: Asked) -> None:
        """The same id again."""
        first = asked.submit
        again = Submit(text=first.text, reply=Future(), message_id=first.message_id, outcome=Future())
        twin = Asked(asked.session_id, again)
        self.asked.append(twin)
        again.reply.add_done_callback(lambda _: self._acknowledged(twin))
        if not self._tell(asked.session_id, again):
            _refuse(again)

    def _acknowledged(self, asked: Asked) -> None:
        error = asked.submit.reply.exception()
        if error is not None:
            asked.refused = error
            return
        asked.accepted = asked.submit.reply.result()
        if not self.runtime._closed:
            self.on_record("message", "SELECT 1 FROM message WHERE message_id = ?", asked.accepted.message_id)

    def control(self, session_id: str, what: Any) -> None:
        self._tell(session_id, Control(what=what, reply=Future()))

    def _answer_soon(self, session_id: str, dialog_id: str) -> None:
        answer = Answer(dialog_id=dialog_id, option=1)
        self.simulation.after(self.random.uniform(0.0, 4.0), lambda: self.control(session_id, answer))

    # --- the end ----------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        """Nothing goes wrong any more: everything settles, and every session works."""
        self.calm = True
        quiet = calm()
        for name in Weather.__struct_fields__:
            setattr(self.weather, name, getattr(quiet, name))
        self._spell = 0
        for cell in self._rigged:
            if cell.actor is not None:
                vars(cell.actor).pop("receive", None)
        simulation = self.simulation
        until_s = simulation.monotonic() + QUIET_S
        next_s = simulation.monotonic() + 60.0
        while self._open_work() and simulation.monotonic() < until_s:
            simulation.run_for(5.0)
            if simulation.monotonic() > next_s:
                next_s += 30.0
                for session_id in self.session_ids:
                    self.control(session_id, Interrupt())
        left = self._open_work()
        if left:
            self.faults.append(f"C02: not settled {QUIET_S:g} s after the last fault: {sorted(left)}")
            return
        simulation.run_for(40.0)
        last = [self.send(session_id, text=f"last {session_id}") for session_id in self.session_ids]
        simulation.run_until(lambda: all(_done(asked) for asked in last), 120.0)
        for asked in last:
            self._last_word(asked)
        simulation.run_for(120.0)
        self._leftovers()

    def _open_work(self) -> set[str]:
        return {
            str(row[0])
            for row in self.eyes.execute(
                "SELECT turn_id FROM turn WHERE state <> 'settled' UNION SELECT message_id FROM message"
                " WHERE turn_id IS NULL AND state NOT IN ('joined', 'undelivered')"
            )
        }

    def _last_word(self, asked: Asked) -> None:
        outcome = asked.submit.outcome
        assert outcome is not None
        where = f"reusable: {asked.session_id}"
        if not outcome.done():
            self.faults.append(f"C08: {where}: no completion of one more turn, ack {asked.accepted}")
        elif outcome.exception() is not None:
            self.faults.append(f"C08: {where}: {outcome.exception()!r}")
        elif outcome.result().status != "completed":
            self.faults.append(f"C08: {where}: {outcome.result()}")

    def _leftovers(self) -> None:
        system = self.runtime._system
        expected = {"journal", "sessions"}
        for session_id in self.session_ids:
            expected |= {session_id, f"{session_id}/pane", f"{session_id}/transcript"}
        present = {ref.name.partition("#")[0] for ref in system.refs()}
        if present != expected:
            self.faults.append(
                f"C61: actors left over {sorted(present - expected)}, missing {sorted(expected - present)}"
            )
        if system.timers.live():
            keys = [(cell.ref.name, key) for cell in system._cells.values() for key in (cell._timers or ())]
            self.faults.append(f"C61: timers left over: {keys}")
        waiting = {ref.name: ref._cell.mailbox.waiting() for ref in system.refs() if ref._cell.mailbox.waiting()}
        if waiting:
            self.faults.append(f"C61: mail left over: {waiting}")

    def close(self) -> None:
        self.eyes.close()
        report = self.runtime.close()
        if report.sessions_left or report.actors_abandoned:
            self.faults.append(f"C61: left at close: {report}")

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):
            self.close()


def _done(asked: Asked) -> bool:
    return asked.submit.outcome is not None and asked.submit.outcome.done()


def _refuse(submit: Submit) -> None:
    error = LastwordError("session_closed", "the session takes nothing")
    for future in (submit.reply, submit.outcome):
        if future is not None and not future.done():
            future.set_exception(error)


__all__ = ["Asked", "Run"]
