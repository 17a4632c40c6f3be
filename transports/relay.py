"""A relay: the process that copies what a child says on a pipe into its stream file, and outlives the host.

Some programs refuse a regular file as their stdout (asyncio's ``connect_write_pipe`` does). They get a pipe, and at its
other end stands ``cat``, in a session of its own: nobody in the host reads it, so nothing that the child says is lost
when the host dies, and a slow host stops nobody (docs/adr/0009). It ends by the end of the pipe: once no process holds
the child's stdout any more, all that was said is in the file. Parses nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from lastword.transports.family import Carrier, carriers
from lastword.transports.process import ProcessId, pid_start

RELAY = "LASTWORD_RELAY"
"""In the environment of a relay, and of nothing else: whose stream file it writes."""
DRAIN_S = 5.0
"""Once a child and all that it started are gone: how long the copy may take, before a stranger that holds the pipe is
waited for no longer."""
KILLED_S = 1.0


class Relay:
    """One relay of this process's, or of an earlier host's. Thread-safe."""

    def __init__(self, process: ProcessId, popen: subprocess.Popen[bytes] | None = None) -> None:
        self.process = process
        self._popen = popen

    @classmethod
    def start(cls, stem: str, out: int, err: int) -> tuple[Relay, int]:
        """One that writes to ``out``, and the end of the pipe that is the child's stdout: to be closed here once the
        child has it. ``err``: where it says what it could not do.

        Raises:
            OSError: it cannot be started.
        """
        program = shutil.which("cat", path=os.defpath) or shutil.which("cat")
        if program is None:
            raise FileNotFoundError(2, "there is no program cat, which copies what the CLI says")
        reading, writing = os.pipe()
        try:
            popen = subprocess.Popen(
                [program],
                stdin=reading,
                stdout=out,
                stderr=err,
                cwd="/",
                env={RELAY: stem},
                start_new_session=True,  # no signal to the host's terminal, and none to the child's group, ends it
            )
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        return cls(ProcessId(popen.pid, pid_start(popen.pid) or 0), popen), writing

    def end(self) -> bool:
        """Wait until all that was said is in the file, :data:`DRAIN_S` at most; then end it. False where it lives in
        spite of that. Nothing but it may hold the pipe by then.
        """
        gone = self.process.wait(DRAIN_S)
        if not gone:
            self.process.send(signal.SIGKILL)
            gone = self.process.wait(KILLED_S)
        self.reap()
        return gone

    def reap(self) -> None:
        """It has ended: leave no zombie."""
        if self._popen is not None:
            self._popen.poll()


def left_relays(folder: Path) -> dict[str, ProcessId]:
    """Relays that live and write to a stream of that folder, by the stream's name."""
    prefix = f"{folder}{os.sep}"
    found: list[Carrier] = [each for each in carriers(RELAY) if each.value.startswith(prefix)]
    return {each.value.removeprefix(prefix): each.process for each in found}


__all__ = ["DRAIN_S", "RELAY", "Relay", "left_relays"]
