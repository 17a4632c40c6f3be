"""The journal's file: its folder, its lock, its permissions, its schema version. Knows nothing of what is in the rows.

One host per state folder: the writer holds its lock (:mod:`lastword.runtime._host_lock`). Readers of other processes
take no lock and write nothing. All failures are :class:`JournalError` with a kind and a remedy.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import sqlite3
import stat
import time
from importlib import resources
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import quote

from lastword.actors.core.errors import JournalError
from lastword.runtime._host_lock import LOCK_NAME, HostLock
from lastword.runtime._migrations import SCHEMA_VERSION, steps_from

Durability = Literal["power", "process"]
"""What a commit survives: ``power``: a power cut; ``process``: the death of this process, but no power cut."""

FILE_NAME: Final = "journal.db"
APPLICATION_ID: Final = 0x6C617374
"""Stands in the file's header, so that another program's SQLite file is never taken for a journal."""

BUSY_WAIT_S: Final = 0.25
"""How long one statement waits for another program's lock on the file (a person with an SQLite shell)."""

CHECKPOINT_PAGES: Final = 4000
"""The write-ahead log is folded into the file at about 16 MiB: rarer, since the commit that does it waits for it."""

WAL_BYTES_MAX: Final = 64 * 1024 * 1024
"""A write-ahead log that grew larger (a long reader held it up) is cut back to this."""

SETTLED_NS: Final = 1_000_000_000
"""A folder that changed so lately may change again without its stamp showing it: file systems count time in ticks."""

_CANNOT_WRITE: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM})
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PASSING: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR})


def translated(error: sqlite3.Error, doing: str, path: Path) -> JournalError:
    """The :class:`JournalError` for what SQLite said while ``doing`` that to ``path``. Carries no row content."""
    code = getattr(error, "sqlite_errorcode", None)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    primary = code & 0xFF if isinstance(code, int) else None
    if primary in _DAMAGED:
        return corrupt(path, f"while {doing}: {name}")
    if primary in _CANNOT_WRITE:
        return unwritable(path, f"while {doing}: {name}")
    if primary == sqlite3.SQLITE_FULL:
        return JournalError(
            "journal_full",
            f"no space is left for the journal {path} while {doing}",
            remedy="Free space on its file system; nothing was half written, and the next commit is tried afresh.",
        )
    return JournalError(
        "journal_failed",
        f"the journal {path} failed while {doing}: {name}",
        remedy="Check the device and who else has the file open.",
        retryable=primary in _PASSING,
    )


def corrupt(path: Path, detail: str) -> JournalError:
    """The error for a file that is no journal or is damaged."""
    return JournalError(
        "journal_corrupt",
        f"{path} is not a readable journal ({detail})",
        remedy="Move it away together with its -wal and -shm files, or choose another state folder.",
    )


def unreadable(path: Path, detail: str) -> JournalError:
    """The error for a journal that cannot be read by this user, or from this place."""
    return JournalError(
        "journal_failed",
        f"{path} cannot be read ({detail})",
        remedy="Read it as the user whose it is, or copy the whole folder to a place of your own and name that.",
    )


def unwritable(path: Path, detail: str) -> JournalError:
    """The error for a place that cannot be made or written."""
    return JournalError(
        "journal_unwritable",
        f"{path} cannot be written ({detail})",
        remedy="Choose a state folder that this user can write.",
    )


def linked(path: Path) -> JournalError:
    """The error for a file of the journal that stands somewhere else."""
    return JournalError(
        "journal_unsafe",
        f"{path} is a symbolic link",
        remedy="Move it away: the journal and its lock are files of the state folder itself.",
    )


def who_else_writes(folder: os.stat_result) -> str:
    """What is wrong with a state folder that somebody else could put files into; "" where nobody can.

    A group that is the user's own primary one may write: with a usual umask every folder is made so.
    """
    if folder.st_uid not in (os.getuid(), 0):
        return f"belongs to another user ({folder.st_uid})"
    if folder.st_mode & stat.S_IWOTH:
        return "can be written by every user"
    if folder.st_mode & stat.S_IWGRP and folder.st_gid != os.getgid():
        return f"can be written by the group {folder.st_gid}"
    return ""


