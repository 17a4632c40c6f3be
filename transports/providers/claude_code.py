"""The adapter of Claude Code in a pane: launch recipe, identity, and where its records stand.

The conversation's id is chosen by us (``--session-id``), which fixes the transcript's path before the start (C51). No
hook is put into the recipe: a Stop hook delays the record. The user's own HOME, settings and hooks are left alone.

Source: Claude Code 2.1.332, docs/providers/claude_code.md.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence

from lastword.actors.core.adapter import (
    Capability,
    DialogOpen,
    LaunchRecipe,
    LaunchRequest,
    Refused,
    Signal,
    SignalView,
    SourceSpec,
    TypedText,
)
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.ids import MessageId
from lastword.transports.providers import claude_code_screen as screen
from lastword.transports.providers import claude_code_text as text_rules
from lastword.transports.providers import drawn_choice
from lastword.transports.providers.claude_code_oracle import ClaudeOracle

_VERSION = re.compile(r"\b(\d+\.\d+\.\d+)\b")
_BASE_36 = "0123456789abcdefghijklmnopqrstuvwxyz"
PROJECT_NAME_UNITS_MAX = 200
"""A longer folder name is cut there, and a hash of the whole path follows."""


class ClaudeCode:
    """What both of its adapters share."""

    name = "claude-code"
    certified_versions: tuple[str, ...] = ("2.1.332",)
    executables: tuple[str, ...] = ("claude",)

    def new_native_session(self, entropy: bytes) -> str:
        """A random UUID, the form that ``--session-id`` takes."""
        return str(uuid.UUID(bytes=entropy[:16], version=4))

    def parse_version(self, output: str) -> str:
        """``2.1.332 (Claude Code)`` -> ``2.1.332``."""
        found = _VERSION.search(output)
        return found.group(1) if found else ""

    def transcript(self, request: LaunchRequest) -> SourceSpec:
        """``CONFIG/projects/<cwd, every other character a dash>/<session-id>.jsonl``; not there before a prompt."""
        root = f"{_config_folder(request)}/projects"
        folder = project_folder(request.cwd)
        return SourceSpec(kind="append-jsonl", path=f"{root}/{folder}/{request.native_session}.jsonl", root=root)

    def conversation(self, request: LaunchRequest) -> list[str]:
        """The arguments for a new conversation or a known one, and how it is asked for."""
        argv = ["--resume" if request.resume else "--session-id", request.native_session]
        if request.permission_mode:
            argv += ["--permission-mode", request.permission_mode]
        if request.model:
            argv += ["--model", request.model]
        return [*argv, *request.extra_args]


class ClaudeCodeAdapter(ClaudeCode):
    """Claude Code over its TUI."""

    transport: TransportName = "tmux"
    capabilities: frozenset[Capability] = frozenset(
        {
            "queues_while_busy",
            "absorbs_while_busy",
            "interrupt",
            "resume",
            "clear",
            "compact",
            "dialogs",
            "tool_calls",
            "cli_started_turns",
            "asserts_completion",
            "versions_in_record",
        }
    )

    def launch(self, request: LaunchRequest) -> LaunchRecipe:
        """``claude --session-id ID`` for a new conversation, ``claude --resume ID`` for a known one."""
        argv = (*request.executable, *self.conversation(request))
        return LaunchRecipe(argv=argv, env={}, native_session=request.native_session)

    def sources(self, request: LaunchRequest) -> tuple[SourceSpec, ...]:
        """The transcript alone."""
        return (self.transcript(request),)

    def key(self, message_id: MessageId) -> str:  # noqa: ARG002 - a prompt that is typed bears no name of ours
        """Its text tells."""
        return ""

    def identify(self, request: LaunchRequest, title: str, open_files: Callable[[], Sequence[str]]) -> str:  # noqa: ARG002
        """The one that we chose; a move out of it stands in its registry."""
        return request.native_session

    def status_file(self, request: LaunchRequest, pid: int) -> SourceSpec | None:
        """``CONFIG/sessions/<pid>.json``."""
        root = f"{_config_folder(request)}/sessions"
        return SourceSpec(kind="snapshot-json", path=f"{root}/{pid}.json", root=root)

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> ClaudeOracle:
        """A reader of that transcript."""
        return ClaudeOracle(source, native_session, offset)

    def signals(self, view: SignalView) -> Signal:
        """Registry first, the screen as second opinion."""
        return screen.signals(view)

    def escape(self, text: str) -> TypedText | Refused:
        """How to paste it so that it arrives as written."""
        return text_rules.escape(text)

    def matches(self, typed: TypedText, recorded: str) -> bool:
        """Whether the recorded prompt is that text."""
        return text_rules.matches(typed, recorded)

    def landed(self, typed: TypedText, draft: str) -> bool:
        """Whether the input box shows it."""
        return text_rules.landed(typed, draft)

    def interrupt_keys(self) -> tuple[str, ...]:
        """Escape, once: twice in a row opens the rewind menu of an idle CLI."""
        return ("Escape",)

    def clear_draft_keys(self, draft: str) -> tuple[str, ...]:
        """What empties the box."""
        return screen.clear_draft_keys(draft)

    def answer_keys(self, dialog: DialogOpen, option: int) -> tuple[str, ...]:
        """What chooses that option: a digit would at once, but one was seen swallowed soon after a dialog opened."""
        return drawn_choice.answer_keys(dialog, option)


def project_folder(cwd: str) -> str:
    """The CLI's folder name for a working directory: two directories can share one.

    Counted in UTF-16 units, as the CLI does: a character beyond the BMP gives two dashes.
    """
    units = cwd.encode("utf-16-le", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2], "little") for at in range(0, len(units), 2)]
    name = "".join(chr(code) if code < 128 and chr(code).isalnum() else "-" for code in codes)
    if len(name) <= PROJECT_NAME_UNITS_MAX:
        return name
    value = 0
    for code in codes:
        value = (value * 31 + code) & 0xFFFFFFFF
    rest = abs(value - (1 << 32) if value >= 1 << 31 else value)
    digits = ""
    while rest or not digits:
        rest, digit = divmod(rest, 36)
        digits = _BASE_36[digit] + digits
    return f"{name[:PROJECT_NAME_UNITS_MAX]}-{digits}"


def _config_folder(request: LaunchRequest) -> str:
    return request.env.get("CLAUDE_CONFIG_DIR") or f"{request.env.get('HOME', '')}/.claude"
