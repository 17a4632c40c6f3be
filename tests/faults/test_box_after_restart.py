"""What an interrupted CLI puts back into its input box is ours after a restart too: nobody's draft."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from faults.pane_host import PaneHost
from host_kit import away
from kit_system import until
from lastword import Interrupt

SOON_S = 20.0


@pytest.fixture
def host() -> Iterator[PaneHost]:
    with PaneHost() as made:
        yield made


@pytest.mark.contract("C17")
@pytest.mark.contract("C24")
@pytest.mark.parametrize("interrupted", ["before", "after"])
def test_c17_the_text_of_an_interrupted_turn_holds_up_nothing_after_a_restart(host: PaneHost, interrupted: str) -> None:
    session = host.session()
    assert host.run(session, "warm").status == "completed"
    session.send("[[sleep:60]] given up")
    host.running(session, 2)
    if interrupted == "before":
        session.send(Interrupt())
        host.completed(session, 2)
    host.abandon()
    host.open()
    session = host.again(session)
    if interrupted == "after":
        until(lambda: session.snapshot().state == "busy", within_s=SOON_S)
        session.send(Interrupt())
    done = host.completed(session, 2)
    assert done[-1].status == "cancelled"
    began = time.monotonic()
    after = away(session.run, "next", queue=True).result(SOON_S)
    assert (after.status, after.answer) == ("completed", "echo: next")
    assert time.monotonic() - began < SOON_S
