"""What an adapter is: one object that translates a provider's native facts and states its capabilities (C50).

It holds no turn state, knows no turn id of ours and settles nothing. Everything here is data and pure functions;
the edge and the actors carry it out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from lastword.actors.core.delivery import TransportName
from lastword.actors.core.facts import Fact
from lastword.actors.core.ids import MessageId

if TYPE_CHECKING:
    from lastword.actors.core.service import ApiAdapter
    from lastword.actors.core.talk import Talk

SourceKind = Literal["append-jsonl", "snapshot-json"]
StdoutKind = Literal["file", "pipe"]


class SourceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the provider writes and that an oracle reads.

    Attributes:
        kind: ``append-jsonl`` is read on from its offset; ``snapshot-json`` is read whole each time it changes.
        path: absolute path; may not exist yet. "" while it is not known.
        root: the folder under which wake-ups are watched for (few recursive watches, many files).
        suffix: where the CLI chooses the name: its end, by which the one file below ``root`` is found. Only that file
            is ever taken, never the newest; more than one is none.
    """

    kind: SourceKind
    path: str
    root: str
    suffix: str = ""

    def found(self, path: str) -> SourceSpec:
        """The same with its path, once that is known: woken for in that folder alone."""
        return msgspec.structs.replace(self, path=path, root=path.rpartition("/")[0]) if path else self


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the runtime asks of an adapter when it starts a CLI.

    Attributes:
        native_session: the id of the conversation: minted by us for a new one, the known one for a resume; "" where
            the provider names a new one itself.
        executable: argv prefix of the CLI (usually one absolute path).
        env: the environment that the CLI will see (adapters read HOME and their own settings from it).
        resume: continue that conversation instead of starting it.
        stream: path, without its ending, of the files that keep what this very process says and is told; "" for one
            in a pane that is typed into.
        since_start_s: how long ago a process of this conversation was last started, where it is resumed behind pipes.
    """

    native_session: str
    cwd: str
    executable: tuple[str, ...]
    env: Mapping[str, str]
    model: str = ""
    permission_mode: str = ""
    extra_args: tuple[str, ...] = ()
    resume: bool = False
    stream: str = ""
    since_start_s: float = 0.0

    @property
    def heard(self) -> SourceSpec:
        """What the child writes to its stdout: an append-only file of its own."""
        return self._of_stream(".jsonl")

    @property
    def sent(self) -> SourceSpec:
        """What was written to its stdin, each line before it was: for a provider that does not echo it."""
        return self._of_stream(".sent.jsonl")

    def _of_stream(self, ending: str) -> SourceSpec:
        return SourceSpec(kind="append-jsonl", path=self.stream + ending, root=self.stream.rpartition("/")[0])


class LaunchRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """How to start the CLI; pure data.

    Attributes:
        argv: what is executed, without a shell.
        env: additions to the environment.
        stdout: what a child behind pipes finds there: its stream file itself; or a pipe, for a program that refuses a
            file (one on asyncio's pipe transports), with a process beside it that copies it into that file.
        exit_noted: its end is noted in the file of what was sent (:data:`~lastword.actors.core.talk.EXITED`), before
            what it leaves behind can see it by the end of its stdin.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    native_session: str
    width: int = 200
    height: int = 50
    stdout: StdoutKind = "file"
    exit_noted: bool = False


class SignalView(msgspec.Struct, frozen=True, kw_only=True):
    """What may be looked at to decide whether we may type: never to decide that a turn is over.

    Attributes:
        screen: visible lines, right-trimmed, top to bottom.
        title: the pane's title.
        status: bytes of the CLI's own registry file for this very process, or None while it has none.
        pid: of the CLI.
    """

    screen: tuple[str, ...]
    title: str
    status: bytes | None
    pid: int


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The input box takes text. ``draft`` is what stands in it now ("" when empty)."""

    draft: str = ""
    busy: bool = False


class DialogOpen(msgspec.Struct, frozen=True, kw_only=True, tag="dialog_open"):
    """A dialog holds the keyboard; nothing may be typed into it (C25).

    Attributes:
        key: stable identity of this very dialog within one process of the CLI.
        options: as shown, in order; may be empty where the screen does not tell.
        cursor: number of the option under the cursor, counted from 1; 0 where there is none to be seen.
    """

    key: str
    question: str
    options: tuple[str, ...] = ()
    cursor: int = 0
    kind: Literal["trust", "permission", "login", "update", "rate_limit", "question", "panel", "other"] = "other"


class NotReady(msgspec.Struct, frozen=True, kw_only=True, tag="not_ready"):
    """Still starting, or a screen that cannot be read: look again.

    ``perhaps``: the screen shows a dialog of which the CLI's own registry does not speak. It may be the last picture of
    one that is closed; what stays is taken for open.
    """

    reason: str = ""
    perhaps: DialogOpen | None = None


Signal: TypeAlias = Ready | DialogOpen | NotReady


class TypedText(msgspec.Struct, frozen=True, kw_only=True):
    """A text made ready for typing.

    Attributes:
        text: what the host submitted.
        paste: the bytes to paste (without any terminal brackets).
        rewritten: what the record will show (the CLI's own declared rewriting applied).
        notes: which declared rewritings apply (``crlf``, ``tab``, ``outer_blank``, …).
    """

    text: str
    paste: bytes
    rewritten: str
    notes: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The text cannot be sent through this CLI without being executed, lost or changed."""

    reason: str


Capability = Literal[
    "queues_while_busy",  # takes a message while a turn runs
    "absorbs_while_busy",  # may take that message into the running turn
    "injects_while_busy",  # that message waits with us, and is told to the model with its next request
    "interrupt",
    "resume",
    "clear",
    "compact",
    "dialogs",
    "tool_calls",
    "cli_started_turns",
    "process_per_turn",  # each turn is a process of its own: one that is warm cannot be kept
    "asserts_completion",  # its record says when a turn is over
    "versions_in_record",
    "emulated",  # written from documents: never seen on the real CLI, certified on nothing
]


class Oracle(Protocol):
    """Reads one conversation's bytes. Not thread-safe; no clock, no path, no process in it.

    Same bytes, any chunking, same facts. Never raises for any input: an unreadable line is an
    :class:`~lastword.actors.core.facts.UnknownRecord`.
    """

    def feed(self, source: str, chunk: bytes) -> list[Fact]:
        """Facts of the bytes that follow the previous chunk of that source, in file order."""
        ...

    def feed_snapshot(self, source: str, data: bytes) -> list[Fact]:
        """Facts of a snapshot file, read whole."""
        ...

    def eof(self, source: str) -> list[Fact]:
        """Facts that only the proved end of the source gives (its writer is gone and all was fed)."""
        ...

    @property
    def quiescent(self) -> bool:
        """Whether no native turn is open and nothing is queued: reading may be resumed here without state."""
        ...


@runtime_checkable
class ExpectsTurns(Protocol):
    """An oracle that can be told which native turns are open: it goes on with one whose beginning is not in the record
    any more (it was cut while nobody looked), where a record of it proves by itself whose it is.
    """

    def expect(self, native_turns: Collection[str]) -> None:
        """These began before this reader; told before it is fed anything."""
        ...


class Reader(Protocol):
    """What reading a provider's record files needs of it. An adapter is one; a mere reader starts nothing."""

    @property
    def name(self) -> str: ...

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> Oracle:
        """A reader of that file, of whatever kind it is, that starts at ``offset`` (where an oracle was quiescent)."""
        ...


class Adapter(Protocol):
    """One provider over one transport. Pure; shared by all sessions and threads."""

    @property
    def name(self) -> str: ...

    @property
    def transport(self) -> TransportName: ...

    @property
    def capabilities(self) -> frozenset[Capability]: ...

    @property
    def certified_versions(self) -> tuple[str, ...]:
        """CLI versions on which the live suite of this adapter was seen green."""
        ...

    @property
    def executables(self) -> tuple[str, ...]:
        """Names under which the CLI is looked for on PATH, best first."""
        ...

    def new_native_session(self, entropy: bytes) -> str:
        """An id for a new conversation in the provider's own form, from 16 bytes of entropy; "" where the provider
        names it itself (:class:`~lastword.actors.core.talk.Named`).
        """
        ...

    def parse_version(self, output: str) -> str:
        """The version in what ``CLI --version`` prints, or ""."""
        ...

    def launch(self, request: LaunchRequest) -> LaunchRecipe: ...

    def transcript(self, request: LaunchRequest) -> SourceSpec | None:
        """The provider's own file of ``request.native_session``, where it is or will be: one that is there is resumed.
        None where its place is not known: then one that has a name is resumed, if any turn of it had an end.
        """
        ...

    def sources(self, request: LaunchRequest) -> tuple[SourceSpec, ...]:
        """The record that is read for facts. Several are read in this order at each look, all of one before the next:
        what an earlier one holds was there before what a later one says about it. The last is the one that tells ends.
        """
        ...

    def status_file(self, request: LaunchRequest, pid: int) -> SourceSpec | None:
        """The CLI's own registry of that process, where it keeps one."""
        ...

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> Oracle:
        """A reader of the record whose last source is that one, which starts there at ``offset`` (a place where an
        oracle was quiescent). ``feed`` is told by path which source a chunk is of.
        """
        ...

    def key(self, message_id: MessageId) -> str:
        """By what the record names that message; "" where only its text tells."""
        ...

    def escape(self, text: str) -> TypedText | Refused: ...

    def matches(self, typed: TypedText, recorded: str) -> bool:
        """Whether a recorded input is this text, the CLI's own rewriting applied. Asked where a fact has no key."""
        ...


class PaneAdapter(Adapter, Protocol):
    """One provider over its own TUI in a pane."""

    def identify(self, request: LaunchRequest, title: str, open_files: Callable[[], Sequence[str]]) -> str:
        """Which conversation our CLI is in now, by what our own process holds open and shows (C51); "" while that is
        not sure: nothing is typed meanwhile. ``request`` names the one that is on record; where we choose the id, it is
        that one.
        """
        ...

    def signals(self, view: SignalView) -> Signal: ...

    def landed(self, typed: TypedText, draft: str) -> bool:
        """Whether the draft in the input box is this text (or the CLI's placeholder for it)."""
        ...

    def interrupt_keys(self) -> tuple[str, ...]: ...

    def clear_draft_keys(self, draft: str) -> tuple[str, ...]:
        """Keys that empty the input box of a text *of ours*; empty where the CLI has none."""
        ...

    def answer_keys(self, dialog: DialogOpen, option: int) -> tuple[str, ...]:
        """The next keys towards option ``option`` (1-based): with a cursor one step of it, or Enter once it is there;
        without one the keys that choose. Empty where it cannot be chosen.
        """
        ...


class StructuredAdapter(Adapter, Protocol):
    """One provider over a protocol of lines: on a child's stdin and stdout, or, in a pane, by files that an extension
    of ours inside the CLI reads and writes (:func:`is_spoken_to`).
    """

    @property
    def keeps_sent(self) -> bool:
        """Whether what is sent is kept in a file (:attr:`LaunchRequest.sent`): the provider does not echo it."""
        ...

    def talk(self, request: LaunchRequest) -> Talk:
        """The protocol machine of that very process."""
        ...


def is_spoken_to(adapter: object) -> bool:
    """Whether it is spoken to in lines, by a :class:`~lastword.actors.core.talk.Talk`; else keys are typed for it."""
    return hasattr(adapter, "talk")


def cli_names_itself(adapter: Adapter) -> bool:
    """Whether the CLI chooses the id of a new conversation, and tells it once it runs."""
    return adapter.new_native_session(bytes(16)) == ""


AnyAdapter: TypeAlias = "PaneAdapter | StructuredAdapter | ApiAdapter"
AdapterKey: TypeAlias = tuple[str, TransportName]
Adapters: TypeAlias = "Mapping[AdapterKey, AnyAdapter]"


def describe(options: Sequence[str]) -> str:
    """Options as one line for a person."""
    return " | ".join(f"{number}. {option}" for number, option in enumerate(options, 1))
