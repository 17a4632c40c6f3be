"""What the adapters of model APIs share: identity, the record's place, options, and what an error means.

A session is asked for with ``args``: ``--system TEXT`` and ``--max-tokens N``; its model by ``model=`` or the vendor's
environment variable. Pure data and functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

import msgspec

from lastword.actors.core.adapter import Capability, LaunchRecipe, LaunchRequest, Refused, SourceSpec, TypedText
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.ids import MessageId
from lastword.actors.core.outcome import ErrorKind, TurnError
from lastword.actors.core.service import Failure, Service
from lastword.transports.providers.api_oracle import ApiOracle

_SURROGATE = re.compile("[\ud800-\udfff]")
_OVERFLOW = re.compile(
    r"prompt is too long|context_length_exceed|context window|maximum context length|exceeds the (?:model's )?context",
    re.IGNORECASE,
)
_OVERFLOW_CODES = frozenset({"context_length_exceeded", "context_window_exceeded"})
_WORDS: dict[str, ErrorKind] = {
    "authentication_error": "authentication",
    "permission_error": "authentication",
    "rate_limit_error": "rate_limited",
    "overloaded_error": "overloaded",
    "invalid_request_error": "invalid_request",
    "request_too_large": "invalid_request",
    "not_found_error": "invalid_request",
}
_CODES: dict[str, ErrorKind] = {
    "invalid_api_key": "authentication",
    "rate_limit_exceeded": "rate_limited",
    "insufficient_quota": "rate_limited",
    "server_is_overloaded": "overloaded",
    "slow_down": "overloaded",
}
_STATUSES: dict[int, ErrorKind] = {
    400: "invalid_request",
    401: "authentication",
    403: "authentication",
    404: "invalid_request",
    413: "invalid_request",
    422: "invalid_request",
    429: "rate_limited",
    529: "overloaded",
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a session was asked for. ``fault``: why it cannot be, or ""."""

    model: str = ""
    system: str = ""
    max_tokens: int = 0
    fault: str = ""


class ApiBase:
    """One vendor's API; what each adds is its service, its bodies and its answers."""

    name: str
    service: Service
    transport: TransportName = "api"
    executables: tuple[str, ...] = ()
    certified_versions: tuple[str, ...] = ()
    capabilities: frozenset[Capability] = frozenset(
        {
            "queues_while_busy",
            "absorbs_while_busy",
            "injects_while_busy",
            "interrupt",
            "resume",
            "tool_calls",
            "asserts_completion",
        }
    )

    def new_native_session(self, entropy: bytes) -> str:
        """The conversation is ours alone: no service keeps it."""
        return f"conv_{entropy.hex()}"

    def parse_version(self, output: str) -> str:
        """There is no program to ask."""
        return output.strip()

    def launch(self, request: LaunchRequest) -> LaunchRecipe:
        """Nothing is started."""
        return LaunchRecipe(argv=(), env={}, native_session=request.native_session)

    def transcript(self, request: LaunchRequest) -> SourceSpec | None:
        """The record in the journal."""
        return SourceSpec(kind="append-jsonl", path=f"journal:{request.native_session}", root="")

    def sources(self, request: LaunchRequest) -> tuple[SourceSpec, ...]:
        """The record in the journal."""
        return (SourceSpec(kind="append-jsonl", path=f"journal:{request.native_session}", root=""),)

    def status_file(self, request: LaunchRequest, pid: int) -> SourceSpec | None:  # noqa: ARG002
        """There is none."""
        return None

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> ApiOracle:  # noqa: ARG002
        """A reader of the record."""
        return ApiOracle(native_session, offset)

    def key(self, message_id: MessageId) -> str:
        """The record names each message."""
        return message_id

    def escape(self, text: str) -> TypedText | Refused:
        """As it is."""
        if found := _SURROGATE.search(text):
            return Refused(reason=f"the lone surrogate U+{ord(found.group()):04X} is no text")
        return TypedText(text=text, paste=text.encode(), rewritten=text)

    def matches(self, typed: TypedText, recorded: str) -> bool:  # noqa: ARG002
        """Every message of ours is named in the record: text alone tells nothing here."""
        return False

    def unfit(self, request: LaunchRequest) -> str:
        """Why a session cannot be asked for so, or ""."""
        return self._options(request).fault

    def failed(self, failure: Failure) -> TurnError:
        """What a failure means, in our words."""
        return turn_error(failure)

    def _options(self, request: LaunchRequest) -> Options:
        model = request.model or request.env.get(self.service.model, "")
        given: dict[str, str] = {}
        words = list(request.extra_args)
        while words:
            word = words.pop(0)
            if word in ("--system", "--max-tokens") and not words:
                return Options(fault=f"{word} has no value behind it")
            if word not in ("--system", "--max-tokens"):
                return Options(fault=f"{self.name} takes the args --system TEXT and --max-tokens N, not {word!r}")
            given[word] = words.pop(0)
        tokens = given.get("--max-tokens", "0")
        if not tokens.isdecimal() or (tokens == "0" and "--max-tokens" in given):
            return Options(fault="--max-tokens is a positive number")
        if request.permission_mode:
            return Options(fault=f"{self.name} has no permission modes: its tools are the host's own")
        if not model:
            return Options(fault=f"no model is named: give model=, or set {self.service.model}")
        return Options(model=model, system=given.get("--system", ""), max_tokens=int(tokens))


