"""The real Claude Code with nobody in front of it: a policy answers its dialogs, and a limit says when it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastword import Dialog, Runtime, answer_trust, events
from lastword.runtime.testing import Rehearsal, Script, Step, StepError, claude_home

pytestmark = pytest.mark.live
WAIT_S = 60.0
RESETS_AT = int(time.time()) // 3600 * 3600 + 3 * 3600
LIMIT = StepError(
    status=429,
    headers={
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-reset": str(RESETS_AT),
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
    },
)


@pytest.fixture
def rehearsal(claude: Path) -> Iterator[Rehearsal]:
    with Rehearsal(Script(scripts={"limit": (Step(error=LIMIT),)})) as kit:
        yield kit


def dialogs_of(runtime: Runtime, session_id: str) -> list[tuple[str, str]]:
    """Kind of each dialog that opened, and who answered it."""
    journal = runtime._journal.events(session_id, 0, 10_000)
    closed = {event.body.dialog_id: event.body.by for event in journal if isinstance(event.body, events.DialogClosed)}
    opened = [event.body for event in journal if isinstance(event.body, events.DialogOpened)]
    return [(body.kind, closed.get(body.dialog_id, "")) for body in opened]


def untrusted(kit: Rehearsal) -> dict[str, str]:
    return claude_home(kit.home, [kit.cwd], base_url=kit.server.base_url, tmp=kit.tmp, trusted=False)


@pytest.mark.contract("C25")
def test_c25_a_policy_trusts_the_folder_and_allows_one_tool(open_runtime, rehearsal: Rehearsal) -> None:
    asked: list[Dialog] = []

    def policy(session_id: str, dialog: Dialog) -> int | None:
        asked.append(dialog)
        if dialog.kind == "permission" and "touch allowed" in dialog.question:
            return dialog.options.index("Yes") + 1
        return answer_trust(session_id, dialog)

    runtime = open_runtime(env=untrusted(rehearsal), dialog_policy=policy)
    session = runtime.session("claude-code", cwd=rehearsal.cwd, permission_mode="default")
    done = session.run("[[tool:Bash:touch allowed]][[say:done]]", deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("completed", "done")
    assert (rehearsal.cwd / "allowed").exists()
    assert dialogs_of(runtime, session.session_id) == [("trust", "policy"), ("permission", "policy")]
    assert asked[0].options == ("No, exit", "Yes, I trust this folder")


@pytest.mark.contract("C25")
def test_c25_the_policy_that_trusts_allows_no_tool(open_runtime, rehearsal: Rehearsal) -> None:
    runtime = open_runtime(env=untrusted(rehearsal), dialog_policy=answer_trust)
    session = runtime.session("claude-code", cwd=rehearsal.cwd, permission_mode="default")
    done = session.run("[[tool:Bash:touch allowed]][[say:done]]", deadline_s=15.0)
    assert (done.status, done.error.kind) == ("cancelled", "deadline")
    assert not (rehearsal.cwd / "allowed").exists()
    assert dialogs_of(runtime, session.session_id)[0] == ("trust", "policy")


@pytest.mark.contract("C03")
@pytest.mark.parametrize("login", ["account", "key"])
def test_c03_a_limit_is_told_and_with_an_account_when_it_ends(open_runtime, rehearsal: Rehearsal, login: str) -> None:
    env = dict(rehearsal.env)
    if login == "account":
        del env["ANTHROPIC_API_KEY"]
        env["CLAUDE_CODE_OAUTH_TOKEN"] = "sk-ant-oat01-rehearsal-not-a-real-token"
    session = open_runtime(env=env).session("claude-code", cwd=rehearsal.cwd)
    done = session.run("[[script:limit]] hi", deadline_s=WAIT_S)
    assert (done.status, done.error.kind) == ("failed", "rate_limited")
    assert done.error.resets_at == (RESETS_AT if login == "account" else None)
