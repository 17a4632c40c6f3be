"""How the program of a pane ended: tmux is asked for its exit status until it knows, or for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable

from lastword.transports._guard import guarded
from lastword.transports.tmux_control import Command, Reply
from lastword.transports.tmux_pane import exit_status

STATUS_WAITS_S = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Waits before each question for an exit status: tmux learns of a death later than our pidfd, under load much later."""


def ask_exit_status(
    pane_id: str,
    pid: int,
    submit: Callable[[Command], None],
    nudge: Callable[[], None],
    on_exit: Callable[[int | None], None],
) -> None:
    """The process ``pid`` of that pane has ended: tell once how; minus a signal's number, None where nobody knows.

    Args:
        pane_id: of the pane.
        pid: of its program.
        submit: sends a command to the pane's server.
        nudge: sends that server a SIGCHLD.
        on_exit: called on the control client's thread.
    """
    form = "'#{pane_pid},#{pane_dead_status},#{pane_dead_signal}'"
    question = f"display-message -p -t {pane_id} {form}".encode()
    waits = iter(STATUS_WAITS_S)

    def told(reply: Reply) -> None:
        words = reply.text.split(",") if reply.ok else []
        ours = len(words) == 3 and words[0] == str(pid)
        status = exit_status(words[1], words[2]) if ours else None
        if ours and status is None:
            ask()
        else:
            on_exit(status)

    def ask_again() -> None:
        # tmux 3.3a now and then misses the SIGCHLD of a child that dies right after its fork (seen on a busy
        # machine: a zombie and no status until the next child died). Another one makes it look; it does no harm.
        nudge()
        submit(Command(question, told))

    def ask() -> None:
        wait_s = next(waits, None)
        if wait_s is None:
            guarded(on_exit, None)
        elif wait_s == 0:
            submit(Command(question, told))
        else:
            timer = threading.Timer(wait_s, ask_again)
            timer.daemon = True
            timer.start()

    ask()