def turn_error(failure: Failure) -> TurnError:
    """What a failed request means, in our words."""
    kind: ErrorKind = "provider_error"
    word, status = failure.word, failure.status
    if failure.kind == "status":
        known = _STATUSES.get(status or 0)
        if known in (None, "invalid_request"):  # a vendor calls a bad key an invalid request
            known = _CODES.get(failure.code) or _WORDS.get(word) or known
        kind = known or "provider_error"
        if failure.code in _OVERFLOW_CODES or (kind == "invalid_request" and _OVERFLOW.search(failure.message)):
            kind = "context_overflow"
    return TurnError(
        kind=kind,
        message=failure.message,
        native_kind=word or failure.code or ("" if failure.kind == "status" else failure.kind),
        status_code=status,
        resets_at=resets_at(failure) if kind in ("rate_limited", "overloaded") else None,
    )


def resets_at(failure: Failure) -> float | None:
    """When the limit ends, Unix seconds, where the service says so: the pause it asks for, else the latest reset of
    what is used up.
    """
    headers = failure.headers
    if (wait_s := retry_after_s(headers, failure.at)) is not None:
        return failure.at + wait_s
    found = [
        at
        for name, value in headers.items()
        if name.endswith("-remaining") or "-remaining-" in name
        if value.strip() == "0" and (at := _reset(headers.get(name.replace("remaining", "reset"), ""), failure.at))
    ]
    return max((failure.at, *found)) if found else None


def retry_after_s(headers: Mapping[str, str], at: float) -> float | None:
    """How long from then on the service wants to be left alone, where it says so in seconds or by a date; never less
    than 0.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "")
        try:
            seconds = float(value) * unit
        except ValueError:
            if (until := _date(value)) is None:
                continue
            seconds = until - at
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _date(value: str) -> float | None:
    """An HTTP date, as Unix seconds."""
    try:
        date = parsedate_to_datetime(value)
        return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS: dict[str, float] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _reset(value: str, at: float) -> float | None:
    """A time of day (Anthropic) or a span like ``6m0s`` (OpenAI)."""
    spans = _SPAN.findall(value)
    if spans and "".join(f"{number}{unit}" for number, unit in spans) == value:
        return at + sum(float(number) * _UNITS[unit] for number, unit in spans)
    try:
        return datetime.fromisoformat(value).timestamp()
    except ValueError:
        return None


def cut_off(stop: str, what: Literal["refused", "cut", "overflow"]) -> TurnError:
    """An answer that the vendor itself says is none that can stand."""
    match what:
        case "refused":
            return TurnError(kind="refused", message="the model refused to answer", native_kind=stop)
        case "overflow":
            return TurnError(kind="context_overflow", message="the context window is full", native_kind=stop)
        case "cut":
            message = "the answer was cut off at the limit of tokens (--max-tokens)"
            return TurnError(kind="provider_error", message=message, native_kind=stop)


def unknown_end(stop: str) -> TurnError:
    """An answer that ended for a reason that nobody here knows: half of one may stand there."""
    return TurnError(kind="provider_error", message=f"the answer ended for no known reason: {stop}", native_kind=stop)


__all__ = ["ApiBase", "Options", "cut_off", "resets_at", "retry_after_s", "turn_error", "unknown_end"]
