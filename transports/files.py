"""Reading files of other programs: bytes with the identity of the file they came from. Never parses a byte.

No descriptor is kept: an idle session costs none. "There is no such file" and "could not look" are different values,
and a file that was replaced or cut short is told before any byte of it is handed out.
"""

from __future__ import annotations

import errno
import os
import stat

from lastword.actors.core.world import Bytes, FileRead, Missing, Rewritten, Unreadable
from lastword.transports.process import ProcessId, children

FAMILY_MAX = 32
"""Processes that are asked what they hold open."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_NO_SUCH = frozenset({errno.ENOENT, errno.ENOTDIR})


def read_from(path: str, offset: int, max_bytes: int, inode: int = 0, device: int = 0) -> FileRead:
    """Up to ``max_bytes`` bytes from ``offset`` on, empty at the end of the file.

    ``inode`` and ``device`` name the file that ``offset`` belongs to; 0 where it was not seen before. Answers
    ``Rewritten`` where the path names another file now, or the file is shorter than ``offset``; ``Unreadable`` too
    where its file system is away (its folder is gone, and what is above it is on another device).
    """
    try:
        fd = os.open(path, _FLAGS)
    except OSError as error:
        return _not_there(path, device) if error.errno in _NO_SUCH else Unreadable(_reason(error))
    try:
        # The size is taken after the bytes: a writer in between makes it larger than what was read, never smaller.
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            return Unreadable("not a regular file")
        if inode and (facts.st_ino, facts.st_dev) != (inode, device):
            moved_to = _find(os.path.dirname(path), inode, device)  # noqa: PTH120 - str on purpose
            return Rewritten(inode=facts.st_ino, device=facts.st_dev, reason="replaced", moved_to=moved_to)
        if facts.st_size < offset:
            return Rewritten(inode=facts.st_ino, device=facts.st_dev, reason="truncated")
        data = os.pread(fd, max_bytes, offset)
        size = max(os.fstat(fd).st_size, offset + len(data))
        return Bytes(data=data, offset=offset, size=size, inode=facts.st_ino, device=facts.st_dev)
    except OSError as error:
        return Unreadable(_reason(error))
    finally:
        os.close(fd)


def _not_there(path: str, device: int) -> Missing | Unreadable:
    """No such file. Where its folder is gone too, and another file system begins above it than the one that the file
    was on (``device``; 0 where it was not seen before), that one is not mounted now: nobody can look.
    """
    folder = os.path.dirname(os.path.realpath(path))  # noqa: PTH120 - str on purpose
    above = folder
    while device:
        try:
            found = os.stat(above).st_dev  # noqa: PTH116
        except OSError as error:
            if error.errno not in _NO_SUCH:
                return Unreadable(_reason(error))
            above = os.path.dirname(above)  # noqa: PTH120
            continue
        if above != folder and found != device:
            return Unreadable("the file system that it was on is not there")
        break
    return Missing()


def _find(folder: str, inode: int, device: int) -> str:
    """Where that file stands in the folder, by whatever name; "" where it does not."""
    try:
        with os.scandir(folder or ".") as entries:
            for entry in entries:
                if entry.inode() == inode and entry.is_file(follow_symlinks=False):
                    facts = entry.stat(follow_symlinks=False)
                    if (facts.st_ino, facts.st_dev) == (inode, device):
                        return entry.path
    except OSError:
        pass
    return ""


def read_small(path: str, max_bytes: int) -> bytes | None:
    """A small file, whole; None where it is missing, unreadable, not a regular file, or larger."""
    read = read_from(path, 0, max_bytes + 1)
    return read.data if isinstance(read, Bytes) and len(read.data) <= max_bytes else None


def find(root: str, suffix: str) -> str:
    """The one file anywhere below ``root`` whose name ends so; "" where there is none, or more than one."""
    found = ""
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith(suffix):
                if found:
                    return ""
                found = os.path.join(folder, name)  # noqa: PTH118 - a tree of thousands
    return found


def open_files(pid: int, pid_start: int) -> tuple[str, ...]:
    """Paths of the files that this very process holds open, and those that it started: a CLI may stand behind a wrapper
    (``/proc``). Empty where that cannot be seen.
    """
    paths: list[str] = []
    family = [pid]
    for member in family:
        paths += _open_files(member)
        family += children(member)[: FAMILY_MAX - len(family)]
    return tuple(paths) if ProcessId(pid, pid_start).is_alive() else ()


def _open_files(pid: int) -> list[str]:
    paths: list[str] = []
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                try:
                    target = os.readlink(entry.path)  # noqa: PTH115
                except OSError:
                    continue  # closed meanwhile
                if target.startswith("/"):
                    paths.append(target)
    except OSError:
        return []
    return paths


def _reason(error: OSError) -> str:
    return f"{errno.errorcode.get(error.errno or 0, 'EIO')}: {error.strerror}"


class LocalFiles:
    """The :class:`~lastword.actors.core.world.Files` of this machine. Stateless; safe from any thread."""

    def read_from(self, path: str, offset: int, max_bytes: int, inode: int, device: int) -> FileRead:
        return read_from(path, offset, max_bytes, inode, device)

    def read_small(self, path: str, max_bytes: int) -> bytes | None:
        return read_small(path, max_bytes)

    def find(self, root: str, suffix: str) -> str:
        return find(root, suffix)

    def open_files(self, pid: int, pid_start: int) -> tuple[str, ...]:
        return open_files(pid, pid_start)


class FileSource:
    """One path that remembers which file it read last: the first read binds it, :meth:`rebind` takes another.

    Not for several threads at a time.
    """

    def __init__(self, path: str, *, inode: int = 0, device: int = 0) -> None:
        self.path = path
        self.inode = inode
        self.device = device

    def read_from(self, offset: int, max_bytes: int) -> FileRead:
        """As :func:`read_from`, for the file bound."""
        read = read_from(self.path, offset, max_bytes, self.inode, self.device)
        if isinstance(read, Bytes):
            self.inode, self.device = read.inode, read.device
        return read

    def rebind(self, rewritten: Rewritten) -> None:
        """Go on with the file that stands there now; read it from its start."""
        self.inode, self.device = rewritten.inode, rewritten.device
