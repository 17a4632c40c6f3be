"""``lastword top``: the sessions of a state folder, live. It asks the host as ``lastword metrics`` does, or reads the
journal where none lives; it changes nothing.
"""

from __future__ import annotations

import os
import signal
import time
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from lastword.runtime._top import LINES_MAX, Look, Sort
from lastword.runtime.command._show import as_json, default_state, out, state_option, table

if TYPE_CHECKING:
    from lastword.runtime.command._terminal import Terminal
    from lastword.runtime.command._top_feed import Feed, Sight
    from lastword.runtime.command._top_screen import Painter

INTERVAL_S: Final = 1.0
INTERVAL_MIN_S: Final = 0.2
INTERVAL_MAX_S: Final = 3600.0
IDLE_WAIT_S: Final = 0.5
"""The longest wait without a new frame: ages are seen to grow though nobody answers."""


@click.command("top")
@click.option("--once", is_flag=True, help="Print one table, and end; needs no terminal.")
@click.option("--json", "json_form", is_flag=True, help="Print one JSON object, and end.")
@click.option(
    "--sort",
    type=click.Choice(["state", "age", "latency", "name"]),
    default="state",
    show_default=True,
    help="What comes first: who wants a look, the longest in its state, the slowest last completion, the first name.",
)
@click.option(
    "--lines",
    type=click.IntRange(0, LINES_MAX),
    default=LINES_MAX,
    show_default=True,
    help="Sessions of --once and --json at most.",
)
@click.option(
    "--interval",
    type=click.FloatRange(INTERVAL_MIN_S, INTERVAL_MAX_S),
    default=INTERVAL_S,
    show_default=True,
    help="Seconds between two looks.",
)
@state_option
def command(once: bool, json_form: bool, sort: Sort, lines: int, interval: float, state: Path | None) -> None:
    """Show the sessions of the state folder, live: q quits, s a l n sort, the arrows and page keys scroll."""
    if not isfinite(interval):  # a range has room for what is no number
        raise click.BadParameter("not a number of seconds", param_hint="--interval")
    folder = state or default_state()
    if once or json_form:
        _once(folder, Look(lines=lines, sort=sort), json_form=json_form)
    else:
        _live(folder, sort, interval)


def _once(folder: Path, look: Look, *, json_form: bool) -> None:
    from lastword.runtime.command import _top_lines as lines  # noqa: PLC0415 - rich is loaded for this alone
    from lastword.runtime.command._top_feed import Looker  # noqa: PLC0415

    sight = Looker(folder).look(look)
    top = sight.top
    if top is None:
        assert sight.error is not None
        raise sight.error
    if json_form:
        host = {"state": sight.host.state, "pid": sight.host.pid}
        out(as_json({"host": host, "note": sight.note, **msgspec.to_builtins(top)}))
        return
    for line in lines.flowed(lines.header(sight, lines.View(folder=str(folder)), sight.seen_mono_s), 100):
        out("".join(text for text, _ in line))
    rows = [tuple(column.cell(each) for column in lines.COLUMNS) for each in top.lines]
    out(table(rows, tuple(column.name for column in lines.COLUMNS)))
    if len(top.lines) < top.total:
        out(f"{len(top.lines)} of {top.total} sessions")


def _live(folder: Path, sort: Sort, interval_s: float) -> None:
    from lastword.runtime.command._terminal import Terminal  # noqa: PLC0415 - only where there is a terminal
    from lastword.runtime.command._top_feed import Feed, Looker  # noqa: PLC0415

    terminal, looker = Terminal(), Looker(folder)
    first = looker.look(Look(lines=terminal.size()[1], sort=sort))
    if first.error is not None:
        raise first.error
    with Feed(looker) as feed, terminal:
        ended_by = _Screen(terminal, feed, str(folder), sort, interval_s, first).run()
    if ended_by == signal.SIGINT:
        raise KeyboardInterrupt
    if ended_by:
        signal.signal(ended_by, signal.SIG_DFL)
        os.kill(os.getpid(), ended_by)


class _Screen:
    """The loop: keys, signals and sights in, frames out. Every wait is bounded."""

    def __init__(
        self, terminal: Terminal, feed: Feed, folder: str, sort: Sort, interval_s: float, first: Sight
    ) -> None:
        from lastword.runtime.command import _top_lines as lines  # noqa: PLC0415
        from lastword.runtime.command._terminal import ENDS  # noqa: PLC0415

        self._ends = ENDS
        self._terminal = terminal
        self._feed = feed
        self._interval_s = interval_s
        self._lines = lines
        self._view = lines.View(sort=sort, folder=folder)
        self._painter: Painter | None = None
        self._sight = first
        self._head = 0
        self._due_s = 0.0

    def run(self) -> int:
        """Until somebody ends it: the signal, or 0."""
        while True:
            now_s = time.monotonic()
            if now_s >= self._due_s:
                self._want(now_s)
            self._draw(now_s)
            self._terminal.wait(self._feed.fd, min(self._due_s - now_s, IDLE_WAIT_S))
            for number in self._terminal.signals():
                if number in self._ends:
                    return number
                if number == signal.SIGTSTP:
                    self._terminal.suspend()
                elif number == signal.SIGCONT:
                    self._terminal.resume()
                self._painter = None
            if self._terminal.hung_up:
                return signal.SIGHUP
            for key in self._terminal.pressed():
                if key in ("q", "Q"):
                    return 0
                self._pressed(key)
            self._sight = self._feed.take() or self._sight

    def _pressed(self, key: str) -> None:
        if key == "\x0c":
            self._painter = None
            return
        total = self._sight.top.total if self._sight.top is not None else 0
        view = self._view.pressed(key, total)
        if view is not None and view != self._view:
            self._view = view
            self._want(time.monotonic())

    def _want(self, now_s: float) -> None:
        self._due_s = now_s + self._interval_s
        self._feed.want(self._view.look())

    def _draw(self, now_s: float) -> None:
        if not self._terminal.ready:
            return
        from lastword.runtime.command._top_screen import Painter  # noqa: PLC0415

        width, height = size = self._terminal.size()
        if self._painter is None or self._painter.size != size:
            self._painter, self._head = Painter(width, height), 0
        # it only grows while the terminal stays as it is: rows that come and go with a figure's length would be no list
        self._head = max(self._head, self._lines.head_of(self._sight, self._view, width, height, now_s))
        rows = max(0, height - self._head - 2)
        if rows != self._view.rows:
            self._view = msgspec.structs.replace(self._view, rows=rows)
            self._want(now_s)
        text = self._painter.paint(self._lines.frame(self._sight, self._view, width, height, now_s, head=self._head))
        if text:
            self._terminal.send(text)
