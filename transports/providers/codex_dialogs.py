"""What Codex's app-server asks of its client, as dialogs with options, and what each option answers. Pure.

A request for approval is a ``permission``; a question of the model's (``request_user_input``) or of an MCP server's is
a ``question``. The last option declines, and the turn goes on.

Source: codex-cli 0.171.0, ``codex app-server generate-json-schema``; docs/providers/codex.md.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from lastword.actors.core.adapter import DialogOpen
from lastword.transports.providers.codex_stream_oracles import inner_command
from lastword.transports.providers.open_questions import Question

SHOWN_CHARS_MAX = 500
"""Of what is to be done, in the question."""
SHOWN_PATHS_MAX = 10
NO, STOP, DECLINE = "No", "No, and stop the turn", "Decline to answer"

Result: TypeAlias = dict[str, Any]
Options: TypeAlias = list[tuple[str, Result]]


class Wanted(msgspec.Struct, frozen=True, rename="camel"):
    """A request's parameters, as far as they are read."""

    item_id: str = ""
    command: Any = None
    network_approval_context: Result | None = None
    reason: Any = None
    available_decisions: list[Any] | None = None
    permissions: Result | None = None
    questions: list[Any] | None = None
    server_name: str = ""
    mode: str = ""
    message: str = ""
    url: str = ""
    title: str = ""
    requested_schema: Any = None
    meta: Any = msgspec.field(default=None, name="_meta")


class CodexQuestion(Question, frozen=True, kw_only=True):
    """One dialog of a request, which may hold several.

    ``choices``: the reply's ``result``. Of a ``part`` of a request: the answers to this one question, by its name; none
    declines the whole request.
    """

    choices: tuple[Result, ...]
    part: bool = False


def questions_of(
    scope: str, request_id: Any, method: str, wanted: Wanted, paths: tuple[str, ...]
) -> list[CodexQuestion]:
    """The dialogs of a request; none where it is no request to a person.

    ``scope`` is a name of this very process: request ids begin anew in the next one. ``paths`` is what a file change
    is about, which the request itself does not say.
    """
    key = f"{scope}#{request_id}"
    kind: Literal["permission", "question"] = "permission"
    match method:
        case "item/commandExecution/requestApproval":
            question, options = _command(wanted)
        case "item/fileChange/requestApproval":
            question, options = _files(paths)
        case "item/permissions/requestApproval":
            question, options = _permissions(wanted)
        case "mcpServer/elicitation/request" if _meta(wanted).get("codex_approval_kind"):
            question, options = _mcp_call(wanted)
        case "mcpServer/elicitation/request":
            kind = "question"
            question, options = _elicitation(wanted)
        case "item/tool/requestUserInput":
            return _user_input(key, request_id, wanted)
        case _:
            return []
    if isinstance(wanted.reason, str) and wanted.reason:
        question = f"{question}\n{_cut(wanted.reason)}"
    dialog = DialogOpen(key=key, question=question, options=tuple(words for words, _ in options), kind=kind)
    return [CodexQuestion(request_id=request_id, dialog=dialog, choices=tuple(result for _, result in options))]


def _command(wanted: Wanted) -> tuple[str, Options]:
    command = inner_command(wanted.command) if isinstance(wanted.command, str) else "a command"
    offered = [each for each in wanted.available_decisions or ["accept"] if each not in ("cancel", "decline")]
    options: Options = [(_in_words(decision), {"decision": decision}) for decision in offered]
    options += [(STOP, {"decision": "cancel"}), (NO, {"decision": "decline"})]
    host = (wanted.network_approval_context or {}).get("host")
    question = f"May it reach {_cut(str(host))}? {_cut(command)}" if host else f"May it run? {_cut(command)}"
    return question, options


