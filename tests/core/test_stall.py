"""What a quiet turn waits for: the most certain cause first."""

from __future__ import annotations

import pytest

from lastword.actors.core.facts import (
    AssistantSaid,
    CliStatusSeen,
    PromptRecorded,
    ProviderRetrying,
    ToolFinished,
    ToolStarted,
)
from lastword.actors.core.outcome import Evidence
from lastword.actors.core.stall import SHOWN_CHARS_MAX, Track, View, diagnose, shown

AT = Evidence(source="f", offset=7, native_id="n", native_at=100.0)
PROMPT = PromptRecorded(native_turn="t", text="go", evidence=AT)
TOOL = ToolStarted(native_turn="t", call_id="c", name="Bash", arguments="{}", evidence=AT)
TOOL_END = ToolFinished(native_turn="t", call_id="c", status="ok", result="", evidence=AT)
SAID = AssistantSaid(native_turn="t", native_message="m", text="hm", evidence=AT)
RETRY = ProviderRetrying(native_turn="t", message="overloaded", evidence=AT)


def status(word: str, at: float, waiting_for: str = "") -> CliStatusSeen:
    return CliStatusSeen(status=word, waiting_for=waiting_for, updated_at=at, native_session="s")


def after(*facts) -> Track:
    track = Track()
    for fact in facts:
        track.note(fact)
    return track


@pytest.mark.contract("C42")
@pytest.mark.parametrize(
    ("view", "kind", "what"),
    [
        ({"track": after(PROMPT)}, "model", "the model"),
        ({"track": after(PROMPT, SAID)}, "model", "the model"),
        ({"track": after(PROMPT, TOOL)}, "tool", "tool Bash"),
        ({"track": after(PROMPT, TOOL, SAID)}, "tool", "tool Bash"),
        ({"track": after(PROMPT, TOOL, TOOL_END)}, "model", "the model"),
        ({"track": after(PROMPT, RETRY)}, "retry", "tries again"),
        ({"track": after(PROMPT, RETRY, SAID)}, "model", "the model"),
        (
            {"track": after(PROMPT, TOOL), "dialog": ("permission", "May I?")},
            "person",
            "a permission dialog is open: May I?",
        ),
        ({"track": after(PROMPT), "status": status("waiting", 101, "input")}, "person", "waits for input"),
        ({"track": after(PROMPT), "status": status("idle", 101)}, "terminal_record", "says that it is idle"),
        ({"track": after(PROMPT), "status": status("idle", 99)}, "model", "the model"),
        ({"track": after(PROMPT), "status": status("busy", 101)}, "model", "the model"),
        ({"stage": "waiting", "cli": "starting"}, "cli_start", "to take input"),
        ({"stage": "typing"}, "delivery", "to take the message"),
        ({"stage": "submitted"}, "delivery", "to show the message on record"),
        ({"stage": "queued"}, "queue", "the queue"),
        ({"stage": "waiting", "held": "a draft in the input box"}, "person", "a draft"),
        ({"track": after(PROMPT, TOOL), "ending": True}, "provider_gone", "which is gone"),
        (
            {"track": after(PROMPT, TOOL), "ending": True, "unread": ("/r.jsonl", "EACCES")},
            "record",
            "/r.jsonl, which cannot",
        ),
        ({"track": after(PROMPT, TOOL), "journal_waits": True, "ending": True}, "journal", "the journal"),
    ],
)
def test_c42_every_wait_has_its_name(view, kind, what):
    found = diagnose(View(provider="claude-code", since=50.0, **view))
    assert found.kind == kind
    assert what in found.what


@pytest.mark.contract("C42")
def test_c42_the_first_of_two_tools_is_named_with_its_own_record():
    other = ToolStarted(native_turn="t", call_id="d", name="Read", arguments="{}", evidence=AT)
    found = diagnose(View(provider="p", track=after(PROMPT, TOOL, other)))
    assert (found.what, found.since, found.evidence) == ("tool Bash", 100.0, AT)
    assert diagnose(View(provider="p", track=after(PROMPT, TOOL, other, TOOL_END))).what == "tool Read"


def test_what_is_shown_is_one_line_and_bounded():
    assert shown("a\n b\tc") == "a b c"
    assert len(shown("x" * 10_000)) == SHOWN_CHARS_MAX
