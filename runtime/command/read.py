"""``lastword read``: a provider's own record files as a list of turns. Starts nothing, needs no journal."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from lastword.actors.core.adapter import Reader, SourceSpec
from lastword.actors.core.errors import UsageError
from lastword.actors.core.facts import Fact
from lastword.actors.core.reading import ReadTurn, merged, read_turns
from lastword.runtime.command._show import as_json, one_line, out, table

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
        UsageError: ``unknown_provider``; ``file_unreadable``, whatever stands in the others.
    """
    reader = find_reader(provider)
    read: list[tuple[float, str, list[ReadTurn]]] = []
    seen: set[tuple[int, int]] = set()
    for file in files:
        path = Path(file)
        reading = _Reading(reader, path, chunk_bytes, seen)
        turns = read_turns(reading.facts())
        read.append((reading.first_at, path.name, turns))
    return merged(turns for _, _, turns in sorted(read, key=lambda item: item[:2]))


class _Reading:
    """One file on its way through an oracle."""

    def __init__(self, reader: Reader, path: Path, chunk_bytes: int, seen: set[tuple[int, int]]) -> None:
        self.first_at = float("inf")
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
            why = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                "file_unreadable", f"{name} cannot be read: {why}", remedy="Name a readable transcript file"
            ) from error
        yield from self._noted(self._oracle.eof(name))

    def _noted(self, facts: list[Fact]) -> list[Fact]:
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
@click.argument("provider")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--json", "json_form", is_flag=True, help='Print {"turns": [...]}.')
def command(provider: str, files: tuple[Path, ...], json_form: bool) -> None:
    """Turn PROVIDER's record FILEs (all of one conversation, in any order) into its turns."""
    turns = read_files(provider, files)
    if json_form:
        out(as_json({"turns": [turn.as_json() for turn in turns]}))
    elif not turns:
        out("no turn")
    else:
        rows = [_shown(turn, number) for number, turn in enumerate(turns, 1)]
        out(table(rows, ("#", "STATUS", "INPUT", "TOOLS", "FINAL TEXT OR ERROR")))
