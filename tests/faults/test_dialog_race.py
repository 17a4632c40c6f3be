"""A permission dialog opens right behind our paste, in a real pane: no Enter of ours answers it (C25), no text is lost (C24)."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from faults.pane_host import PaneHost
from host_kit import WAIT_S
from kit_system import until
from lastword import Answer, events
from lastword.actors.core.typing_effects import Press
from lastword.actors.core.world import RefusedKeys
from lastword.actors.pane import PaneActor
from lastword.transports.tmux_pane import PaneHandle

pytestmark = pytest.mark.tmux
SESSIONS = 4
DIALOGS = 12
"""Of each session."""
STALL_S = 0.25
"""How long the host stands still between the look that saw the text and the Enter behind it."""
LEAD_MS = 100
"""Between the CLI's word that a dialog is open and the dialog that takes keys; the real one's is 360 to 550 ms."""
SPREAD_MS = 300
"""When dialogs are announced, counted from the paste: before the landing is seen, within the stall, behind the Enter."""


class Race:
    """One session that meets dialogs around its pastes; keeps what went wrong."""

    def __init__(self, host: PaneHost, name: str, rng: random.Random) -> None:
        self.host, self.name, self.rng = host, name, rng
        self.session = host.session(permission_mode="default")
        self.faults: list[str] = []
        self.met = 0

    def drive(self, openings: list[str]) -> None:
        for number, opening in enumerate(openings):
            try:
                self._one(f"{self.name}-{number}", opening)
            except AssertionError as error:
                self.faults.append(f"{self.name}-{number} ({opening}): {error}")
                return

    def _one(self, tag: str, opening: str) -> None:
        host, session, marker = self.host, self.session, Path(self.host.kit.cwd) / f"ran-{tag}"
        seen = host.log(session)[-1].seq if host.log(session) else 0
        first = session.send(f"a-{tag}- {opening}[[tool:Bash:touch {marker}]][[say:one]]")
        until(lambda: self._since(seen, events.TurnStarted), within_s=WAIT_S)
        second = session.send(f"b-{tag}- [[say:two]]")
        until(lambda: session.snapshot().dialog or marker.exists(), within_s=WAIT_S)
        time.sleep(self.rng.uniform(0.0, STALL_S))  # keys of ours that are still on their way
        assert not marker.exists(), "a key of ours approved the tool"
        agree = self.rng.random() < 0.5
        dialog = session.snapshot().dialog
        session.send(Answer(dialog.dialog_id, 1 if agree else 3))
        until(lambda: self._ended(seen, first.message_id) and self._ended(seen, second.message_id), within_s=WAIT_S)
        until(lambda: session.snapshot().state == "idle", within_s=WAIT_S)
        until(lambda: self._since(seen, events.DialogClosed), within_s=WAIT_S)
        self.met += 1
        assert marker.exists() == agree, f"the answer was {agree}, and the tool ran: {marker.exists()}"
        assert [each.body.by for each in self._since(seen, events.DialogClosed)] == ["host"]
        assert len(self._since(seen, events.DialogOpened)) == 1
        for message in (first.message_id, second.message_id):
            assert self._ended(seen, message) == 1, "one message, one end"
        assert {each.body.origin for each in self._since(seen, events.TurnStarted)} == {"host"}
        assert self._submitted(f"a-{tag}-") == 1
        undelivered = self._since(seen, events.MessageUndelivered)
        assert self._submitted(f"b-{tag}-") == 1 - len(undelivered)

    def _since(self, seq: int, body: type) -> list:
        return [event for event in self.host.log(self.session) if event.seq > seq and isinstance(event.body, body)]

    def _ended(self, seq: int, message_id: str) -> int:
        """In how many ends the message came to: completions of the turn that took it, and undelivered."""
        turns = {
            event.turn_id
            for event in self._since(seq, (events.MessageAccepted, events.TurnStarted, events.MessageJoined))
            if event.message_id == message_id and event.turn_id
        }
        done = [event for event in self._since(seq, events.CompletionReached) if event.turn_id in turns]
        gone = [event for event in self._since(seq, events.MessageUndelivered) if event.message_id == message_id]
        return len(done) + len(gone)

    def _submitted(self, tag: str) -> int:
        """How often the CLI took a text with that tag, on its own record: as a prompt, or into the running turn."""
        lines = [line.replace(" ", "") for line in self.host.record(self.session).read_text().splitlines()]
        mine = [line for line in lines if tag in line]
        prompts = [line for line in mine if '"type":"user"' in line and '"tool_result"' not in line]
        return len(prompts) + sum('"type":"queued_command"' in line for line in mine)


@pytest.fixture
def refusals(monkeypatch):
    """The Enters that the last look refused."""
    refused: list[str] = []
    real = PaneHandle.look_then_press

    def look_then_press(pane, check, *keys, on_done):
        def done(result):
            if keys == ("Enter",) and isinstance(result, RefusedKeys):
                refused.append(pane.pane_id)
            on_done(result)

        real(pane, check, *keys, on_done=done)

    monkeypatch.setattr(PaneHandle, "look_then_press", look_then_press)
    return refused


@pytest.fixture
def stalling(monkeypatch):
    """A host that stands still (a busy machine) before each Enter behind a paste."""
    real = PaneActor._press

    def press(actor: PaneActor, keys: Press) -> None:
        if keys.what == "enter":
            time.sleep(STALL_S)
        real(actor, keys)

    monkeypatch.setattr(PaneActor, "_press", press)


def raced(openings: list[str]) -> list[Race]:
    """Sessions that meet those dialogs at once."""
    with PaneHost() as host:
        races = [Race(host, f"s{number}", random.Random(number)) for number in range(SESSIONS)]
        threads = [threading.Thread(target=race.drive, args=(openings[at::SESSIONS],)) for at, race in enumerate(races)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
    return races


@pytest.mark.contract("C25")
@pytest.mark.contract("C24")
@pytest.mark.contract("C20")
def test_c25_a_dialog_that_opens_between_the_text_that_was_seen_and_its_enter_is_not_approved_by_it(refusals, stalling):
    """48 dialogs, announced 0 to 300 ms behind the paste, while the host stands still for 250 ms before its Enter."""
    number = SESSIONS * DIALOGS
    after = [SPREAD_MS * at // number for at in range(number)]
    races = raced([f"[[fault:ask_after_paste={ms}]][[fault:dialog_lead={LEAD_MS}]]" for ms in after])
    assert [fault for race in races for fault in race.faults] == []
    assert sum(race.met for race in races) == number
    assert len(refusals) >= number // 4  # the last look is what kept these dialogs from our Enter


@pytest.mark.contract("C25")
@pytest.mark.contract("C24")
@pytest.mark.contract("C20")
def test_c25_dialogs_that_open_at_random_times_around_our_enter_are_approved_by_none(refusals):
    """The host as it is, and dialogs as far ahead of their word as the real CLI's."""
    number = SESSIONS * DIALOGS // 2
    races = raced(["[[fault:ask_after_paste=0-30]]"] * number)
    assert [fault for race in races for fault in race.faults] == []
    assert sum(race.met for race in races) == number
    assert len(refusals) <= 3 * number