class JournalFile:
    """An open, locked, migrated journal file (or one opened to be read only). Makes connections to it.

    ``folder`` is made with mode 0700 where it is missing; one that is there keeps its mode. The files in it are 0600.
    """

    def __init__(self, folder: Path, *, durability: Durability, readonly: bool) -> None:
        self.folder = folder
        self.path = folder / FILE_NAME
        self.durability: Durability = durability
        self.readonly = readonly
        self.journal_id = ""
        """Given once, when the journal was made; a copy has the same. "" where it was opened to be read only."""
        self._lock: HostLock | None = None
        if readonly:
            self._check_readable()
            return
        self._make_folder()
        self._lock = self._take_lock()
        try:
            self._make_file()
            self._bring_up_to_date()
            self.journal_id = self._named()
        except BaseException:
            self.release()
            raise

    def connect_writer(self) -> sqlite3.Connection:
        """A connection that writes; its caller keeps to one thread at a time, begins and commits by itself."""
        db = self._connect("rw")
        try:
            db.execute("PRAGMA journal_mode = WAL").fetchone()
            db.execute(f"PRAGMA synchronous = {'FULL' if self.durability == 'power' else 'NORMAL'}")
            db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}").fetchone()
            db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}").fetchone()
            db.execute("PRAGMA temp_store = MEMORY")
        except sqlite3.Error as error:
            db.close()
            raise translated(error, "opening it", self.path) from error
        return db

    def connect_reader(self) -> sqlite3.Connection:
        """A connection that can only read."""
        db = self._connect("ro")
        try:
            db.execute("PRAGMA query_only = ON")
            if self.readonly:
                db.execute("SELECT 1 FROM sqlite_schema").fetchone()
        except sqlite3.Error as error:
            db.close()
            code = getattr(error, "sqlite_errorcode", None)
            if not self.readonly or not isinstance(code, int) or code & 0xFF not in _CANNOT_WRITE:
                raise translated(error, "opening it to read", self.path) from error
            return self._connect_unwritable(error)
        return db

    def _connect_unwritable(self, error: sqlite3.Error) -> sqlite3.Connection:
        """Where nothing can be written, not even the index of the log that a reader shares with a writer: of a journal
        that was closed, that is one without a log, nobody needs it.
        """
        try:
            logged = Path(f"{self.path}-wal").stat().st_size > 0
        except FileNotFoundError:
            logged = False
        except OSError as unseen:
            raise unreadable(self.path, unseen.strerror or type(unseen).__name__) from unseen
        if logged:
            detail = "its write-ahead log is not folded in, and its folder cannot be written"
            raise unreadable(self.path, detail) from error
        return self._connect("ro", immutable=True)

    def release(self) -> None:
        """Give the folder free for another host. Idempotent."""
        if self._lock is not None:
            self._lock.release()

    # --- the file under our hands ---------------------------------------------------------------------------------

    def stamp(self) -> Stamp | None:
        """Which folder stands at the path, and when a name in it was last made, renamed or deleted: while two stamps
        are equal, the files at the paths of journal and lock are the same ones. None: that cannot be said now.
        """
        if self._lock is None or not self._lock.held:
            return None
        try:
            facts = self.folder.stat()
        except OSError:
            return None
        if time.time_ns() - facts.st_ctime_ns < SETTLED_NS:
            return None
        return facts.st_dev, facts.st_ino, facts.st_ctime_ns

    def identity(self) -> Identity:
        """Which files stand at the journal's paths now: the database, its write-ahead log and that one's index; None
        where none does.
        """
        return tuple(_identity(f"{self.path}{suffix}") for suffix in ("", "-wal", "-shm"))

    def keep_lock(self) -> None:
        """Take the lock again where its file was deleted, or the folder replaced.

        Raises:
            JournalError: ``journal_locked``: another host is there by now.
        """
        assert self._lock is not None
        try:
            self._lock.keep()
        except OSError as error:
            raise unwritable(self.folder, error.strerror or type(error).__name__) from error

    def restore(self, db: sqlite3.Connection, known: Identity) -> None:
        """A file of the journal was deleted under us: put back all that the open connection holds. ``known``: what
        it has open.

        A file that somebody else put in its place is never touched.

        Raises:
            JournalError: another file stands there, or the folder cannot be written.
            sqlite3.Error: the copy failed.
        """
        copy = self.path.with_name(f".{FILE_NAME}.restored")
        try:
            copy.unlink(missing_ok=True)
            os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            target = sqlite3.connect(copy, isolation_level=None)
            try:
                db.backup(target)
                target.execute("PRAGMA journal_mode = DELETE").fetchone()  # no log of its own may stay beside it
            finally:
                target.close()
            for suffix in ("-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            if _identity(str(self.path)) == known[0]:
                copy.replace(self.path)  # only its log was deleted
            else:
                os.link(copy, self.path)  # fails where a file stands there
            self._sync_folder()
        except FileExistsError as error:
            raise JournalError(
                "journal_unwritable",
                f"another file was put in the place of the open journal {self.path}",
                remedy="Move it away; the host puts its own back.",
            ) from error
        except OSError as error:
            raise unwritable(self.path, error.strerror or type(error).__name__) from error
        finally:
            with contextlib.suppress(OSError):
                copy.unlink(missing_ok=True)

    def _sync_folder(self) -> None:
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _connect(self, mode: Literal["rw", "ro"], *, immutable: bool = False) -> sqlite3.Connection:
        uri = f"file:{quote(str(self.path.absolute()))}?mode={mode}{'&immutable=1' if immutable else ''}"
        try:
            return sqlite3.connect(
                uri,
                uri=True,
                timeout=BUSY_WAIT_S,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=64,
            )
        except sqlite3.Error as error:
            raise translated(error, "opening it", self.path) from error

    def _make_folder(self) -> None:
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                self.folder.mkdir(mode=0o700)
            except FileExistsError:
                if self.folder.is_symlink() and not self.folder.exists():
                    raise unwritable(self.folder, "it is a link to a place that does not exist") from None
                if not self.folder.is_dir():
                    raise
            else:
                self.folder.chmod(0o700)  # whatever the umask left of it
            facts = self.folder.stat()
        except OSError as error:
            raise unwritable(self.folder, error.strerror or type(error).__name__) from error
        stranger = who_else_writes(facts)
        if stranger:
            mine = facts.st_uid == os.getuid()
            remedy = "Take that right away (chmod 700), or choose a state folder of your own."
            raise JournalError(
                "journal_unsafe",
                f"the state folder {self.folder} {stranger}",
                remedy=remedy if mine else "Choose a state folder of your own.",
            )

    def _take_lock(self) -> HostLock:
        try:
            return HostLock(self.folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise linked(self.folder / LOCK_NAME) from error
            raise unwritable(self.folder / LOCK_NAME, error.strerror or type(error).__name__) from error

    def _make_file(self) -> None:
        try:
            for suffix in ("-wal", "-shm"):
                if Path(f"{self.path}{suffix}").is_symlink():
                    raise linked(Path(f"{self.path}{suffix}"))
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.fchmod(fd, 0o600)
            finally:
                os.close(fd)
            for suffix in ("-wal", "-shm"):  # SQLite gives new ones the mode of the file itself
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{self.path}{suffix}").chmod(0o600)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise linked(self.path) from error
            raise unwritable(self.path, error.strerror or type(error).__name__) from error

    def _bring_up_to_date(self) -> None:
        db = self.connect_writer()
        try:
            version = self._version(db)
            if version == SCHEMA_VERSION:
                return
            if version == 0:
                script = resources.files("lastword.runtime").joinpath("_schema.sql").read_text(encoding="utf-8")
                self._run(db, f"{script}\nPRAGMA application_id = {APPLICATION_ID};", SCHEMA_VERSION)
                return
            for target, script in steps_from(version):
                self._run(db, script, target)
        except sqlite3.Error as error:
            raise translated(error, "bringing its schema up to date", self.path) from error
        finally:
            db.close()

    def _named(self) -> str:
        db = self.connect_writer()
        try:
            query = "SELECT value FROM meta WHERE key = 'journal_id'"
            if (row := db.execute(query).fetchone()) is None:
                insert = "INSERT OR IGNORE INTO meta (key, value) VALUES ('journal_id', ?)"
                db.execute(insert, (secrets.token_hex(8),))
                row = db.execute(query).fetchone()
            return str(row[0])
        except sqlite3.Error as error:
            raise translated(error, "naming it", self.path) from error
        finally:
            db.close()

    @staticmethod
    def _run(db: sqlite3.Connection, script: str, version: int) -> None:
        """One step and its version number, together or not at all."""
        stamp = f"INSERT OR REPLACE INTO meta (key, value) VALUES ('schema_version', '{version:d}');"  # noqa: S608 - a number
        try:
            db.executescript(f"BEGIN IMMEDIATE;\n{script}\n{stamp}\nCOMMIT;")
        except sqlite3.Error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _check_readable(self) -> None:
        try:
            there = stat.S_ISREG(self.path.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            there = False
        except OSError as error:
            raise unreadable(self.path, error.strerror or type(error).__name__) from error
        if not there:
            raise JournalError(
                "journal_failed",
                f"there is no journal at {self.path}",
                remedy="Name the state folder of a host that has run.",
            )
        db = self.connect_reader()
        try:
            version = self._version(db)
        except sqlite3.Error as error:
            raise translated(error, "opening it to read", self.path) from error
        finally:
            db.close()
        if version < SCHEMA_VERSION:
            raise JournalError(
                "journal_failed",
                f"{self.path} has schema version {version}, older than this program's {SCHEMA_VERSION}",
                remedy="Start a host of this version on it once: it brings the file up to date.",
            )

    def _version(self, db: sqlite3.Connection) -> int:
        """The schema version; 0 for an empty file."""
        (application_id,) = db.execute("PRAGMA application_id").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables == 0:
            return 0
        if application_id != APPLICATION_ID:
            raise corrupt(self.path, "it belongs to another program")
        row = db.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        if row is None or not str(row[0]).isdigit():
            raise corrupt(self.path, "it names no schema version")
        version = int(row[0])
        if version > SCHEMA_VERSION:
            raise JournalError(
                "journal_newer",
                f"{self.path} has schema version {version}; this program knows {SCHEMA_VERSION}",
                remedy="Upgrade lastword, or choose another state folder.",
            )
        return version


Stamp: TypeAlias = tuple[int, int, int]
Identity: TypeAlias = tuple[tuple[int, int] | None, ...]


def _identity(path: str) -> tuple[int, int] | None:
    try:
        facts = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unwritable(Path(path), error.strerror or type(error).__name__) from error
    return facts.st_dev, facts.st_ino
