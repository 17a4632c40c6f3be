"""What Pi promises in its own way, in a pane and behind a pipe alike: the same tests over both.

The modules that collect them give the fixture ``host``.
"""

from __future__ import annotations

import pytest

from lastword import events
from pane_kit import PaneHost
from structured_kit import WAIT_S, StdioHost, completed, completions, seen


@pytest.mark.contract("C04")
@pytest.mark.contract("C20")
@pytest.mark.parametrize("busy", ["[[sleep:1.5]][[say:first answer]]", "[[tool:Bash:sleep 2]][[say:first answer]]"])
def test_c20_a_message_while_busy_joins_the_run_which_ends_with_its_answer(
    host: PaneHost | StdioHost, busy: str
) -> None:
    session = host.session()
    first = session.send(f"{busy} work")
    seen(session, events.ToolStarted if "tool" in busy else events.TurnStarted)
    second = session.send("[[say:second answer]] also this")
    assert (second.taken, second.turn_id) == ("pending", None)
    seen(session, events.MessageQueued)
    joined = seen(session, events.MessageJoined)
    assert (joined.turn_id, joined.message_id) == (first.turn_id, second.message_id)
    (done,) = completed(session)
    assert (done.status, done.answer, done.joined) == ("completed", "second answer", (second.message_id,))
    assert session.run("[[say:on]]", deadline_s=WAIT_S).answer == "on"
    assert len(completions(session)) == 2


@pytest.mark.contract("C13")
def test_c13_equal_texts_are_told_apart_by_name(host: PaneHost | StdioHost) -> None:
    session = host.session()
    first = session.send("[[sleep:1]][[say:one]] same")
    seen(session, events.TurnStarted)
    twins = [session.send("same") for _ in range(2)]
    (done,) = completed(session)
    assert (done.message_id, done.joined) == (first.message_id, tuple(ack.message_id for ack in twins))
