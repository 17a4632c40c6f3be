"""Real CLIs, one session: Claude Code in a pane, then Codex in a pane, then Pi over its pipes (C13, PLAT-099)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import live_clis
import pytest

from kit_system import until
from lastword import RejectedError, Runtime, Session, events
from lastword.runtime.testing import SEALED_HOMES, Rehearsal
from structured_kit import child_of, completed, completions, ended, of_type, seen

pytestmark = [pytest.mark.live, pytest.mark.contract("C13")]
CACHE = Path(os.environ.get("LASTWORD_CLI_CACHE") or "/nonexistent")
CLIS = ("claude-code", "codex", "pi")
WAIT_S = 60.0


@pytest.fixture
def kit() -> Iterator[Rehearsal]:
    for provider in CLIS:
        if not live_clis.is_there(CACHE, provider):
            pytest.skip(f"the pinned {provider} is not in the cache folder: make live")
    with Rehearsal() as made:
        for provider in CLIS:
            made.env |= SEALED_HOMES[provider](made.home, (made.cwd,), made.server.base_url, made.tmp)
        yield made


def open_runtime(kit: Rehearsal) -> Runtime:
    executables = {provider: live_clis.argv_of(CACHE, provider) for provider in CLIS}
    return Runtime.open(kit.root / "state", executables=executables, env=kit.env, durability="process")


RECORDS = {
    "claude-code": ".claude/projects/*/*.jsonl",
    "codex": ".codex/sessions/*/*/*/*.jsonl",
    "pi": ".pi/agent/sessions/*/*.jsonl",
}


def heard(kit: Rehearsal, provider: str) -> set[str]:
    """Which of our words stand in that CLI's own records."""
    records = "".join(path.read_text(encoding="utf-8") for path in kit.home.glob(RECORDS[provider]))
    return {word for word in ("ALPHA", "BETA0", "BETA1", "GAMMA", "DELTA") if word in records}


def asked(kit: Rehearsal, word: str) -> set[str]:
    """Over which wires the scripted model was asked for an answer to it."""
    return {
        request.path.rpartition("/")[2].partition("?")[0] for request in kit.server.requests if word in request.prompt
    }


def test_plat099_a_message_never_reaches_the_provider_before_on_two_real_clis(kit: Rehearsal) -> None:
    with open_runtime(kit) as runtime:
        session = runtime.session("claude-code", cwd=kit.cwd)
        again = lambda *args, **named: runtime.session(*args, session_id=session.session_id, **named)  # noqa: E731
        ack = session.send("[[sleep:1]][[say:from claude]] ALPHA")
        seen(session, events.TurnStarted)
        with pytest.raises(RejectedError) as busy:
            again("codex")
        assert busy.value.kind == "busy"
        (first,) = completed(session)
        assert (first.turn_id, first.provider, first.answer) == (ack.turn_id, "claude-code", "from claude")
        claude = child_of(session)

        assert again("codex") is session
        assert ended(claude)
        switch = of_type(session, events.SessionSwitched)[-1]
        senders = [threading.Thread(target=session.send, args=(f"[[say:from codex {n}]] BETA{n}",)) for n in range(2)]
        for thread in senders:
            thread.start()
        for thread in senders:
            thread.join(WAIT_S)
        seen(session, events.CompletionReached, switch.seq)
        settle(session, 3)
        codex = child_of(session)
        assert {done.provider for done in completions(session)[1:]} == {"codex"}
    assert ended(codex)

    with open_runtime(kit) as runtime:
        known = runtime.session(session_id=session.session_id)
        assert known.snapshot().provider == "codex"
        done = known.run("[[say:codex again]] GAMMA", deadline_s=WAIT_S)
        assert (done.provider, done.answer) == ("codex", "codex again")
        runtime.session("pi", transport="structured", session_id=session.session_id)
        done = known.run("[[say:from pi]] DELTA", deadline_s=WAIT_S)
        assert (done.provider, done.transport, done.answer) == ("pi", "structured", "from pi")
        assert known.snapshot().config_epoch == 3
        told = [event.body.provider for event in of_type(known, events.SessionSwitched)]
        assert told == ["codex", "pi"]

    assert heard(kit, "claude-code") == {"ALPHA"}
    assert heard(kit, "codex") == {"BETA0", "BETA1", "GAMMA"}
    assert heard(kit, "pi") == {"DELTA"}
    assert asked(kit, "ALPHA") == {"messages"}
    assert asked(kit, "GAMMA") == {"responses"}


def settle(session: Session, turns: int) -> None:
    """Two messages at once may share a turn of Codex: each has its one end."""
    ends = lambda: sum(1 + len(done.joined) for done in completions(session))  # noqa: E731
    until(lambda: ends() == turns, within_s=WAIT_S)


def test_plat099_another_model_goes_on_in_the_same_conversation_of_claude_code(kit: Rehearsal) -> None:
    with open_runtime(kit) as runtime:
        session = runtime.session("claude-code", cwd=kit.cwd, model="claude-sonnet-4-5")
        assert session.run("[[say:small]] ALPHA", deadline_s=WAIT_S).answer == "small"
        native = session.snapshot().handle.native_session_id
        runtime.session(model="claude-opus-4-5", session_id=session.session_id)
        assert session.run("[[say:big]] BETA0", deadline_s=WAIT_S).answer == "big"
        assert session.snapshot().handle.native_session_id == native
        assert len(completions(session)) == 2
    models = [request.model for request in kit.server.requests if request.prompt.startswith("[[say:")]
    assert models == ["claude-sonnet-4-5", "claude-opus-4-5"]
    assert heard(kit, "claude-code") == {"ALPHA", "BETA0"}
