"""Texts that the CLI composes or empties, in a real pane: each is run once and told so, or refused; none blocks."""

from __future__ import annotations

import pytest

from host_kit import WAIT_S
from lastword import RejectedError, events
from lastword.runtime.testing import rehearsed_runtime

pytestmark = [pytest.mark.tmux, pytest.mark.contract("C24")]

TEXTS = {
    "[[tool:Bash:echo ran >> ran.txt]][[say:ok]] \u1112\u1161\u11ab": ("ok", ("nfc",)),
    "Re\u0301sume\u0301 please": ("echo: R\xe9sum\xe9 please", ("nfc",)),
    "5 \u212a warm": ("echo: 5 K warm", ("nfc",)),
    "a\u2029b\x85c": ("echo: a\nb\nc", ("line_separator",)),
    "\U0001f469\u200d\U0001f467": ("echo: \U0001f469\u200d\U0001f467", ()),
    "\u0645\u06cc\u200c\u062e": ("echo: \u0645\u06cc\u200c\u062e", ()),
}


def test_c24_odd_texts_run_once_each_or_are_refused() -> None:
    with rehearsed_runtime() as rehearsed:
        session = rehearsed.runtime.session(rehearsed.provider, cwd=rehearsed.cwd)
        for text, (answer, notes) in TEXTS.items():
            done = session.run(text, deadline_s=WAIT_S)
            assert (done.status, done.answer, done.origin) == ("completed", answer, "host")
            for event in session.events():
                if isinstance(event.body, events.MessageSubmitted) and event.turn_id == done.turn_id:
                    assert event.body.rewritten == notes
                    break
        for text in ("a\ufe0fb", "a\u034fb", "a\u3164b", "\u0301"):
            with pytest.raises(RejectedError) as refused:
                session.run(text)
            assert refused.value.kind == "unsupported_text"
        assert (rehearsed.cwd / "ran.txt").read_text() == "ran\n"
