"""The adapter of Codex in a pane: launch recipe, identity, and where its rollout stands.

The CLI chooses the conversation's id. It is told by two things of our own process together: the lock that it holds
open (``thread-writer-locks/ID.lock``) and its terminal title, which we have it write the id into; a CLI that was moved
(``/new``, ``/resume``) holds several locks, and the title says which one it shows (C51). The rollout is the one file
whose name ends with that id.

Without ``--no-daemon`` a background server would own conversation, lock and rollout, and outlive the pane.

Source: codex-cli 0.171.0, docs/providers/codex.md.
"""

from __future__ import annotations

import json
import re
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
from lastword.transports.providers import codex_screen as screen
from lastword.transports.providers import codex_text as text_rules
from lastword.transports.providers import drawn_choice
from lastword.transports.providers.codex_oracle import CodexRolloutOracle

LOCKS = "/thread-writer-locks/"
LOCK_ENDING = ".lock"
_VERSION = re.compile(r"\b(\d+\.\d+\.\d+)\b")
_SETTINGS = ("check_for_update_on_startup=false", f"tui.terminal_title={json.dumps(screen.TITLE_ITEMS)}")
"""Of this process alone; the user's config.toml is left alone."""


class CodexAdapter:
    """Codex over its TUI."""

    name = "codex"
    transport: TransportName = "tmux"
    certified_versions: tuple[str, ...] = ("0.171.0",)
    executables: tuple[str, ...] = ("codex",)
    capabilities: frozenset[Capability] = frozenset(
        {
            "absorbs_while_busy",
            "interrupt",
            "resume",
            "clear",
            "compact",
            "dialogs",
            "tool_calls",
            "asserts_completion",
            "versions_in_record",
        }
    )

    def new_native_session(self, entropy: bytes) -> str:  # noqa: ARG002
        """The CLI chooses it."""
        return ""

    def parse_version(self, output: str) -> str:
        """``codex-cli 0.171.0`` -> ``0.171.0``."""
        found = _VERSION.search(output)
        return found.group(1) if found else ""

    def launch(self, request: LaunchRequest) -> LaunchRecipe:
        """``codex --no-daemon`` for a new conversation, ``codex --no-daemon resume ID`` for a known one."""
        argv = [*request.executable, "--no-daemon"]
        for setting in _SETTINGS:
            argv += ["-c", setting]
        if request.permission_mode:
            argv += ["--ask-for-approval", request.permission_mode]
        if request.model:
            argv += ["--model", request.model]
        argv += request.extra_args
        if request.resume:
            argv += ["resume", request.native_session]
        return LaunchRecipe(argv=tuple(argv), env={}, native_session=request.native_session)

    def transcript(self, request: LaunchRequest) -> SourceSpec:
        """``CODEX_HOME/sessions/YYYY/MM/DD/rollout-TIME-ID.jsonl``; not there before the first turn."""
        suffix = f"-{request.native_session}.jsonl" if request.native_session else ""
        return SourceSpec(kind="append-jsonl", path="", root=f"{_home(request)}/sessions", suffix=suffix)

    def sources(self, request: LaunchRequest) -> tuple[SourceSpec, ...]:
        """The rollout alone."""
        return (self.transcript(request),)

    def key(self, message_id: MessageId) -> str:  # noqa: ARG002 - the terminal program names inputs itself
        """Its text tells."""
        return ""

    def identify(self, request: LaunchRequest, title: str, open_files: Callable[[], Sequence[str]]) -> str:
        """The conversation whose lock our process holds and whose id the title begins with."""
        prefix = screen.thread_prefix(title)
        if not prefix:
            return ""
        folder = f"{_home(request)}{LOCKS}"
        held = {
            path.removeprefix(folder).removesuffix(LOCK_ENDING)
            for path in open_files()
            if path.startswith(folder + prefix) and path.endswith(LOCK_ENDING)
        }
        return held.pop() if len(held) == 1 else ""

    def status_file(self, request: LaunchRequest, pid: int) -> SourceSpec | None:  # noqa: ARG002
        """It keeps none."""
        return None

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> CodexRolloutOracle:  # noqa: ARG002
        """A reader of that rollout."""
        return CodexRolloutOracle(native_session, offset)

    def signals(self, view: SignalView) -> Signal:
        """The screen, and the title."""
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
        """Escape, once: twice in a row opens the history of an idle CLI."""
        return ("Escape",)

    def clear_draft_keys(self, draft: str) -> tuple[str, ...]:
        """What empties the box."""
        return screen.clear_draft_keys(draft)

    def answer_keys(self, dialog: DialogOpen, option: int) -> tuple[str, ...]:
        """What chooses that option."""
        return drawn_choice.answer_keys(dialog, option)


def _home(request: LaunchRequest) -> str:
    return (request.env.get("CODEX_HOME") or f"{request.env.get('HOME', '')}/.codex").rstrip("/")
