"""How a text is made ready for Codex's input box."""

from __future__ import annotations

import pytest

from lastword.actors.core.adapter import Refused, TypedText
from lastword.transports.providers.codex_text import PLACEHOLDER_CHARS, SHOWN_LINES_MAX, escape, landed, matches


def typed(text: str) -> TypedText:
    made = escape(text)
    assert isinstance(made, TypedText), made
    return made


@pytest.mark.contract("C24")
@pytest.mark.parametrize(
    ("text", "paste"),
    [
        ("plain", "plain"),
        ("two\nlines", "two\nlines"),
        ("/status", " /status"),
        ("/status\nmore", " /status\nmore"),
        ("/path/to is text", "/path/to is text"),
        ("!ls", " !ls"),
        ("look @READ", "look @READ "),
        ("what is $HOME", "what is $HOME "),
        ("@one in the middle", "@one in the middle"),
        ("/x @y", " /x @y "),
        ("# heading", "# heading"),
        ("? what", "? what"),
        ("ends with \\", "ends with \\"),
        ("a\tb", "a\tb"),
    ],
)
def test_c24_what_the_cli_would_execute_or_complete_is_escaped_without_trace(text: str, paste: str) -> None:
    made = typed(text)
    assert made.paste.decode() == paste
    assert made.rewritten == text
    assert made.notes == ()
    assert matches(made, text)
    assert landed(made, paste.rstrip())


@pytest.mark.contract("C24")
def test_c24_what_the_cli_rewrites_is_declared() -> None:
    made = typed("  one\r\ntwo\r \n")
    assert (made.rewritten, made.notes) == ("one\ntwo", ("crlf", "outer_blank"))
    assert matches(made, "one\ntwo")
    assert not matches(made, "one two")


@pytest.mark.contract("C24")
def test_c24_a_text_that_would_scroll_in_the_box_is_made_a_placeholder() -> None:
    shown = typed("\n".join("x" * SHOWN_LINES_MAX))
    made = typed("\n".join("x" * (SHOWN_LINES_MAX + 1)))
    assert len(shown.paste) < PLACEHOLDER_CHARS
    assert len(made.paste) == PLACEHOLDER_CHARS + 1
    assert made.paste.decode().strip() == made.rewritten


@pytest.mark.contract("C24")
@pytest.mark.parametrize("count", [PLACEHOLDER_CHARS, PLACEHOLDER_CHARS + 1, 100_000])
def test_c24_a_long_text_has_landed_where_its_very_length_is_shown(count: int) -> None:
    made = typed("a" * count)
    placeholder = f"[Pasted Content {count} chars]"
    assert landed(made, placeholder) == (count > PLACEHOLDER_CHARS)
    assert landed(made, "a" * count) == (count <= PLACEHOLDER_CHARS)
    assert landed(made, f"{placeholder} #2") == (count > PLACEHOLDER_CHARS)
    assert not landed(made, f"[Pasted Content {count + 1} chars]")
    assert not landed(made, f"{placeholder}{placeholder} #2")


@pytest.mark.contract("C24")
def test_c24_a_wrapped_draft_is_the_text_and_another_one_is_not() -> None:
    made = typed("one two three 👨\u200d👩\u200d👧 done")
    assert landed(made, "one two\nthree 👨👩👧\ndone")
    assert not landed(made, "one two\nthree")
    assert not landed(made, "")


@pytest.mark.contract("C24")
@pytest.mark.parametrize(
    "text",
    ["", "   ", "\n\n", "a\x00b", "a\x1b[31mb", "bell \x07", "lone \ud800", "x" * 1_000_001, "/word " + "y" * 1000],
    ids=lambda text: repr(text[:10]),
)
def test_c24_what_would_be_lost_or_executed_is_refused_before_a_key_is_pressed(text: str) -> None:
    refused = escape(text)
    assert isinstance(refused, Refused)
    assert refused.reason


@pytest.mark.parametrize("text", ["a\u2028b", "a\u2029b"])
@pytest.mark.contract("C24")
def test_c24_a_separator_that_the_box_draws_wrong_is_typed_behind_a_placeholder(text: str) -> None:
    typed = escape(text)
    assert isinstance(typed, TypedText)
    assert landed(typed, "[Pasted Content 1001 chars]")
    assert matches(typed, text)
    assert isinstance(escape("a\x85b"), Refused), "it is not recorded"
