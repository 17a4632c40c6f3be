"""Who holds a process that outlives its host (docs/adr/0020): an flock on the process's own entry in ``/proc``.

Such a lock depends on no file that somebody could delete, copy or move: it is on the very thing that is fenced. The
kernel ends it with its holder, however that ends; a stopped host holds it; it dies with the process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
import weakref
from typing import Final

from lastword.transports.process import ProcessId

TRIES: Final = 5
PAUSE_S: Final = 0.01
"""So often, with that pause, a process that is held is asked for again: a host that was killed while it started a
child lives on in that one for a moment.
"""
_NO_LOCKS: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


class Claims:
    """The processes that one runtime holds. Thread-safe; blocks for a few hundredths of a second at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[ProcessId, int] = {}
        _ALL.add(self)

    def take(self, process: ProcessId) -> bool:
        """Hold it from here on; False where another runtime does. One that has ended is nobody's, and may be taken."""
        with self._lock:
            if process in self._held:
                return True
            try:  # environ: no other user may open it, and so keep us out
                fd = os.open(f"/proc/{process.pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return True
            try:
                _flock(fd)
            except BlockingIOError:
                os.close(fd)
                return not process.is_alive()
            except OSError as error:
                os.close(fd)
                if error.errno not in _NO_LOCKS:
                    raise
                return True  # this kernel has no such locks: nobody holds any
            self._held[process] = fd
            return True

    def drop(self, process: ProcessId) -> None:
        """Let the next host have it. Idempotent."""
        with self._lock:
            fd = self._held.pop(process, None)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        """Let go of all, as a forked child does: they are the host's alone. Idempotent."""
        held, self._held = self._held, {}
        for fd in held.values():
            os.close(fd)


def _flock(fd: int) -> None:
    for left in range(TRIES - 1, -1, -1):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not left:
                raise
            time.sleep(PAUSE_S)
        else:
            return


_ALL: Final[weakref.WeakSet[Claims]] = weakref.WeakSet()


def _forget_in_fork() -> None:
    for claims in list(_ALL):
        claims.close()


os.register_at_fork(after_in_child=_forget_in_fork)
