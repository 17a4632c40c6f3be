"""The inotify source: one descriptor, one thread, one kernel watch per folder that holds a watched file.

inotify(7) through ctypes. It watches the *parent folders* of the files, so it sees appends, creation, atomic
replacement by rename and removal, at the cost of one watch per folder and none for the tree around it. A folder that
does not exist yet is waited for at its nearest existing ancestor, which is watched for new names only (no traffic
from what is written in ``$HOME``). Events are hints: what is ambiguous wakes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import threading
from collections.abc import Callable

from lastword.transports._guard import guarded

IN_MODIFY = 0x2
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_DELETE_SELF = 0x400
IN_MOVE_SELF = 0x800
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
IN_ONLYDIR = 0x1000000
IN_MASK_ADD = 0x20000000
_FILES_MASK = IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE
_FOLDERS_MASK = IN_CREATE | IN_MOVED_TO
_SELF_MASK = IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_MASK_ADD
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
_HEADER = struct.Struct("iIII")
READ_BYTES = 256 * 1024
JOIN_S = 2.0
PLACE_ROUNDS = 8
"""How often a path is placed anew when folders appear under our hands; then the sweep has it until the next one."""

_libc = ctypes.CDLL(None, use_errno=True)
_init = _libc.inotify_init1
_add_watch = _libc.inotify_add_watch
_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]
_rm_watch = _libc.inotify_rm_watch
_rm_watch.argtypes = [ctypes.c_int, ctypes.c_int]


def _identity(path: str) -> tuple[int, int] | None:
    try:
        facts = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


class _Folder:
    """One watched folder: the files in it that are wanted, and the paths that wait for a folder of that name."""

    __slots__ = ("files", "identity", "mask", "path", "waiting", "wd")

    def __init__(self, path: str) -> None:
        self.path = path
        self.wd = -1
        self.mask = 0
        self.identity: tuple[int, int] | None = None
        self.files: dict[str, set[str]] = {}
        self.waiting: dict[str, set[str]] = {}


class InotifySource:
    """See the module.

    Args:
        wake: called with a watched path, on the source's thread.
        lost: called when the kernel dropped events.

    Raises:
        OSError: no inotify instance can be had.
    """

    def __init__(self, wake: Callable[[str], None], lost: Callable[[], None]) -> None:
        self._wake_path = wake
        self._on_lost = lost
        self._lock = threading.Lock()
        self._fd = int(_init(os.O_NONBLOCK | os.O_CLOEXEC))
        if self._fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._stop = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._folders: dict[str, _Folder] = {}
        self._by_wd: dict[int, _Folder] = {}
        self._places: dict[str, tuple[_Folder, str, bool]] = {}
        """Path -> the folder that looks after it, the name there, and whether it is the file itself."""
        self._homeless: set[str] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="lastword-inotify", daemon=True)
        self._thread.start()

    @property
    def unwatched(self) -> int:
        return len(self._homeless)

    def add(self, path: str, root: str) -> None:  # noqa: ARG002 - only the file's own folder matters here
        with self._lock:
            if not self._closed and path not in self._places and path not in self._homeless:
                self._place(path)

    def remove(self, path: str, root: str) -> None:  # noqa: ARG002
        with self._lock:
            if not self._closed:
                self._homeless.discard(path)
                self._displace(path)

    def refresh(self) -> None:
        with self._lock:
            if self._closed:
                return
            for folder in set(self._folders.values()):
                # An ancestor that was renamed takes the watch away with it and tells nobody.
                if folder.files and _identity(folder.path) != folder.identity:
                    self._abandon(folder, remove=True)
            waiting = [path for path, (_, _, is_file) in self._places.items() if not is_file]
            for path in [*self._homeless, *waiting]:
                self._homeless.discard(path)
                self._displace(path)
                self._place(path)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            # Held: its thread, which may have seen the mark, closes the descriptor under the lock.
            os.eventfd_write(self._stop, 1)
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)

    # --- with the lock held ---------------------------------------------------------------------------------------

    def _place(self, path: str) -> None:
        """Watch the file's folder, or the nearest ancestor there is. Each step is tried: the tree may change."""
        for _ in range(PLACE_ROUNDS):
            parent, name = os.path.split(path)
            folder = os.path.realpath(parent)
            is_file = True
            while (watched := self._ensure(folder, _FILES_MASK if is_file else _FOLDERS_MASK)) is None:
                if ctypes.get_errno() not in _MISSING or folder == "/":
                    self._homeless.add(path)
                    return
                folder, name = os.path.split(folder)
                is_file = False
            side = watched.files if is_file else watched.waiting
            side.setdefault(name, set()).add(path)
            self._places[path] = (watched, name, is_file)
            # The next level may have come into being between the failed try and this watch.
            if is_file or not os.path.isdir(os.path.join(folder, name)):  # noqa: PTH112, PTH118
                return
            self._displace(path)
        self._homeless.add(path)

    def _ensure(self, path: str, mask: int) -> _Folder | None:
        folder = self._folders.get(path)
        if folder is not None and folder.mask & mask == mask:
            return folder
        ctypes.set_errno(0)
        wd = int(_add_watch(self._fd, os.fsencode(path), mask | _SELF_MASK))
        if wd < 0:
            return None
        if folder is None:
            # The same folder under another name (a bind mount) has the same number: both are told.
            folder = self._by_wd.get(wd) or _Folder(path)
            self._folders[path] = folder
        if folder.wd != wd and self._by_wd.get(folder.wd) is folder:  # another folder stands there by now
            del self._by_wd[folder.wd]
            _rm_watch(self._fd, folder.wd)
        folder.wd, folder.mask, folder.identity = wd, folder.mask | mask, _identity(path)
        self._by_wd[wd] = folder
        return folder

    def _displace(self, path: str) -> None:
        place = self._places.pop(path, None)
        if place is None:
            return
        folder, name, is_file = place
        side = folder.files if is_file else folder.waiting
        paths = side.get(name, set())
        paths.discard(path)
        if not paths:
            side.pop(name, None)
        if not folder.files and not folder.waiting:
            self._forget(folder)
            _rm_watch(self._fd, folder.wd)

    def _forget(self, folder: _Folder) -> None:
        if self._by_wd.get(folder.wd) is folder:
            del self._by_wd[folder.wd]
        for key in [key for key, value in self._folders.items() if value is folder]:
            del self._folders[key]

    def _abandon(self, folder: _Folder, *, remove: bool) -> set[str]:
        """The folder is gone or elsewhere: find new places for its paths."""
        self._forget(folder)
        if remove:
            _rm_watch(self._fd, folder.wd)
        paths = {path for side in (folder.files, folder.waiting) for some in side.values() for path in some}
        for path in paths:
            self._places.pop(path, None)
        for path in paths:
            self._place(path)
        return paths

    # --- the source's thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        try:
            while not self._closed:
                poll.poll()
                try:
                    data = os.read(self._fd, READ_BYTES)
                except BlockingIOError:
                    continue
                woken, lost = self._digest(data)
                for path in woken:
                    guarded(self._wake_path, path)
                if lost:
                    guarded(self._on_lost)
        finally:
            with self._lock:
                self._closed = True
                os.close(self._fd)
                os.close(self._stop)

    def _digest(self, data: bytes) -> tuple[dict[str, None], bool]:
        """The paths to wake, each once, in order; and whether events were lost."""
        woken: dict[str, None] = {}
        lost = False
        at = 0
        with self._lock:
            while at < len(data):
                wd, mask, _, size = _HEADER.unpack_from(data, at)
                at += _HEADER.size
                name = os.fsdecode(data[at : at + size].rstrip(b"\0"))
                at += size
                if mask & IN_Q_OVERFLOW:
                    lost = True
                    continue
                folder = self._by_wd.get(wd)
                if folder is None:
                    continue
                if mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF):
                    woken.update(dict.fromkeys(self._abandon(folder, remove=bool(mask & IN_MOVE_SELF))))
                    continue
                woken.update(dict.fromkeys(folder.files.get(name, ())))
                if mask & _FOLDERS_MASK:
                    for path in list(folder.waiting.get(name, ())):
                        self._displace(path)
                        self._place(path)
                        woken[path] = None
        return woken, lost
