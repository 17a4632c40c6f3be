"""One pane: look, paste, press, close. Verbs answer by callback on the control client's reader thread.

The pane's process *is* the CLI (tmux executes its argv, no shell between), so ``pid`` is the CLI's. Keys and pastes
go through a guard that tmux itself evaluates in the same step: to a dead pane nothing is sent (``paste-buffer`` into
one crashes the whole tmux 3.3a server, tried), and while a person is in copy mode neither.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from lastword.actors.core.errors import LastwordError, RejectedError, TransportError, TransportTimeoutError, UsageError
from lastword.actors.core.world import PressedKeys, RefusedKeys
from lastword.transports._closing import Closing
from lastword.transports.family import Ended, end_families
from lastword.transports.process import ProcessId
from lastword.transports.tmux_control import NO_REPLY, REPLY_TIMEOUT_S, Command, Reply, quote

Pressed = PressedKeys
Refused = RefusedKeys

PANE_KILL_TIMEOUT_S = 1.0
PASTE_BYTES_MAX = 4 * 1024 * 1024
_KEY = re.compile(
    r"(?:[CMS]-)*(?:Enter|Escape|Tab|BTab|Space|BSpace|Up|Down|Left|Right|Home|End|PageUp|PageDown|PPage|NPage"
    r"|DC|IC|F(?:1[0-2]|[1-9])|[!-~])"
)
"""A word that tmux does not know as a key is typed letter by letter, so only known ones are let through."""
_REFUSED_BYTES = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Control characters other than tab, LF and CR. ESC could end the brackets of a paste; tmux 3.7 rewrites it."""
_LOOK = (
    "'#{cursor_x},#{cursor_y},#{pane_in_mode},#{alternate_on},#{pane_dead},#{pane_dead_status},"
    "#{pane_dead_signal},#{pane_height},#{pane_title}'"
)
_GUARD = "'#{||:#{pane_dead},#{||:#{pane_in_mode},#{pane_input_off}}}'"
_GUARD_SAYS = "'#{pane_dead},#{pane_in_mode},#{pane_input_off}'"


class Screen(msgspec.Struct, frozen=True, kw_only=True):
    """The visible part of a pane at one moment.

    Attributes:
        lines: as many as the pane is high, trailing blanks of each removed by tmux.
        in_copy_mode: a person scrolls (or tmux shows a mode of its own); the lines are the program's all the same.
        dead: the program ended and tmux has read all that it wrote: the lines are its last words. Its exit status may
            be known a moment sooner (seen with tmux 3.3a: 2 of 80 under load).
        exit_status: of a dead program where tmux knows it; minus the number of the signal that ended it.
    """

    lines: tuple[str, ...]
    title: str
    in_copy_mode: bool
    cursor: tuple[int, int]
    alternate: bool
    dead: bool = False
    exit_status: int | None = None


class PaneOwner(Protocol):
    """What a pane asks of its server."""

    def submit_all(self, *commands: Command) -> None: ...

    def marks(self, pane_id: str) -> tuple[bytes, ...]: ...

    def forget(self, pane: PaneHandle) -> None: ...


def reply_error(reply: Reply, what: str, endpoint: str = "") -> TransportError:
    """The error for a failed reply. tmux's text says what is missing, never what was typed."""
    if reply.lines == (NO_REPLY,):
        return TransportTimeoutError(what, REPLY_TIMEOUT_S, endpoint=endpoint)
    return TransportError("transport_failed", f"{what}: {reply.text}", endpoint=endpoint)


def exit_status(status: str, number: str) -> int | None:
    """Exit status from tmux's two words for it (one of them empty); None where it does not know yet."""
    if status.isdigit():
        return int(status)
    return -int(number) if number.isdigit() else None


