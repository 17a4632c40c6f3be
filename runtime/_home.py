"""The process that a runtime lives in. A process forked off it has the objects and none of the threads behind them."""

from __future__ import annotations

import os

from lastword.actors.core.errors import UsageError


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
