"""Nothing that a model, a CLI or a file says reaches the terminal of whoever runs ``lastword`` raw."""

from __future__ import annotations

import types
import typing
import unicodedata

import msgspec
import pytest
from click.testing import CliRunner

from journal_samples import session
from lastword.actors.core import events
from lastword.actors.core.events import Draft, Event
from lastword.actors.core.ids import MessageId, SessionId, TurnId
from lastword.actors.core.outcome import Completion, Evidence, TurnError
from lastword.actors.core.ports import Batch, MessageRow, TurnRow
from lastword.runtime._journal import SqliteJournal
from lastword.runtime.command import cli
from lastword.runtime.command._progress import describe
from lastword.runtime.command.events import line_of
from volume_kit import encoded, turn_lines

EVIL = (
    "a\x1b]52;c;ZXZpbA==\x07b\x1b]0;title\x1b\\c\x1bPtmux;\x1b\x1b]2;x\x07\x1b\\d\x9b31me\x9d2;x\x9cf\x00\x08\x7f"
    "\u202eg\u2066h\u200e\u2069\ufff9\U000e0041\x85\u2028\r\n\x1b[2Ji"
)
S, T = SessionId(f"s_{EVIL}"), TurnId(f"t_{EVIL}")


def raw(text: str) -> set[str]:
    """Characters in it that a terminal would act upon."""
    return {
        char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in "\n\t"
    }


def filled(kind):
    """A value of that type with hostile text wherever text is possible."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is str or hasattr(kind, "__supertype__"):
        return EVIL
    if kind in (int, float):
        return kind(1)
    if kind is bool:
        return True
    if kind is type(None):
        return None
    if origin is typing.Literal:
        return args[0]
    if origin in (typing.Union, types.UnionType):
        return filled(next((arg for arg in args if arg is not type(None)), args[0]))
    if origin is tuple:
        return (filled(args[0]),)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return kind(**{field.name: filled(hints[field.name]) for field in msgspec.structs.fields(kind)})
    raise AssertionError(kind)


@pytest.mark.parametrize("body", typing.get_args(events.EventBody), ids=lambda body: body.__name__)
def test_no_event_of_any_kind_is_shown_raw(body):
    event = Event(session_id=S, seq=1, at=1.0, body=filled(body), turn_id=T, message_id=MessageId(EVIL))
    assert raw(describe(event)) == set()
    assert raw(line_of(event)) == set()


@pytest.fixture
def hostile(tmp_path):
    """A state folder in which everything that can be hostile is."""
    journal = SqliteJournal.open(tmp_path / "state")
    evidence = Evidence(source=EVIL, offset=1, native_id=EVIL, native_at=1e9)
    row = msgspec.structs.replace(session(S), cwd=f"/{EVIL}", provider=EVIL)
    done = Completion(
        turn_id=T,
        session_id=S,
        status="failed",
        source="transcript",
        provider=EVIL,
        transport="memory",
        evidence=evidence,
        error=TurnError(kind="provider_error", message=EVIL),
    )
    drafts = tuple(
        Draft(body=filled(body), turn_id=T, native_at=1.0)
        for body in typing.get_args(events.EventBody)
        if body is not events.CompletionReached
    )
    message = MessageRow(message_id=MessageId(EVIL), session_id=S, text=EVIL, taken="started_turn", turn_id=T)
    turn = TurnRow(turn_id=T, session_id=S, message_id=message.message_id, native_turn=EVIL)
    waiting = TurnRow(turn_id=TurnId("t_open"), session_id=S, message_id=None)
    journal.record([Batch(session_id=S, session=row, accept=message, turns=(turn, waiting), drafts=drafts)], 1.0)
    open_dialog = Draft(body=filled(events.DialogOpened), turn_id=waiting.turn_id)
    open_tool = Draft(body=filled(events.ToolStarted), turn_id=waiting.turn_id)
    journal.record([Batch(session_id=S, drafts=(open_dialog, open_tool), completion=done)], 2.0)
    journal.close()
    return tmp_path


def shown(*words):
    result = CliRunner().invoke(cli, list(words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output + (result.stderr if result.stderr_bytes else "")


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_no_command_shows_the_record_raw(hostile, form):
    state = str(hostile / "state")
    for words in (("events", S), ("explain", T), ("explain", "t_open"), ("sessions",), ("top", *(form or ("--once",)))):
        code, text = shown(*words, "--state", state, *form)
        assert code == 0, text
        assert len(text) > 50
        assert raw(text) <= ({"\U000e0041"} if form else set()), words


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_transcript_is_not_shown_raw(tmp_path, form):
    path = tmp_path / "evil\x1b]0;x\x07.jsonl"
    lines = turn_lines(prompt=EVIL, answer=EVIL, at="2026-01-01T00:00:00Z", tools=1)
    lines[1]["message"]["content"][0]["name"] = EVIL
    path.write_bytes(encoded(lines))
    code, text = shown("read", "claude-code", str(path), *form)
    assert code == 0
    assert raw(text) <= ({"\U000e0041"} if form else set())


@pytest.mark.parametrize(
    "words",
    [
        ("read", "claude-code", f"/nowhere/{EVIL.replace(chr(0), '')}"),
        ("read", EVIL, "x"),
        ("events", EVIL),
        ("explain", EVIL),
        ("send", EVIL, "x"),
        ("send", "s", "x", "--answer", EVIL, EVIL),
        (EVIL,),
        ("events", "s", f"--{EVIL}"),
        ("events", "s", "--after", EVIL),
        ("run", "--deadline", EVIL, "x"),
        ("run", "--provider", EVIL, "x"),
        ("run", "--cwd", f"/nowhere/{EVIL.replace(chr(0), '')}", "x"),
        ("sessions", "--state", f"/nowhere/{EVIL.replace(chr(0), '')}"),
        ("top", "--once", "--state", f"/nowhere/{EVIL.replace(chr(0), '')}"),
        ("top", "--sort", EVIL),
        ("top", "--state", f"/nowhere/{EVIL.replace(chr(0), '')}"),
        ("doctor", "--state", f"/nowhere/{EVIL.replace(chr(0), '')}"),
    ],
    ids=lambda words: " ".join(words)[:20].encode("ascii", "replace").decode(),
)
def test_no_refusal_shows_its_argument_raw(hostile, words, monkeypatch):
    monkeypatch.setenv("LASTWORD_STATE", str(hostile / "state"))
    code, text = shown(*words)
    assert code in (1, 2), text
    assert raw(text) == set()
