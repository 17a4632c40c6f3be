"""A fence around callbacks: what a caller's callback raises never ends the edge's own thread.

It logs the kind of the exception and where it was raised, never its text: that may hold a prompt (C62).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def guarded(callback: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> bool:
    """Call ``callback``; False where it raised (logged, swallowed). Lock-free: hold no lock of your own either."""
    try:
        callback(*args, **kwargs)
    except Exception as error:
        from loguru import logger  # noqa: PLC0415 - a host that never meets this pays no import

        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else "?"
        logger.error("a transport callback raised {} at {}", type(error).__name__, where)
        return False
    return True
