"""One host per state folder: two locks that the kernel ends with their holder, however it ends.

An flock on the folder itself is the fence: it depends on no name in it, so that deleting or replacing what lies there
lets nobody in. An flock on ``journal.lock`` stands beside it: it names the holder to those who are refused, and is the
fence alone where the file system locks no folders (NFS). Both belong to the kernel: a stopped host holds them, a dead
one does not, and a process in another container that shares the folder sees them where it runs on the same kernel.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import weakref
from pathlib import Path
from typing import Final

from lastword.actors.core.errors import JournalError

LOCK_NAME: Final = "journal.lock"
HOLDER_TRIES: Final = 5
HOLDER_PAUSE_S: Final = 0.01
"""So often, with that pause, a lock that is held is asked for again: somebody may only be looking whether it is
(:func:`held`), and the holder writes its pid just after it took it."""
_NO_FOLDER_LOCKS: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


class HostLock:
    """The hold of this process on a state folder. Not thread-safe.

    Raises:
        JournalError: ``journal_locked``: another process holds it.
        OSError: the folder or the lock's file cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._folder_fd: int | None = None
        self._file_fd: int | None = None
        self._elsewhere: list[int] = []
        try:
            self._folder_fd = self._take_folder()
            self._file_fd = self._take_file()
        except BaseException:
            self.forget()
            raise
        _HELD.add(self)

    @property
    def held(self) -> bool:
        """Whether this process took it and has not given it back; what stands at the paths by now is not looked at."""
        return self._file_fd is not None

    def keep(self) -> None:
        """Take again what by path is no longer ours: the lock's file was deleted, or the folder was, and made anew.

        A folder that was moved is not left for what stands at its path now: its journal is open, and its lock is the
        fence of that for as long.

        Raises:
            JournalError: ``journal_locked``: another host is there by now, or this process was forked off the holder;
                ``journal_unwritable``: the folder was moved.
            OSError: it cannot be opened.
        """
        if self._file_fd is None:
            raise JournalError(
                "journal_locked", f"this process does not hold {self.folder}: it was forked from its host"
            )
        if self._folder_fd is not None and not _stands_at(self.folder, self._folder_fd):
            if os.fstat(self._folder_fd).st_nlink:
                raise self._moved(self._folder_fd)
            before, self._folder_fd = self._folder_fd, self._take_folder()
            os.close(before)
        if not _stands_at(self.folder / LOCK_NAME, self._file_fd):
            before, self._file_fd = self._file_fd, self._take_file()
            if self._folder_fd is None and os.fstat(before).st_nlink:
                self._elsewhere.append(before)  # the fence, and moved: what is open there stays fenced
            else:
                os.close(before)

    def release(self) -> None:
        """Let the next host in. Idempotent."""
        if self._file_fd is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file_fd, 0)
        self.forget()

    def forget(self) -> None:
        """Close what is open of it, as a forked child does: the locks are the host's alone, and end with it however
        long the child lives.
        """
        for fd in (self._file_fd, self._folder_fd, *self._elsewhere):
            if fd is not None:
                os.close(fd)
        self._file_fd = self._folder_fd = None
        self._elsewhere.clear()

    def _take_folder(self) -> int | None:
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _lock(fd)
        except BlockingIOError:
            os.close(fd)
            raise self._locked() from None
        except OSError as error:
            os.close(fd)
            if error.errno in _NO_FOLDER_LOCKS:
                return None  # the file is the fence here
            raise
        return fd

    def _take_file(self) -> int:
        fd = os.open(self.folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(fd, 0o600)
            _lock(fd)
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            os.close(fd)
            raise self._locked() from None
        except OSError:
            os.close(fd)
            raise
        return fd

    def _moved(self, fd: int) -> JournalError:
        return JournalError(
            "journal_unwritable",
            f"the open state folder {self.folder} was moved to {Path(f'/proc/self/fd/{fd}').readlink()}",
            remedy="Move it back, or end this host and open it where it is now.",
        )

    def _locked(self) -> JournalError:
        pid = holder(self.folder)
        who = "another process" if pid is None else f"process {pid}"
        return JournalError(
            "journal_locked",
            f"the state folder {self.folder} is in use by {who}",
            remedy="Use that host, stop it, or choose another state folder.",
        )


def held(folder: Path) -> bool:
    """Whether a host holds that folder now, a stopped one too. Changes nothing, and is over at once.

    Raises:
        OSError: the folder cannot be opened.
    """
    for path, flags in ((folder, os.O_DIRECTORY), (folder / LOCK_NAME, 0)):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in _NO_FOLDER_LOCKS:
                raise
        finally:
            os.close(fd)
    return False


def holder(folder: Path) -> int | None:
    """Which process holds that folder, as far as it says so itself; None where it does not."""
    for attempt in range(HOLDER_TRIES):
        if attempt:
            time.sleep(HOLDER_PAUSE_S)
        with contextlib.suppress(OSError):
            text = (folder / LOCK_NAME).read_bytes()[:32].strip()
            if text.isdigit() and _lives(int(text)):
                return int(text)
    return None


def _lock(fd: int) -> None:
    for attempt in range(HOLDER_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt + 1 == HOLDER_TRIES:
                raise
            time.sleep(HOLDER_PAUSE_S)
        else:
            return


def _stands_at(path: Path, fd: int) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


_HELD: Final[weakref.WeakSet[HostLock]] = weakref.WeakSet()


def _forget_in_fork() -> None:
    for lock in list(_HELD):
        lock.forget()


os.register_at_fork(after_in_child=_forget_in_fork)
