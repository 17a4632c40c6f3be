"""Texts in and out of Claude Code: what is pasted, what is refused, what the record shows."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from lastword.actors.core.adapter import Refused, TypedText
from lastword.transports.providers.claude_code_text import escape, landed, matches, unwrap


def recorded(paste: str, *, queued: bool = False) -> str:
    """What Claude Code 2.1.332 records of a pasted text (docs/providers/claude_code.md)."""
    text = paste.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")
    for separator in "\x85\u2028\u2029":
        text = text.replace(separator, "\n")
    text = text.replace("</pasted_content", "<\\/pasted_content").replace("<pasted_content", "<\\pasted_content")
    if text.count("\n") >= 3 or len(text) > 800:
        wrapped = f'\n\n<pasted_content id="ab12">\n{text}\n</pasted_content id="ab12">\n'
        return wrapped.strip("\n") if queued else wrapped
    return text.rstrip()


TEXT = st.text(
    alphabet=st.characters(exclude_categories=["Cs", "Cc", "Cf"], include_characters="\n\t\r"), min_size=1, max_size=400
)


@pytest.mark.contract("C24")
@settings(max_examples=400, deadline=None)
@given(text=TEXT, queued=st.booleans())
def test_c24_what_is_typed_is_recognised_in_the_record(text: str, queued: bool) -> None:
    typed = escape(text)
    if isinstance(typed, Refused):
        assert typed.reason
        return
    assert matches(typed, recorded(typed.paste.decode(), queued=queued))
    plain = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ").strip()
    if not set(typed.notes) & {"line_separator", "pasted_content_tag"}:
        assert typed.rewritten.strip() == plain, "nothing but the declared rewriting"


@pytest.mark.contract("C24")
@settings(max_examples=200, deadline=None)
@given(one=TEXT, other=TEXT)
def test_c24_another_text_is_not_taken_for_it(one: str, other: str) -> None:
    typed, foreign = escape(one), escape(other)
    if isinstance(typed, TypedText) and isinstance(foreign, TypedText):
        same = typed.rewritten.strip() == foreign.rewritten.strip()
        assert matches(typed, recorded(foreign.paste.decode())) == same


@pytest.mark.parametrize(
    "text",
    [
        "a\0b",
        "a\x1b[31mb",
        "\x07",
        "a\x0bb",
        "zero\u200bwidth",
        "\ufeffbom",
        "\ud800",
        "   ",
        "\n\n",
        "!ls",
        "  !ls",
        "x" * 2_000_001,
    ],
)
@pytest.mark.contract("C24")
def test_c24_what_would_be_executed_or_lost_is_refused_with_a_reason(text: str) -> None:
    refused = escape(text)
    assert isinstance(refused, Refused)
    assert refused.reason


EXIT_WORDS = ("exit", "quit", ":q", ":q!", ":wq", ":wq!", "exit\n", "Exit")


@pytest.mark.parametrize("text", ["/help", "/nosuch with words", "/ x", "/", " /clear", "/a-b:c\nsecond", *EXIT_WORDS])
@pytest.mark.contract("C24")
def test_c24_a_text_that_looks_like_a_command_is_pasted_as_a_placeholder(text: str) -> None:
    typed = escape(text)
    assert isinstance(typed, TypedText)
    assert typed.paste.decode().count("\n") >= 3
    assert matches(typed, recorded(typed.paste.decode()))
    assert typed.rewritten == text.rstrip()


@pytest.mark.parametrize(
    "text", ["/tmp/file", "//x", "/a.b", "see /help", "- item", "# x", "@x", "?", "exit now", ":qa"]
)
def test_a_text_that_is_no_command_is_pasted_as_it_is(text: str) -> None:
    typed = escape(text)
    assert isinstance(typed, TypedText)
    assert typed.paste.decode() == text


def test_a_trailing_backslash_gets_the_blank_that_the_record_drops() -> None:
    typed = escape("path\\")
    assert isinstance(typed, TypedText)
    assert typed.paste == b"path\\ "
    assert matches(typed, "path\\")


@pytest.mark.parametrize(
    ("text", "draft", "there"),
    [
        ("hello", "hello", True),
        ("hello", "hello there", False),
        ("hello", "", False),
        ("word " * 100, "word " * 50 + "\nword" + " word" * 49, True),
        ("a\nb\nc\nd", "[Pasted text #1 +3 lines]", True),
        ("a\nb\nc\nd", "[Pasted text #1 +4 lines]", False),
        ("a\nb\nc\nd", "[Pasted text #1 +3 lines][Pasted text #2 +3 lines]", False),
        ("x" * 801, "[Pasted text #3]", True),
        ("hello", "[Pasted text #1 +3 lines]", False),
        ("[Pasted text #1 +3 lines]", "[Pasted text #1 +3 lines]", True),
        ("family 👨‍👩‍👧‍👦 done", "family 👨 👩 👧 👦 done", True),
        ("你好 world", "你好 world", True),
    ],
)
@pytest.mark.contract("C24")
def test_c24_landed_means_that_the_box_shows_this_text_and_nothing_else(text: str, draft: str, there: bool) -> None:
    typed = escape(text)
    assert isinstance(typed, TypedText)
    assert landed(typed, draft) is there


@settings(max_examples=200, deadline=None)
@given(text=TEXT)
def test_unwrap_gives_back_what_was_pasted(text: str) -> None:
    if "pasted_content" in text:
        return
    assert unwrap(f'\n\n<pasted_content id="x1">\n{text}\n</pasted_content id="x1">\n') == text
