"""CloseReport: what a runtime's end left behind."""

from __future__ import annotations

import msgspec


class CloseReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a runtime's end went: what is left, by name; all empty after a clean end.

    Attributes:
        sessions_left: sessions that did not end in time; the next runtime settles their turns.
        actors_abandoned, threads_left: what of this process did not end.
        processes_left: what lives in spite of SIGKILL, as ``pid (name)``.
        commits_left: batches that the journal's file did not take to the end; what they said is found again in the
            record by the next runtime.
        trace_lost: records that are not in the trace file: it could not be written, or more came than could be.
    """

    sessions_left: tuple[str, ...] = ()
    actors_abandoned: tuple[str, ...] = ()
    threads_left: tuple[str, ...] = ()
    processes_left: tuple[str, ...] = ()
    commits_left: int = 0
    trace_lost: int = 0

    @property
    def clean(self) -> bool:
        """Nothing is left; whatever the trace lacks."""
        return msgspec.structs.replace(self, trace_lost=0) == CloseReport()
