"""`lastword explain` of a turn that no host watches any more: the provider's own record is asked (C42)."""

from __future__ import annotations

import json
import signal
import sys

import pytest

from kit_system import until
from lastword import Runtime
from lastword.runtime.testing import SCRIPTED_CLI


@pytest.mark.tmux
@pytest.mark.contract("C42")
@pytest.mark.contract("C62")
def test_c42_a_turn_that_ended_while_no_host_lived_is_explained_from_the_providers_record(place) -> None:
    secret = "an-answer-that-no-diagnosis-may-show"
    running = place.start("run", f"[[sleep:1]][[say:{secret}]]")
    turn_id = running.wait_for(" started\n").split()[3]
    running.signal(signal.SIGKILL)
    running.end()
    code, out, _ = place.lastword("explain", turn_id)
    assert (code, "not settled: waits for the model" in out) == (0, True), out

    def ended() -> dict | None:
        told = json.loads(place.lastword("explain", turn_id, "--json")[1])
        return told if told["recorded_end"] else None

    told = until(ended, within_s=30)
    assert told["recorded_end"]["status"] == "completed"
    assert told["recorded_end"]["answer_chars"] == len(secret)
    code, out, _ = place.lastword("explain", turn_id)
    assert "claude-code completed at" in out
    assert "no host observed it" in out
    assert secret not in out + json.dumps(told)
    executables = {"claude-code": (sys.executable, str(SCRIPTED_CLI))}
    with Runtime.open(place.state, env=place.env, executables=executables) as runtime:
        done = until(lambda: runtime.completion(turn_id), within_s=30)
    assert (done.status, done.answer) == ("completed", secret)
    told = json.loads(place.lastword("explain", turn_id, "--json")[1])
    assert (told["recorded_end"], told["status"]) == (None, "completed")
