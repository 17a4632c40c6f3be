"""Chat completions beside Responses: what is different about them is their stream."""

from __future__ import annotations

import pytest

from api_kit import ApiHost, listening
from lastword import events
from structured_kit import WAIT_S, of_type

pytestmark = pytest.mark.parametrize("provider", ["openai-chat"])


@pytest.mark.contract("C04")
@pytest.mark.contract("C32")
def test_c32_calls_and_texts_are_put_together_from_their_pieces_and_told_again(host: ApiHost) -> None:
    session = host.session("--system", "Be brief.")
    log = host.kit.root / "log"
    prompt = f"[[chunk:3:0]][[say:Let me look.]][[tool:Bash:echo a >>{log}]][[also:Bash:echo b >>{log}]][[say:done]] go"
    thread, told = listening(session, lambda event: event.type == "unified_completion")
    done = session.run(prompt, deadline_s=WAIT_S)
    thread.join(WAIT_S)
    assert (done.status, done.answer) == ("completed", "done")
    assert sorted(log.read_text().split()) == ["a", "b"]
    assert [each.body.status for each in of_type(session, events.ToolFinished)] == ["ok", "ok"]
    assert "".join(event.body.text for event in told if event.ephemeral) == "Let me look.done"
    host.close()
    host.open()
    assert host.again(session).run("after", deadline_s=WAIT_S).answer == "echo: after"
    assert host.heard[-1].prompt == "after"
    assert host.heard[-1].messages == 7  # system, prompt, calls, two results, answer, prompt


@pytest.mark.contract("C03")
@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ("[[error:401]] x", "authentication"),
        ("[[say:half]][[stop:max_tokens]] x", "provider_error"),
        ("[[say:no]][[stop:refusal]] x", "refused"),
    ],
)
def test_c03_what_is_no_answer_is_told_with_its_kind(host: ApiHost, prompt: str, kind: str) -> None:
    done = host.session().run(prompt, deadline_s=WAIT_S)
    assert (done.status, done.answer, done.error.kind if done.error else "") == ("failed", None, kind)


@pytest.mark.contract("C04")
def test_c04_a_stream_that_breaks_off_is_asked_for_again(host: ApiHost) -> None:
    session = host.session()
    assert session.run("[[say:whole]][[cut:1]] once", deadline_s=WAIT_S).answer == "whole"
    assert len(of_type(session, events.ProviderRetrying)) == 1
    assert session.run("[[stop:end_turn]] nothing", deadline_s=WAIT_S).empty
    assert session.run("after", deadline_s=WAIT_S).answer == "echo: after"
