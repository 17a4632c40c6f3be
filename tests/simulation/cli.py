"""A CLI in the simulation: thinks, uses tools, queues, absorbs, drops, asks, forgets, dies; and logs what it did."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from lastword.actors.core.adapter import DialogOpen
from lastword.actors.core.errors import LastwordError, TransportError
from lastword.actors.core.world import PressedKeys, RefusedKeys
from lastword.transports.memory import MemoryScreen
from lastword.transports.providers.memory import Record, Registry
from simulation.truth import Taken, Worked

if TYPE_CHECKING:
    from simulation.world import SimWorld

ERRORS = ("provider_error", "rate_limited", "authentication", "context_overflow", "refused")
BY_PERSON = "human "
"""How a text begins that a person types."""


class SimCli:
    """One process. Everything it does later it sets on the simulation's clock."""

    def __init__(self, world: SimWorld, native: str, pid: int, name: str) -> None:
        self.world, self.native, self.pid, self.pid_start, self.name = world, native, pid, pid, name
        self.pane_id = f"%{pid}"
        self.session = name.rpartition("-")[0]
        self.draft = ""
        self.dialog: DialogOpen | None = None
        self.turn: Worked | None = None
        self.queue: deque[Taken] = deque()
        self.starting = True
        self.alive = True
        self.status = ""
        self._exit: int | None = None
        self._on_exit: list[Callable[[int | None], None]] = []
        self._out: deque[tuple[bytes, Callable[[float], None] | None]] = deque()
        self._writing = False
        self._ops_until = 0.0
        self._paused: Callable[[], None] | None = None
        self._turns = 0
        self._dialogs = 0

    # --- shorthands -------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return f"{self.world.root}/{self.native}.jsonl"

    def _chance(self, odds: float) -> bool:
        return odds > 0.0 and self.world.random.random() < odds

    def _between(self, low: float, high: float) -> float:
        return self.world.random.uniform(low, high)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        def act() -> None:
            if self.alive:
                action()

        self.world.simulation.after(delay_s, act)

    # --- its life ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        weather = self.world.weather
        if self._chance(weather.dies_at_start):
            self._later(self._between(0.0, 1.0), lambda: self.exit(1))
        held = self.world.contents_or_empty(self.path)
        if held and not held.endswith(b"\n"):
            self.world.append(self.path, b"\n")  # the one before died within a line
        slow = self._between(0.5, 20.0) if self._chance(weather.slow_start) else self._between(0.0, 0.2)
        self._later(slow, self._started)

    def _started(self) -> None:
        self.starting = False
        self.tell_status("idle")
        if self._chance(self.world.weather.dialog_at_start):
            self.ask("trust")

    def exit(self, status: int | None) -> None:
        if not self.alive:
            return
        self.alive = False
        self._exit = status
        now = self.world.truth.died[self.pid] = self.world.wall()
        if self.turn is not None:
            self.turn.died_at = now
        for taken in self.queue:
            taken.fate = "died"
        callbacks, self._on_exit = self._on_exit, []
        for callback in callbacks:
            self.world.simulation.after(self.world.lag(), _call(callback, status))

    def on_exit(self, callback: Callable[[int | None], None]) -> None:
        if self.alive:
            self._on_exit.append(callback)
        else:
            callback(self._exit)

    def host_died(self) -> None:
        self._on_exit.clear()

    # --- its record -------------------------------------------------------------------------------------------

    def put(self, record: Record, then: Callable[[float], None] | None = None, *, lag_s: float = 0.0) -> None:
        """Write a line; lines keep their order, and may come late and in pieces."""
        line = msgspec.json.encode(msgspec.structs.replace(record, at=self.world.wall())) + b"\n"
        weather = self.world.weather
        if not lag_s and self._chance(weather.record_lags):
            lag_s = self._between(0.0, 0.3)
        if not self._writing and not lag_s and not self._chance(weather.torn):
            self._written(line, then)
            return
        self._out.append((line, then))
        if not self._writing:
            self._writing = True
            self._later(lag_s, self._pump)

    def _pump(self) -> None:
        line, then = self._out.popleft()
        if self._chance(self.world.weather.torn):
            cut = self.world.random.randrange(1, len(line))
            self.world.append(self.path, line[:cut])
            self._later(self._between(0.0, 0.3), lambda: self._finish_line(line[cut:], then))
        else:
            self._finish_line(line, then)

    def _finish_line(self, rest: bytes, then: Callable[[float], None] | None) -> None:
        self._written(rest, then)
        if self._out:
            self._later(0.0, self._pump)
        else:
            self._writing = False

    def _written(self, data: bytes, then: Callable[[float], None] | None) -> None:
        self.world.append(self.path, data)
        if then is not None:
            then(self.world.wall())

    @property
    def writing(self) -> bool:
        return self._writing

    def tell_status(self, status: str, waiting_for: str = "") -> None:
        self.status = status
        now = self.world.wall()
        registry = Registry(status=status, updated_at=now, session=self.native, waiting_for=waiting_for)
        self.world.replace(f"{self.world.root}/{self.pid}.json", msgspec.json.encode(registry))

    # --- its turns --------------------------------------------------------------------------------------------

    def start_turn(self, text: str, taken: tuple[Taken, ...], *, origin: str = "", queued: bool = False) -> None:
        self._turns += 1
        native = f"{self.native[:8]}-{self.pid}-{self._turns}"
        turn = Worked(
            native=native,
            session=self.session,
            conversation=self.native,
            pid=self.pid,
            text=text,
            origin=origin,
            started=self.world.wall(),
            takes=[each.text for each in taken],
        )
        for each in taken:
            each.fate, each.native = "turn", native
        self.turn = self.world.truth.turns[native] = turn
        self.tell_status("busy")
        record = Record(k="prompt", turn=native, text=text, origin=origin, status="queued" if queued else "")
        self.put(record, lambda at: setattr(turn, "prompt_at", at))
        self._next_step(turn, self.world.random.choice((0, 0, 0, 1, 2)))

    def _next_step(self, turn: Worked, left: int) -> None:
        quick = self.world.random.random() < 0.8
        think_s = self._between(0.0, 0.3) if quick else self._between(0.3, 12.0)
        self._later(think_s, lambda: self._step(turn, left))

    def _step(self, turn: Worked, left: int) -> None:
        if self.turn is not turn:
            return
        if self.dialog is not None:
            self._paused = lambda: self._step(turn, left)
            return
        weather = self.world.weather
        if self._chance(weather.dies):
            self.exit(-9)
            return
        if self._chance(weather.dialog):
            self._paused = lambda: self._step(turn, left)
            self.ask("permission")
            return
        if self.queue and self._chance(weather.absorbs):
            taken = self.queue.popleft()
            taken.fate, taken.native = "joined", turn.native
            turn.takes.append(taken.text)
            self.put(Record(k="joined", turn=turn.native, text=taken.text))
        if self.queue and self._chance(weather.drops):
            taken = self.queue.popleft()
            taken.fate = "dropped"
            self.put(Record(k="dropped", text=taken.text, status="removed"))
        if left <= 0:
            self._end(turn)
            return
        self._work(turn, left)

    def _work(self, turn: Worked, left: int) -> None:
        what = self.world.random.randrange(4)
        if what == 0:
            self.put(Record(k="said", turn=turn.native, text=f"S:{turn.native}:{left}"))
        elif what == 1:
            self.put(Record(k="retry", turn=turn.native, text="overloaded"))
        else:
            call = f"{turn.native}/{left}"
            if what == 2:  # text before the tool, in the manner of those who say what they are about to do
                self.put(Record(k="said", turn=turn.native, text=f"S:{turn.native}:{left}", final=True))
            self.put(Record(k="tool", turn=turn.native, call=call, name="Bash", text="{}"))
            result_s = self._between(0.0, 2.0)
            self._later(result_s, lambda: self._tool_end(turn, call, left))
            return
        self._next_step(turn, left - 1)

    def _tool_end(self, turn: Worked, call: str, left: int) -> None:
        if self.turn is not turn:
            return
        if self.dialog is not None:
            self._paused = lambda: self._tool_end(turn, call, left)
            return
        self.put(Record(k="tool_end", turn=turn.native, call=call, text=f"R:{call}", status="ok"))
        self._next_step(turn, left - 1)

    def _end(self, turn: Worked) -> None:
        weather = self.world.weather
        if self._chance(weather.hangs):
            return
        answer = "" if self._chance(weather.empty) else f"A:{turn.native}"
        if self._chance(weather.fails):
            turn.status, turn.error = "failed", self.world.random.choice(ERRORS)
            self._close(turn, Record(k="end", turn=turn.native, status="failed", error=turn.error))
            return
        turn.status, turn.answer = "completed", answer
        if answer:
            self.put(
                Record(k="said", turn=turn.native, text=answer, final=True), lambda at: setattr(turn, "answer_at", at)
            )
        if answer and self._chance(weather.no_end):
            self._rest(turn)
        else:
            self._close(turn, Record(k="end", turn=turn.native, text=answer, status="completed"))

    def _close(self, turn: Worked, record: Record) -> None:
        """The terminal record and the registry, in either order, a little apart."""
        weather = self.world.weather

        def ended(at: float) -> None:
            turn.end_at = turn.end_at or at

        lag_s = self._between(0.0, 0.15) if self._chance(0.3) else 0.0
        self.put(record, ended, lag_s=lag_s)
        if self._chance(weather.end_doubled):
            self.put(record)
        if self._chance(weather.end_repeated_later):
            self._later(self._between(0.0, 20.0), lambda: self._repeat(turn, record))
        self._rest(turn)

    def _repeat(self, turn: Worked, record: Record) -> None:
        if self.native == turn.conversation:
            self.put(record)

    def _rest(self, turn: Worked) -> None:
        """The turn is over; what waits in the queue comes next."""
        turn.idle_at = self.world.wall()
        self.turn = None
        self._paused = None
        self.tell_status("idle")
        if not self.queue:
            return
        taken = [self.queue.popleft()]
        if self._chance(self.world.weather.merges):
            while self.queue:
                taken.append(self.queue.popleft())
        self.start_turn("\n".join(each.text for each in taken), tuple(taken), queued=True)

    def by_itself(self) -> None:
        if self.alive and self.turn is None and not self.starting and self.dialog is None:
            self.start_turn("", (), origin="task_notification")

    # --- dialogs ----------------------------------------------------------------------------------------------

    def ask(self, kind: str) -> None:
        self._dialogs += 1
        self.dialog = DialogOpen(
            key=f"{kind}{self._dialogs}", kind=kind, question=f"{kind} {self._dialogs}?", options=("Yes", "No")
        )
        self.tell_status("waiting", self.dialog.question)
        shown = self.dialog
        if not self._chance(self.world.weather.host_answers):
            self._later(self._between(0.5, 30.0), lambda: self.answered(shown))
        else:
            self._later(90.0, lambda: self.answered(shown))  # the host never came to it

    def answered(self, shown: DialogOpen) -> None:
        if self.dialog is not shown:
            return
        self.dialog = None
        self.tell_status("busy" if self.turn else "idle")
        paused, self._paused = self._paused, None
        if paused is not None:
            self._later(0.0, paused)

    # --- a person ---------------------------------------------------------------------------------------------

    def person(self, text: str) -> None:
        """Types something when the box is free, looks at it for a while, and enters or clears it; what got mixed with
        another's text is cleared.
        """
        if not self.alive or self.starting or self.dialog is not None or self.draft:
            return
        self.draft = text

        def act() -> None:
            if not self.alive or not self.draft.startswith(text):
                return
            if self.dialog is not None:
                self._later(1.0, act)
            elif self.draft != text or self._chance(0.2):
                self.draft = ""
            else:
                self._enter(by="person")

        self._later(self._between(0.0, 6.0), act)

    def person_clears(self) -> None:
        if self.alive and not self.starting and self.dialog is None and not self.draft and self.turn is None:
            self._clear()

    def _clear(self) -> None:
        if self._writing:
            self._later(0.5, self._clear)
            return
        self.native += "+"
        self.tell_status("idle")

    # --- keys -------------------------------------------------------------------------------------------------

    def _key(self, key: str) -> None:
        if self.dialog is not None:
            if key.isdigit() or key == "Escape":
                self.answered(self.dialog)
            elif key == "Enter":
                self.world.truth.faults.append(f"{self.name}: Enter went into a dialog")
                self.answered(self.dialog)
            return
        match key:
            case "Enter":
                if not self._chance(self.world.weather.swallows_enter):
                    self._enter(by="host")
            case "Escape":
                self._escape()
            case "C-u":
                if self.draft.startswith(BY_PERSON):
                    self.world.truth.faults.append(f"{self.name}: a person's draft was cleared")
                self.draft = ""
            case _:
                self.draft += key

    def _enter(self, *, by: str) -> None:
        if self.starting:
            return
        text, self.draft = self.draft, ""
        if not text:
            return
        if text == "/clear":
            if self.turn is None:
                self._clear()
            return
        if BY_PERSON in text and not text.startswith(BY_PERSON):
            self.world.truth.faults.append(f"{self.name}: our text was mixed with a person's: {text!r}")
        taken = Taken(session=self.session, text=text, at=self.world.wall(), pid=self.pid, by=by)
        self.world.truth.taken.append(taken)
        if self.turn is not None:
            self.queue.append(taken)
            self.put(Record(k="queued", text=text))
        else:
            self.start_turn(text, (taken,))

    def _escape(self) -> None:
        turn = self.turn
        if turn is None or self._chance(self.world.weather.ignores_escape):
            return
        turn.interrupted_at = self.world.wall()
        turn.status = "cancelled"
        if self._chance(self.world.weather.silent_escape):
            self._rest(turn)
        else:
            self._close(turn, Record(k="end", turn=turn.native, status="cancelled"))

    # --- endpoint ---------------------------------------------------------------------------------------------

    def _op(self, op: Callable[[], Callable[[], None]]) -> None:
        """Commands to a pane run one after the other; each answers in its own time, never out of order."""
        now = self.world.simulation.monotonic()
        slow = self._between(0.0, 0.4) if self._chance(self.world.weather.slow_op) else 0.0
        at = max(now + slow, self._ops_until)
        if at <= now:
            op()()
            return
        self._ops_until = at
        self.world.simulation.after(at - now, lambda: op()())

    def _gone_error(self) -> LastwordError:
        return TransportError("transport_failed", "the process is gone", endpoint=self.pane_id)

    def _screen(self) -> MemoryScreen:
        if self.dialog is not None:
            head = "DIALOG " + msgspec.json.encode(self.dialog).decode()
        else:
            head = "STARTING" if self.starting else "BUSY" if self.turn else "READY"
        return MemoryScreen(lines=(head, *self.draft.split("\n")) if self.draft else (head,))

    def look(self, on_screen: Callable[[Any], None]) -> None:
        def op() -> Callable[[], None]:
            if not self.alive or self._chance(self.world.weather.look_fails):
                return _call(on_screen, self._gone_error())
            return _call(on_screen, self._screen())

        self._op(op)

    def paste(self, data: bytes, on_done: Callable[[LastwordError | None], None]) -> None:
        def op() -> Callable[[], None]:
            lost = not self.alive or self.starting or self.dialog is not None
            if not lost and not self._chance(self.world.weather.loses_paste):
                self.draft += data.decode()
            unsure = not self.alive or self._chance(self.world.weather.key_unsure)
            return _call(on_done, self._gone_error() if unsure else None)

        self._op(op)

    def press(self, *keys: str, on_done: Callable[[LastwordError | None], None]) -> None:
        def op() -> Callable[[], None]:
            if not self.alive:
                return _call(on_done, self._gone_error())
            for key in keys:
                self._key(key)
            return _call(on_done, self._gone_error() if self._chance(self.world.weather.key_unsure) else None)

        self._op(op)

    def look_then_press(self, check: Callable[[Any], bool], *keys: str, on_done: Callable[[Any], None]) -> None:
        def op() -> Callable[[], None]:
            if not self.alive:
                return _call(on_done, self._gone_error())
            if not check(self._screen()):
                return _call(on_done, RefusedKeys())
            for key in keys:
                self._key(key)
            unsure = self._chance(self.world.weather.key_unsure)
            return _call(on_done, self._gone_error() if unsure else PressedKeys())

        self._op(op)

    def close(self, grace_s: float, on_done: Callable[[], None]) -> None:
        if self._chance(0.5):
            self.exit(0)
            on_done()
        else:
            self.world.simulation.after(self._between(0.0, max(0.1, grace_s)), lambda: (self.exit(0), on_done()))


def _call(function: Callable[[Any], None], argument: Any) -> Callable[[], None]:
    return lambda: function(argument)
