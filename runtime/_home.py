"""The process that a runtime lives in. A process forked off it has the objects and none of the threads behind them."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from typing import Protocol

from lastword.actors.core.errors import UsageError

EXIT_GRACE_S = 1.0
"""Grace of the CLIs where the interpreter ends and nobody closed the runtime."""


class Closes(Protocol):
    """What has an end that somebody should see to."""

    def close(self, *, grace_s: float) -> object: ...


def check_home(pid: int) -> None:
    """Whether this is the process ``pid``: whoever calls elsewhere would wait for threads that are not there.

    Raises:
        UsageError: ``forked``: it is another, forked off it.
    """
    if os.getpid() != pid:
        raise UsageError(
            "forked",
            f"the runtime belongs to process {pid}; this one was forked off it",
            remedy="Call it there, or reach its sessions through its socket (serve_socket=True)",
        )


def end_at_exit(runtime: Closes) -> None:
    """A host that ends without closing its runtime (``sys.exit``, an exception) leaves nothing behind; a child that it
    forked ends nothing.
    """
    known, pid = weakref.ref(runtime), os.getpid()

    def end() -> None:
        left = known()
        if left is not None and os.getpid() == pid:
            with contextlib.suppress(Exception):
                left.close(grace_s=EXIT_GRACE_S)

    atexit.register(end)
    weakref.finalize(runtime, atexit.unregister, end).atexit = False
