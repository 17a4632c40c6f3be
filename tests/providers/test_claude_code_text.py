"""Texts in and out of Claude Code: what is pasted, what is refused, what the record shows."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from lastword.actors.core.adapter import Refused, TypedText
from lastword.actors.core.likeness import folded
from lastword.runtime.testing.scripted.box import Box
from lastword.transports.providers import codex_text
from lastword.transports.providers.claude_code_text import escape, landed, matches, unwrap


def recorded(paste: str, *, queued: bool = False) -> str:
    """What Claude Code 2.1.332 records of a pasted text (docs/providers/claude_code.md)."""
    box = Box()
    box.insert(paste, pasted=True)
    text = box.expanded(wrapped=True)
    return text.strip("\n") if queued else text


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
    if not set(typed.notes) & {"line_separator", "pasted_content_tag", "nfc"}:
        assert typed.rewritten.strip() == plain, "nothing but the declared rewriting"


@pytest.mark.contract("C24")
@settings(max_examples=200, deadline=None)
@given(one=TEXT, other=TEXT)
def test_c24_another_text_is_not_taken_for_it(one: str, other: str) -> None:
    typed, foreign = escape(one), escape(other)
    if isinstance(typed, TypedText) and isinstance(foreign, TypedText):
        same = typed.rewritten.strip() == foreign.rewritten.strip()
        assert matches(typed, recorded(foreign.paste.decode())) == same


ODD = st.text(
    alphabet=st.one_of(
        st.sampled_from("a1 z\t\n\u0301\u0323\u1112\u1161\u11ab\u212a\u0343\u0958\uf900\x85\u2028\u2029"),
        st.sampled_from("\ufe00\ufe0e\ufe0f\u200c\u200d\u034f\u180b\u180e\u20e3\u17b4\U000e0061\U000e0100\ufff9\u2068"),
        st.sampled_from("\u2764\U0001f469\U0001f3fd\u0645\u0915\u094d\u1000\u182d\u845b\u2229\U0001f3f4\xa9\ufb01"),
        st.characters(exclude_categories=["Cs"]),
    ),
    min_size=1,
    max_size=60,
)


@pytest.mark.contract("C24")
@settings(max_examples=600, deadline=None)
@given(text=st.one_of(ODD, ODD.map(lambda odd: odd * 40)))
def test_c24_any_text_is_refused_or_seen_to_land_and_known_again(text: str) -> None:
    typed = escape(text)
    if isinstance(typed, Refused):
        assert typed.reason
        return
    box = Box()
    box.insert(typed.paste.decode(), pasted=True)
    assert landed(typed, box.text), "it would stand in the box for ever"
    assert not landed(typed, "")
    told = unwrap(box.expanded(wrapped=True))
    assert matches(typed, told) or folded(told) == folded(typed.rewritten) != ""


@pytest.mark.parametrize(
    "text", ["Re\u0301sume\u0301 x", "\u1112\u1161\u11ab", "5 \u212a", "Z\u0351\u036b\u0343\u0302a", "\u0958\u0915"]
)
@pytest.mark.contract("C24")
def test_c24_what_the_box_composes_is_declared(text: str) -> None:
    typed = escape(text)
    assert isinstance(typed, TypedText)
    assert typed.notes == ("nfc",)
    assert matches(typed, recorded(typed.paste.decode()))
    long = escape(text + " word" * 200)
    assert isinstance(long, TypedText)
    assert long.notes == (), "what stands behind a placeholder is recorded as it was pasted"
    assert matches(long, recorded(long.paste.decode()))


@pytest.mark.parametrize("text", ["\u0301", "\ue000", "\u0301 \u0302"])
@pytest.mark.parametrize("rules", [escape, codex_text.escape], ids=["claude-code", "codex"])
@pytest.mark.contract("C24")
def test_c24_a_text_of_which_a_box_would_show_nothing_is_refused(text: str, rules: Callable[[str], object]) -> None:
    assert isinstance(rules(text), Refused)


@pytest.mark.contract("C24")
def test_c24_texts_without_a_letter_are_told_apart_by_their_symbols() -> None:
    ours = escape("\U0001f469\u200d\U0001f467")
    assert isinstance(ours, TypedText)
    assert landed(ours, "\U0001f469 \U0001f467")
    assert not landed(ours, "\U0001f600"), "a person's"
    codex = codex_text.escape("\U0001f600")
    assert isinstance(codex, TypedText)
    assert not codex_text.landed(codex, "\U0001f44d")


@pytest.mark.parametrize(
    "text",
    [
        "a\0b",
        "a\x1b[31mb",
        "\x07",
        "a\x0bb",
        "zero\u200bwidth",
        "a\ufe0fb",
        "a\ufe00b",
        "a\u034fb",
        "a\u180eb",
        "a\u3164b",
        "a\u115fb",
        "a\ufff9b",
        "a\u2068b",
        "\u845b\U000e0100",
        "a\U0001d173b",
        "a\u200db",
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
        ("Re\u0301sume\u0301", "R\xe9sum\xe9", True),
        ("\u1112\u1161\u11ab", "\ud55c", True),
        ("\U0001f600" * 410, "[Pasted text #2]", True),
        ("a\u2029b\x85c\u2028d", "[Pasted text #1 +3 lines]", True),
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
