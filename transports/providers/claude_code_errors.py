"""What an API error that Claude Code could not get over means for the turn. Pure."""

from __future__ import annotations

from lastword.actors.core.outcome import ErrorKind, TurnError
from lastword.transports.providers.claude_code_records import Line, Message, text_of

RESETS_AT_MAX = 1e11
"""Unix seconds; what is greater is no time in seconds."""


def api_error(line: Line, message: Message) -> TurnError:
    """The error of a turn whose last line is an API error."""
    word = line.error if isinstance(line.error, str) else ""
    text = text_of(message.content)
    kind = api_error_kind(word, line.api_error_status, message.stop_reason, text)
    return TurnError(
        kind=kind,
        message=text[:2000],
        native_kind=word,
        status_code=line.api_error_status,
        resets_at=_resets_at(line.quota_limits) if kind == "rate_limited" else None,
    )


def _resets_at(quota: object) -> float | None:
    """``quotaLimits.resetsAt``, Unix seconds. Only an account's limit has it: a plain 429 names no end."""
    at = quota.get("resetsAt") if isinstance(quota, dict) else None
    return float(at) if isinstance(at, int | float) and not isinstance(at, bool) and 0 < at < RESETS_AT_MAX else None


def api_error_kind(word: str, status: int | None, stop_reason: str | None, text: str) -> ErrorKind:
    """The kind of a final API error, from the CLI's own word first, the HTTP status second, its text last."""
    lowered = text.lower()
    if stop_reason == "refusal":
        return "refused"
    if word == "rate_limit" or status == 429:
        return "rate_limited"
    if word == "authentication_failed" or status in (401, 403):
        return "authentication"
    if "prompt is too long" in lowered or "context_length" in lowered:
        return "context_overflow"
    if status == 529 or "overloaded" in lowered:
        return "overloaded"
    if status is not None and 400 <= status < 500:
        return "invalid_request"
    return "provider_error"
