"""The error tree. Hosts branch on ``kind``, a stable word; nobody parses a message (C21).

A failed turn is a value (:class:`lastword.actors.core.outcome.Completion`), never an exception: exceptions are
for calls that did not happen.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

UsageKind = Literal[
    "usage",
    "unknown_provider",
    "unknown_session",
    "unknown_turn",
    "cwd_unusable",
    "file_unreadable",
    "host_unreachable",
    "unsupported_capability",
    "runtime_closed",
    "forked",
]
RejectedKind = Literal[
    "empty_message",
    "unsupported_text",
    "busy",
    "overloaded",
    "dialog_open",
    "unknown_dialog",
    "session_closed",
    "session_held",
    "not_delivered",
    "timeout",
]
ProviderKind = Literal["provider_unavailable", "unsupported_cli_version", "launch_failed", "adapter_failed"]
TransportKind = Literal["tmux_missing", "tmux_unsupported", "transport_failed", "transport_timeout"]
JournalKind = Literal[
    "journal_unwritable",
    "journal_unsafe",
    "journal_newer",
    "journal_corrupt",
    "journal_locked",
    "journal_full",
    "journal_failed",
    "journal_closed",
]
ActorKind = Literal["actor_dead", "mailbox_full", "actor_timeout", "timers_full"]
Kind: TypeAlias = UsageKind | RejectedKind | ProviderKind | TransportKind | JournalKind | ActorKind
"""Each kind belongs to one class; the type checker proves it of every place that raises one."""


class LastwordError(Exception):
    """Base of everything that lastword raises.

    Attributes:
        kind: stable word to branch on.
        reason: one sentence for a person.
        remedy: what the caller can do about it, or an empty string.
        provider: the provider concerned, or an empty string.
    """

    def __init__(self, kind: Kind, reason: str, *, remedy: str = "", provider: str = "") -> None:
        super().__init__(kind, reason)
        self.kind: Kind = kind
        self.reason = reason
        self.remedy = remedy
        self.provider = provider

    def __str__(self) -> str:
        return f"{self.reason} ({self.kind}). {self.remedy}".rstrip(". ") + ("." if self.remedy else "")


class UsageError(LastwordError):
    """The call was wrong: unknown provider, closed runtime, text that cannot be sent."""

    def __init__(self, kind: UsageKind, reason: str, *, remedy: str = "", provider: str = "") -> None:
        super().__init__(kind, reason, remedy=remedy, provider=provider)


class RejectedError(LastwordError):
    """The message was not accepted; nothing was delivered and nothing will be (C21)."""

    def __init__(self, kind: RejectedKind, reason: str, *, remedy: str = "", provider: str = "") -> None:
        super().__init__(kind, reason, remedy=remedy, provider=provider)


class TransportError(LastwordError):
    """The endpoint could not be opened, written or looked at.

    Attributes:
        endpoint: pane id, process id or URL, or an empty string.
    """

    def __init__(
        self, kind: TransportKind, reason: str, *, remedy: str = "", provider: str = "", endpoint: str = ""
    ) -> None:
        super().__init__(kind, reason, remedy=remedy, provider=provider)
        self.endpoint = endpoint


class TransportTimeoutError(TransportError):
    """A bounded wait on an endpoint ran out.

    Attributes:
        wait: which wait it was.
        after_s: its bound, seconds.
    """

    def __init__(self, wait: str, after_s: float, *, endpoint: str = "") -> None:
        super().__init__("transport_timeout", f"{wait} did not answer within {after_s:g} s", endpoint=endpoint)
        self.wait = wait
        self.after_s = after_s


class SessionFailedError(RejectedError):
    """``session_closed``: the session's actor failed before it answered. Another may take its place."""

    def __init__(self, fault: str, *, remedy: str = "") -> None:
        super().__init__("session_closed", f"the session's actor failed: {fault}", remedy=remedy)


class ProviderError(LastwordError):
    """The CLI could not be found, started or trusted, or its adapter raised (``adapter_failed``)."""

    def __init__(self, kind: ProviderKind, reason: str, *, remedy: str = "", provider: str = "") -> None:
        super().__init__(kind, reason, remedy=remedy, provider=provider)


class JournalError(LastwordError):
    """The journal could not be opened, written or read; nothing was promised on it.

    Attributes:
        retryable: the same call may succeed a moment later (the file was busy, the device answered with an error).
    """

    def __init__(
        self, kind: JournalKind, reason: str, *, remedy: str = "", provider: str = "", retryable: bool = False
    ) -> None:
        super().__init__(kind, reason, remedy=remedy, provider=provider)
        self.retryable = retryable


class ActorError(LastwordError):
    """An actor could not take or answer a message: dead, or its mailbox is full."""

    def __init__(self, kind: ActorKind, reason: str, *, remedy: str = "", provider: str = "") -> None:
        super().__init__(kind, reason, remedy=remedy, provider=provider)