class PaneHandle:
    """A pane that we opened (or found again). Thread-safe; nothing blocks.

    Attributes:
        pid_start: start time of the CLI; 0 where it had ended before it could be looked at.
    """

    def __init__(self, owner: PaneOwner, *, pane_id: str, pid: int, pid_start: int, name: str) -> None:
        self.pane_id = pane_id
        self.pid = pid
        self.pid_start = pid_start
        self.name = name
        self._owner = owner
        self._lock = threading.Lock()
        self._pastes = 0
        self._closing = Closing(self._end, lambda: owner.forget(self))

    def __repr__(self) -> str:
        return f"<pane {self.pane_id} {self.name!r} pid {self.pid}>"

    @property
    def process(self) -> ProcessId:
        """Who the CLI is, pid reuse or not."""
        return ProcessId(self.pid, self.pid_start)

    # --- look -----------------------------------------------------------------------------------------------------

    def look(self, on_screen: Callable[[Screen | TransportError], None]) -> None:
        """The visible screen, title, cursor and modes, all of one moment: tmux takes both commands in one step."""
        facts: list[Reply] = []

        def captured(reply: Reply) -> None:
            if not reply.ok or not facts[0].ok:
                on_screen(reply_error(reply if not reply.ok else facts[0], "look", self.pane_id))
                return
            on_screen(_screen(facts[0].lines, reply.lines))

        self._owner.submit_all(
            Command(f"display-message -p -t {self.pane_id} {_LOOK}".encode(), facts.append),
            Command(f"capture-pane -p -t {self.pane_id}".encode(), captured, height=lambda: _height(facts)),
        )

    # --- paste ----------------------------------------------------------------------------------------------------

    def paste(self, data: bytes, on_done: Callable[[LastwordError | None], None]) -> None:
        """Put ``data`` into the CLI's input as one bracketed paste, byte for byte.

        Done means that tmux has handed it to the pane, not that the CLI has read it. A CLI that did not ask for
        bracketed paste gets it without brackets, line ends being Enter: paste only to one that looks ready. The tmux
        buffer is gone afterwards, whatever happened. Answered with kind ``unsupported_text`` for control characters
        other than tab, LF and CR, and for more than ``PASTE_BYTES_MAX``.
        """
        if not data:
            on_done(None)
            return
        if len(data) > PASTE_BYTES_MAX or _REFUSED_BYTES.search(data):
            why = "control characters" if len(data) <= PASTE_BYTES_MAX else f"more than {PASTE_BYTES_MAX} bytes"
            on_done(RejectedError("unsupported_text", f"not pasted: it holds {why}"))
            return
        with self._lock:
            self._pastes += 1
            buffer = f"lw{self.pane_id[1:]}-{self._pastes}"

        def pasted(reply: Reply) -> None:
            error = self._guard_error(reply, "paste")
            if error is not None:
                self._owner.submit_all(Command(f"delete-buffer -b {buffer}".encode(), _ignore))
            on_done(error)

        self._owner.submit_all(
            Command(f"set-buffer -b {buffer} -- ".encode() + quote(data), _ignore),
            self._guarded(f"paste-buffer -p -r -d -b {buffer} -t {self.pane_id}".encode(), pasted),
        )

    # --- press ----------------------------------------------------------------------------------------------------

    def press(self, *keys: str, on_done: Callable[[TransportError | None], None]) -> None:
        """Press keys by tmux's names (``Enter``, ``Escape``, ``C-u``, ``1``), in one step.

        Refused with an error, nothing pressed, where the pane is dead or in copy mode.

        Raises:
            UsageError: no key, or a word that names none.
        """
        self._owner.submit_all(
            self._guarded(self._send_keys(keys), lambda reply: on_done(self._guard_error(reply, "press")))
        )

    def look_then_press(
        self,
        check: Callable[[Screen], bool],
        *keys: str,
        on_done: Callable[[Pressed | Refused | TransportError], None],
    ) -> None:
        """Look, and press at once if ``check`` agrees with what is seen; it runs on the reader thread, be short.

        What is left between the look and the press: one pass through our reader and one through tmux (check to
        acknowledged press 0.12 ms at the median, 0.17 at p99, ``bench/tmux_typing.py``), in which the program may
        paint something else; and what it has painted but tmux has not read yet, which no terminal can know. That the
        pane is alive and not in copy mode is checked by tmux in the very step of the press.
        """
        command = self._send_keys(keys)

        def pressed(reply: Reply) -> None:
            error = self._guard_error(reply, "press")
            on_done(Refused() if isinstance(error, _GuardRefusedError) else error or Pressed())

        def seen(screen: Screen | TransportError) -> None:
            if isinstance(screen, TransportError):
                on_done(screen)
                return
            try:
                agreed = not screen.dead and not screen.in_copy_mode and check(screen)
            except Exception as error:
                reason = f"the check before the press raised {type(error).__name__}"
                on_done(TransportError("transport_failed", reason, endpoint=self.pane_id))
                return
            if agreed:
                self._owner.submit_all(self._guarded(command, pressed))
            else:
                on_done(Refused())

        self.look(seen)

    # --- close ----------------------------------------------------------------------------------------------------

    @property
    def ended(self) -> Ended | None:
        """What closing took, once closed."""
        return self._closing.ended

    def close(self, grace_s: float, on_done: Callable[[], None] | None = None) -> None:
        """End the CLI and everything it started, then the pane; ``on_done`` when all is over (:attr:`ended`).

        Gently first, hard after ``grace_s`` (:func:`~lastword.transports.family.end_families`). Idempotent: a later
        call joins the first. Everything is its session, its descendants, and whoever carries its ``TMUX_PANE``: a
        server that the CLI started and let go of as well. Runs on a thread of its own, bounded by the grace and about
        two seconds.
        """
        self._closing.begin(grace_s, on_done)

    def _end(self, grace_s: float) -> Ended:
        ended = end_families([self.process], self._owner.marks(self.pane_id), grace_s)
        gone = threading.Event()
        self._owner.submit_all(Command(f"kill-pane -t {self.pane_id}".encode(), lambda _: gone.set()))
        gone.wait(PANE_KILL_TIMEOUT_S)
        return ended

    # --- the guard ------------------------------------------------------------------------------------------------

    def _send_keys(self, keys: tuple[str, ...]) -> bytes:
        if not keys or not all(_KEY.fullmatch(key) for key in keys):
            raise UsageError("usage", f"not keys by tmux's names: {keys!r}")
        return b"send-keys -t %b -- " % self.pane_id.encode() + b" ".join(quote(key) for key in keys)

    def _guarded(self, command: bytes, on_reply: Callable[[Reply], None]) -> Command:
        line = b"if-shell -F -t %b %b %b %b" % (
            self.pane_id.encode(),
            _GUARD.encode(),
            quote(f"display-message -p -t {self.pane_id} {_GUARD_SAYS}"),
            quote(command),
        )
        return Command(line, on_reply, 2)

    def _guard_error(self, reply: Reply, what: str) -> TransportError | None:
        if not reply.ok:
            return reply_error(reply, what, self.pane_id)
        if not reply.lines:
            return None
        dead, mode, _ = (*reply.lines[0].split(b",", 2), b"", b"")[:3]
        why = "its program has ended" if dead == b"1" else "it is in copy mode" if mode != b"0" else "its input is off"
        return _GuardRefusedError("transport_failed", f"{what}: nothing sent to the pane, {why}", endpoint=self.pane_id)


class _GuardRefusedError(TransportError):
    """tmux itself refused in the step of the press."""


def _ignore(_: Reply) -> None:
    pass


def _height(facts: list[Reply]) -> int:
    """How high the pane was a step ago: so many lines its screen has."""
    words = facts[0].lines[0].split(b",", 8) if facts and facts[0].ok and facts[0].lines else []
    return int(words[7]) if len(words) == 9 and words[7].isdigit() else 0


def _screen(facts: tuple[bytes, ...], lines: tuple[bytes, ...]) -> Screen | TransportError:
    words = b"\n".join(facts).decode("utf-8", "replace").split(",", 8)
    if len(words) != 9 or not (words[0].isdigit() and words[1].isdigit()):
        return TransportError("transport_failed", "tmux described the pane in words that are not known")
    x, y, mode, alternate, dead, status, number, _, title = words
    return Screen(
        lines=tuple([line.decode("utf-8", "replace") for line in lines]),
        title=title,
        in_copy_mode=mode not in {"", "0"},
        cursor=(int(x), int(y)),
        alternate=alternate == "1",
        dead=dead == "1",
        exit_status=exit_status(status, number) if dead == "1" else None,
    )
