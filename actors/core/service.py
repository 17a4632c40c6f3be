"""A model's API as the actors see it: what is asked, what is heard. Values and ports; implemented in ``transports``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from lastword.actors.core.adapter import Adapter, LaunchRequest
from lastword.actors.core.conversation import Call, Line
from lastword.actors.core.errors import LastwordError
from lastword.actors.core.ids import SessionId
from lastword.actors.core.outcome import TurnError
from lastword.actors.core.tools import Tool, ToolResult
from lastword.actors.core.world import Transport


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """Which SDK speaks to it, and by which variables it is configured. No secret stands here.

    Attributes:
        sdk: the package, and the extra of ours that installs it. driver: who speaks through it.
        key, base_url, model: names of environment variables.
    """

    sdk: str
    driver: str
    key: str
    base_url: str
    model: str


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One whole answer of the model.

    Attributes:
        content: in the vendor's own form, fit to be told to it again.
        goes_on: the vendor says that the same answer is to be continued by a further request.
        error: it is an answer, and none that can stand: cut off, refused.
    """

    response: str
    content: msgspec.Raw
    text: str
    calls: tuple[Call, ...] = ()
    goes_on: bool = False
    error: TurnError | None = None
    model: str = ""
    stop: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A request that has no answer, all tries included.

    Attributes:
        kind: ``status``: the service said so; ``connection``: it was not reached, or not heard to the end;
            ``other``: anything else.
        word, code: the service's own words for it, or "".
        headers: of its answer, names in lower case.
        at: Unix seconds.
    """

    kind: Literal["status", "connection", "other"]
    message: str
    at: float
    status: int | None = None
    word: str = ""
    code: str = ""
    headers: Mapping[str, str] = {}


class Streamed(msgspec.Struct, frozen=True):
    """More text of the answer has come: take it."""


class Retrying(msgspec.Struct, frozen=True):
    """The request is made again."""

    message: str


class Replied(msgspec.Struct, frozen=True):
    """The answer is whole: the vendor's own object, as JSON."""

    body: bytes


class Failed(msgspec.Struct, frozen=True):
    """There will be none."""

    failure: Failure


Word: TypeAlias = Streamed | Retrying | Replied | Failed


class Asking(Protocol):
    """A request under way."""

    def take(self) -> tuple[str, str]:
        """The answer's id and the text that has come since the last time."""
        ...

    def cancel(self) -> None:
        """Hang up. Nothing more is said of it."""
        ...


class Calling(Protocol):
    """A tool that runs."""

    def cancel(self) -> None:
        """Tell it that nobody waits any more. Nothing more is said of it."""
        ...


class ApiTransport(Transport, Protocol):
    """Asks services and runs the host's tools. Nothing here blocks; words come on threads of the edge's own."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    def unready(self, service: Service) -> LastwordError | None:
        """Why it cannot be asked: its SDK or its key is missing."""
        ...

    def ask(self, service: Service, body: Mapping[str, Any], told: Callable[[Word], None]) -> Asking:
        """Ask; exactly one ``Replied`` or ``Failed`` is the last word, unless it is cancelled."""
        ...

    def call(self, call: Call, session_id: SessionId, told: Callable[[ToolResult], None]) -> Calling:
        """Run that tool, on a thread of its own; one word, unless it is cancelled."""
        ...

    def wrote(self, path: str) -> None:
        """The record of that path has grown: hint."""
        ...


class ApiAdapter(Adapter, Protocol):
    """One vendor's API. Pure; shared by all sessions and threads."""

    @property
    def service(self) -> Service: ...

    def unfit(self, request: LaunchRequest) -> str:
        """Why a session cannot be asked for so, or ""."""
        ...

    def body(self, request: LaunchRequest, lines: Sequence[Line], tools: Sequence[Tool]) -> Mapping[str, Any]:
        """The next request of that conversation, as the SDK takes it."""
        ...

    def reply(self, body: bytes) -> Reply:
        """What an answer says.

        Raises:
            msgspec.MsgspecError: it is none.
        """
        ...

    def failed(self, failure: Failure) -> TurnError:
        """What a failure means, in our words."""
        ...
