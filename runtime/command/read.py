"""``lastword read``: a provider's own record files as a list of turns. Starts nothing, needs no journal."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from lastword.actors.core.adapter import Reader, SourceSpec
from lastword.actors.core.errors import UsageError
from lastword.actors.core.facts import Fact, UnknownRecord
from lastword.actors.core.reading import ReadTurn, merged, read_turns
from lastword.runtime.command._show import as_json, one_line, out, table
from lastword.runtime.command._whose import HEAD_BYTES, fits

CHUNK_BYTES = 1024 * 1024
"""Read at a time: a record of any length costs the longest line, not the file."""


def find_reader(provider: str) -> Reader:
    """The reader of that provider's record.

    Raises:
        UsageError: ``unknown_provider``.
    """
    from lastword.transports.providers.readers import READERS  # noqa: PLC0415 - known providers are loaded for this alone

    reader = READERS.get(provider)
    if reader is None:
        raise UsageError(
            "unknown_provider",
            f"no provider is called {provider!r}",
            remedy=f"Known here: {', '.join(sorted(READERS))}",
            provider=provider,
        )
    return reader


def read_files(
    provider: str, files: Sequence[str | os.PathLike[str]], *, chunk_bytes: int = CHUNK_BYTES
) -> list[ReadTurn]:
    """The turns that these files of one conversation tell, in order of start.

    The files are told apart by what is in them, so their order says nothing: each is read by an oracle of its own, and
    the one whose first record is older comes first; a file of nothing but sub-agents' records has no turn. A turn told
    in two files is listed once. The files are taken as they stand: nobody is thought to be writing on.

    Raises:
        UsageError: ``unknown_provider``; ``file_unreadable``, whatever stands in the others: it cannot be read, or
            nothing in it is of that provider.
    """
    reader = find_reader(provider)
    read: list[tuple[float, str, list[ReadTurn]]] = []
    seen: set[tuple[int, int]] = set()
    for file in files:
        path = Path(file)
        reading = _Reading(reader, path, chunk_bytes, seen)
        turns = read_turns(reading.facts())
        if reading.unknown and not reading.told:
            raise _of_another(provider, path)
        read.append((reading.first_at, path.name, turns))
    return merged(turns for _, _, turns in sorted(read, key=lambda item: item[:2]))


def find_provider(files: Sequence[Path]) -> str:
    """Whose record these files are: that of the first that tells.

    Raises:
        UsageError: ``file_unreadable``: one cannot be read; none of them is of a form known here, or it is of several.
    """
    for path in files:
        whose = fits(_head(path))
        if len(whose) == 1:
            return whose[0]
        if whose:
            raise UsageError(
                "file_unreadable",
                f"{path} may be a record of {' or of '.join(whose)}: they write the same form",
                remedy=f"Name the provider: lastword read {whose[0]} {path}",
            )
    raise _of_nobody(files[0], "")


def _of_another(provider: str, path: Path) -> UsageError:
    whose = [name for name in fits(_head(path)) if name != provider]
    if not whose:
        return _of_nobody(path, provider)
    return UsageError(
        "file_unreadable",
        f"{path} is no record of {provider}: it reads as one of {' or of '.join(whose)}",
        remedy=f"lastword read {whose[0]} {path}",
        provider=provider,
    )


def _of_nobody(path: Path, provider: str) -> UsageError:
    from lastword.transports.providers.readers import RECORDS  # noqa: PLC0415 - late

    tried = ", ".join(sorted(reader.name for reader in RECORDS))
    return UsageError(
        "file_unreadable",
        f"{path} holds no turn in a form that is known here (tried: {tried})",
        remedy="Name a CLI's own record file, and the provider before it: lastword read PROVIDER FILE",
        provider=provider,
    )


def _head(path: Path) -> bytes:
    try:
        with open(path, "rb", buffering=0, opener=_open_quietly) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ValueError("not a regular file")  # noqa: TRY301 - told as the others are
            return stream.read(HEAD_BYTES)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError | ValueError) -> UsageError:
    why = getattr(error, "strerror", None) or str(error)
    return UsageError("file_unreadable", f"{path} cannot be read: {why}", remedy="Name a readable transcript file")


class _Reading:
    """One file on its way through an oracle."""

    def __init__(self, reader: Reader, path: Path, chunk_bytes: int, seen: set[tuple[int, int]]) -> None:
        self.first_at = float("inf")
        self.told = self.unknown = 0
        """Facts that say something, and records of which nothing is known."""
        self._path = path
        self._chunk_bytes = chunk_bytes
        self._seen = seen
        source = SourceSpec(kind="append-jsonl", path=str(path), root=str(path.parent))
        self._oracle = reader.oracle(source, "", 0)

    def facts(self) -> Iterator[Fact]:
        """Its facts, as they are read; nothing for a file that was given twice."""
        name = str(self._path)
        try:
            # without blocking: a FIFO would wait for a writer before it could be told apart
            with open(self._path, "rb", buffering=0, opener=_open_quietly) as stream:
                facts = os.fstat(stream.fileno())
                if not stat.S_ISREG(facts.st_mode):
                    raise ValueError("not a regular file")  # noqa: TRY301 - told as the others are
                key = (facts.st_dev, facts.st_ino)
                if key in self._seen:
                    return
                self._seen.add(key)
                while chunk := stream.read(self._chunk_bytes):
                    yield from self._noted(self._oracle.feed(name, chunk))
        except (OSError, ValueError) as error:
            raise _unreadable(self._path, error) from error
        yield from self._noted(self._oracle.eof(name))

    def _noted(self, facts: list[Fact]) -> list[Fact]:
        unknown = sum(isinstance(fact, UnknownRecord) for fact in facts)
        self.unknown += unknown
        self.told += len(facts) - unknown
        if self.first_at == float("inf"):
            for fact in facts:
                evidence = getattr(fact, "evidence", None)
                if evidence is not None and evidence.native_at is not None:
                    self.first_at = evidence.native_at
                    break
        return facts


def _open_quietly(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def _shown(turn: ReadTurn, number: int) -> tuple[str, ...]:
    text = turn.final_text if turn.final_text is not None else turn.error
    tools = ", ".join(f"{tool.name}:{tool.status}" for tool in turn.tools.values())
    asked = turn.input if turn.input is not None else f"({turn.origin or 'no text'})"
    joined = f" (+{len(turn.joined)})" if turn.joined else ""
    return (str(number), turn.status, one_line(asked, 40) + joined, one_line(tools, 40), one_line(text or "", 80))


@click.command("read")
@click.argument("words", nargs=-1, required=True, metavar="[PROVIDER] FILE...")
@click.option("--json", "json_form", is_flag=True, help='Print {"turns": [...]}.')
def command(words: tuple[str, ...], json_form: bool) -> None:
    """Turn PROVIDER's record FILEs (all of one conversation, in any order) into its turns.

    Without PROVIDER they are recognised, where one provider alone writes so.
    """
    provider, files = _named(words)
    turns = read_files(provider, files)
    if json_form:
        out(as_json({"turns": [turn.as_json() for turn in turns]}))
    elif not turns:
        out("no turn")
    else:
        rows = [_shown(turn, number) for number, turn in enumerate(turns, 1)]
        out(table(rows, ("#", "STATUS", "INPUT", "TOOLS", "FINAL TEXT OR ERROR")))


def _named(words: tuple[str, ...]) -> tuple[str, list[Path]]:
    """The provider and the files. A first word that is a file and no provider is the first of the files."""
    from lastword.transports.providers.readers import READERS  # noqa: PLC0415 - late

    first, *rest = words
    if first not in READERS and Path(first).exists():
        files = [Path(word) for word in words]
        return find_provider(files), files
    find_reader(first)
    if not rest:
        raise UsageError("usage", "no FILE is named", remedy=f"lastword read {first} FILE", provider=first)
    return first, [Path(word) for word in rest]