def _in_words(decision: Any) -> str:
    match decision:
        case "accept":
            return "Yes"
        case "acceptForSession":
            return "Yes, and do not ask again in this session"
        case {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": [*words]}}:
            return f"Yes, and do not ask again for {_cut(' '.join(map(str, words)))}"
        case {"applyNetworkPolicyAmendment": {"network_policy_amendment": {"action": "allow", "host": host}}}:
            return f"Yes, and always allow {_cut(str(host))}"
        case {"applyNetworkPolicyAmendment": {"network_policy_amendment": {"action": "deny", "host": host}}}:
            return f"No, and never allow {_cut(str(host))}"
        case _:
            return _cut(_json(decision))  # whether it is a yes, nobody knows here


def _files(paths: tuple[str, ...]) -> tuple[str, Options]:
    shown = ", ".join(paths[:SHOWN_PATHS_MAX]) + (", …" if len(paths) > SHOWN_PATHS_MAX else "")
    options: Options = [
        ("Yes", {"decision": "accept"}),
        ("Yes, and do not ask again for these files", {"decision": "acceptForSession"}),
        (STOP, {"decision": "cancel"}),
        (NO, {"decision": "decline"}),
    ]
    return f"May files be changed? {_cut(shown)}", options


def _permissions(wanted: Wanted) -> tuple[str, Options]:
    granted = wanted.permissions or {}
    options: Options = [
        ("Yes", {"permissions": granted, "scope": "turn"}),
        ("Yes, for this session", {"permissions": granted, "scope": "session"}),
        (NO, {"permissions": {}}),
    ]
    return f"May it have these permissions? {_cut(_json(granted))}", options


def _mcp_call(wanted: Wanted) -> tuple[str, Options]:
    """Codex asks so itself, before it calls a tool of an MCP server."""
    meta = _meta(wanted)
    shown, persist = meta.get("tool_params"), meta.get("persist")
    kept = persist if isinstance(persist, list) else [persist]
    options: Options = [("Yes", {"action": "accept"})]
    for scope, words in (("session", "Yes, for this session"), ("always", "Yes, always")):
        if scope in kept:
            options.append((words, {"action": "accept", "_meta": {"persist": scope}}))
    options += [(STOP, {"action": "cancel"}), (NO, {"action": "decline"})]
    return f"{wanted.message} {_cut(_json(shown))}" if shown else wanted.message, options


def _elicitation(wanted: Wanted) -> tuple[str, Options]:
    """An MCP server asks the person. What wants words of theirs can only be declined: an answer is an option."""
    question = f"{wanted.server_name}: {wanted.message or wanted.title}"
    options: Options = [("Decline", {"action": "decline"})]
    schema = wanted.requested_schema
    if wanted.mode == "url":
        question, options = f"{question} {wanted.url}", [("Done", {"action": "accept"}), *options]
    elif wanted.mode == "form" and isinstance(schema, dict) and not schema.get("required"):
        options = [("Accept", {"action": "accept", "content": {}}), *options]
    return _cut(question), options


def _user_input(key: str, request_id: Any, wanted: Wanted) -> list[CodexQuestion]:
    found: list[CodexQuestion] = []
    for number, asked in enumerate(wanted.questions or ()):
        if not isinstance(asked, dict) or not isinstance(asked.get("id"), str):
            continue
        listed = asked.get("options")
        labels = [each.get("label") for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        options = [label for label in labels if isinstance(label, str)]
        dialog = DialogOpen(
            key=f"{key}#{number}",
            question=_cut(str(asked.get("question") or asked.get("header") or "")),
            options=(*options, DECLINE),
            kind="question",
        )
        choices: list[Result] = [{asked["id"]: {"answers": [label]}} for label in options]
        found.append(CodexQuestion(request_id=request_id, dialog=dialog, choices=(*choices, {}), part=True))
    return found


def _meta(wanted: Wanted) -> dict[str, Any]:
    return wanted.meta if isinstance(wanted.meta, dict) else {}


def _json(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 1] + "…"


__all__ = ["CodexQuestion", "Wanted", "questions_of"]
