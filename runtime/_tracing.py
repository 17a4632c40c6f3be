"""A host's trace, switched on and off while it runs."""

from __future__ import annotations

import errno
import os
import threading

from lastword.actors.core.errors import UsageError
from lastword.actors.system.system import ActorSystem
from lastword.actors.system.tracing import JsonlTracer
from lastword.runtime._hub import Hub


class HostTrace:
    """Which file a runtime is traced to. Every method is safe from any thread."""

    def __init__(self, tracer: JsonlTracer | None, system: ActorSystem, hub: Hub) -> None:
        self._system = system
        self._hub = hub
        self._tracer = tracer
        self._lost_before = 0
        self._switching = threading.Lock()
        hub.tracer = tracer

    @property
    def lost(self) -> int:
        """Records that are in no file, of all traces so far."""
        tracer = self._tracer
        return self._lost_before + (tracer.lost if tracer is not None else 0)

    def switch(self, path: str | os.PathLike[str] | None) -> None:
        """Write to that file from now on, or to none. What was handed in so far is in the file before.

        Raises:
            UsageError: ``usage``: it cannot be written; the trace before goes on.
        """
        with self._switching:
            tracer = open_trace(path) if path is not None else None
            before, self._tracer = self._tracer, tracer
            self._system.set_tracer(tracer)
            self._hub.tracer = tracer
            if before is not None:
                before.close()
                self._lost_before += before.lost

    def closed(self) -> None:
        """The system has ended, and closed its tracer."""
        self._hub.tracer = None


def open_trace(path: str | os.PathLike[str]) -> JsonlTracer:
    """A tracer that writes to that file.

    Raises:
        UsageError: ``usage``: it cannot be written, is a link, no trace, or another's.
    """
    try:
        return JsonlTracer(os.path.abspath(path))  # noqa: PTH100 - what is no path is refused, and so is a descriptor
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise UsageError("usage", f"the trace file {path!s} cannot be written: {why}") from error
    except (TypeError, ValueError) as error:
        raise UsageError("usage", f"{path!r} is no path of a trace file") from error
