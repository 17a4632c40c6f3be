"""IC-11, the static proof: host code names no provider and reads no pane and no transcript. And C10: the surface."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import lastword
from lastword import AsyncSession, Session
from lastword.transports.providers import PROVIDERS

ROOT = Path(__file__).parents[2]
HOST_CODE = sorted([*(ROOT / "runtime" / "host").rglob("*.py"), *(ROOT / "examples").glob("*.py")])

PROVIDER_NAMES = sorted({*PROVIDERS, "claude", "claude-code", "codex", "cursor", "pi", "gemini", "qwen", "opencode"})
TRANSPORT_NAMES = ("tmux", "structured", "api", "memory", "app-server")
PANE_WORDS = frozenset(
    {"pane", "capture_pane", "screen", "transcript", "attach", "jsonl", "pid", "native_session_id", "native_turn_id"}
)
"""Attributes and arguments whose reading would mean that a host looks past the events."""
FOREIGN_ROOMS = ("lastword.transports", "lastword.actors.pane", "lastword.actors.transcript", "lastword.actors.session")
WORLD = frozenset({"libtmux", "pykka", "sqlite3", "watchdog", "subprocess", "os", "socket", "glob"})
MAY_NAME_ITS_PROVIDER = frozenset({"session", "run", "open"})
"""Calls in an example that choose a provider: the one thing that a host has to say."""


def offences(source: str, *, example: bool) -> list[str]:
    """What host code may not do, as ``line: what``."""
    found: list[str] = []
    tree = ast.parse(source)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    chosen = {
        id(node.args[0])
        for node in ast.walk(tree)
        if example
        and isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in MAY_NAME_ITS_PROVIDER
        and node.args
    }

    decides = {id(part) for node in ast.walk(tree) for part in _deciding(node)}
    told = {  # taken out of an event, to be shown: events are what a host may read
        pattern.name
        for case in ast.walk(tree)
        if isinstance(case, ast.MatchClass) and ast.unparse(case.cls).startswith("events.")
        for pattern in case.kwd_patterns
        if isinstance(pattern, ast.MatchAs)
    }

    def offence(node: ast.AST, what: str) -> None:
        found.append(f"{getattr(node, 'lineno', 0)}: {what}")

    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docs and id(node) not in chosen:
                if text.lower() in PROVIDER_NAMES:
                    offence(node, f"names the provider {text!r}")
                if text.lower() in TRANSPORT_NAMES:
                    offence(node, f"names the transport {text!r}")
            case ast.Attribute(attr=attr):
                if attr in ("transport", "provider") and id(node) in decides:
                    offence(node, f"branches on .{attr}")
                if attr in PANE_WORDS:
                    offence(node, f"reads .{attr}")
                if attr.startswith("_") and not attr.startswith("__") and not _own(node):
                    offence(node, f"reaches into {attr}")
            case ast.Name(id=name) if name not in told:
                if name in ("transport", "provider") and id(node) in decides:
                    offence(node, f"branches on {name}")
                if name in PANE_WORDS or any(word in name.lower() for word in ("claude", "codex", "tmux")):
                    offence(node, f"holds {name}")
            case ast.Import(names=names):
                for alias in names:
                    _check_import(node, alias.name, offence, example=example)
            case ast.ImportFrom(module=module):
                _check_import(node, module or "", offence, example=example)
            case _:
                pass
    return found


def _deciding(node: ast.AST) -> list[ast.AST]:
    """All that stands where a way is chosen."""
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            return list(ast.walk(test))
        case ast.Compare():
            return list(ast.walk(node))
        case ast.Match(subject=subject):
            return list(ast.walk(subject))
        case ast.Subscript(slice=key):
            return list(ast.walk(key))
        case _:
            return []


def _own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def _check_import(node, module, offence, *, example):
    if module.startswith(FOREIGN_ROOMS) or module.split(".")[0] in WORLD - ({"os"} if example else set()):
        offence(node, f"imports {module}")
    if example and module.startswith("lastword."):
        allowed = ("lastword.runtime.host", "lastword.runtime.testing")
        if not module.startswith(allowed):
            offence(node, f"imports {module}: an example needs the door only")


@pytest.mark.contract("C10")
@pytest.mark.contract("C33")
@pytest.mark.parametrize("path", HOST_CODE, ids=[str(path.relative_to(ROOT)) for path in HOST_CODE])
def test_ic11_host_code_knows_no_provider_no_transport_no_pane_and_no_transcript(path):
    example = path.is_relative_to(ROOT / "examples")
    assert offences(path.read_text(), example=example) == []


def test_ic11_the_host_layer_is_there_and_is_covered():
    names = {path.name for path in HOST_CODE}
    assert {"__init__.py", "view.py", "schedule.py"} <= names
    hosts = [
        path for path in (ROOT / "examples").rglob("*.py") if path.parent.name != "third_party"
    ]  # an adapter is none
    assert len(hosts) == sum(path.is_relative_to(ROOT / "examples") for path in HOST_CODE)


@pytest.mark.parametrize(
    ("code", "example"),
    [
        ("if provider == 'claude-code':\n    pass", False),
        ("name = 'claude-code'", True),
        ("if done.transport == x:\n    pass", True),
        ("if done.provider != x:\n    pass", False),
        ("kind = 'tmux'", False),
        ("match done.transport:\n    case x:\n        pass", True),
        ("rules[session.provider]()", True),
        ("y = 1 if provider == x else 2", True),
        ("match x:\n    case Thing(pane=pane):\n        print(pane)", True),
        ("text = session.snapshot().handle.pane", True),
        ("print(handle.attach)", False),
        ("from lastword.transports.tmux import TmuxServer", True),
        ("from lastword.actors.transcript import Follow", False),
        ("import libtmux", True),
        ("import subprocess", False),
        ("from lastword.runtime._hub import Hub", True),
        ("session._counterpart.ref.tell(1)", False),
        ("for line in transcript:\n    pass", False),
    ],
)
def test_ic11_the_check_sees_each_offence(code, example):
    assert offences(code, example=example)


def test_ic11_the_check_lets_honest_host_code_pass():
    code = '''"""Runs claude-code in a pane."""
from lastword import Runtime
with Runtime.open() as runtime:
    session = runtime.session("claude-code", cwd=".")
    other = runtime.session(rehearsed.provider, cwd=".")
    match event.body:
        case events.ProviderStarted(pid=pid, pane=pane):
            print(pid, pane)
    print(session.run("hi").answer)
'''
    assert offences(code, example=True) == []


# --- C10 --------------------------------------------------------------------------------------------------------------

SURFACE = ["close", "events", "run", "send", "session_id", "snapshot"]
PUBLIC = [
    "ActorError",
    "Answer",
    "AsyncRuntime",
    "AsyncSession",
    "Command",
    "Completion",
    "Delivery",
    "Dialog",
    "DialogPolicy",
    "Event",
    "Interrupt",
    "JournalError",
    "LastwordError",
    "Limits",
    "ProviderError",
    "RejectedError",
    "Runtime",
    "Session",
    "Snapshot",
    "Tool",
    "ToolCall",
    "TransportError",
    "TurnError",
    "UsageError",
    "answer_trust",
    "events",
]


@pytest.mark.contract("C10")
@pytest.mark.parametrize("kind", [Session, AsyncSession])
def test_c10_the_surface_of_a_session_is_exactly_the_five_and_its_id(kind):
    assert sorted(name for name in dir(kind) if not name.startswith("_")) == SURFACE
    assert isinstance(inspect.getattr_static(kind, "session_id"), property)


@pytest.mark.contract("C10")
def test_c10_a_live_session_carries_nothing_public_beside_it(make):
    session = make().session()
    assert sorted(name for name in dir(session) if not name.startswith("_")) == SURFACE


@pytest.mark.contract("C10")
@pytest.mark.parametrize("name", ["run", "send", "events", "close", "snapshot"])
def test_c10_the_asyncio_twin_takes_the_same_arguments(name):
    def shape(kind):
        found = inspect.signature(getattr(kind, name)).parameters.values()
        return [(one.name, one.kind, one.default) for one in found]

    assert shape(Session) == shape(AsyncSession)


@pytest.mark.contract("C10")
def test_c10_the_public_names_of_the_package_are_pinned():
    assert sorted(lastword.__all__) == PUBLIC
    assert [name for name in dir(lastword) if not name.startswith("_")] == PUBLIC
    for name in PUBLIC:
        assert getattr(lastword, name) is not None
    from lastword import runtime

    assert sorted(runtime.__all__) == PUBLIC
    with pytest.raises(AttributeError):
        _ = lastword.no_such_name


@pytest.mark.contract("C10")
def test_c10_the_host_layers_names_are_pinned():
    from lastword.runtime import host

    assert sorted(host.__all__) == ["Row", "Schedule", "ScheduleResult", "SessionView", "Step", "StepResult", "ToolRow"]
