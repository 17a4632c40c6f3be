"""A CLI that runs as the child of another program, as Node's that start themselves again: the one that we started dies."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from lastword import events
from lastword.transports import structured
from structured_kit import WAIT_S, StdioHost, child_of, completion_of, completions, scripted, seen

PARENT = """
import subprocess, sys
sys.exit(subprocess.call(sys.argv[1:]))
"""


@pytest.mark.contract("C02")
@pytest.mark.contract("C60")
def test_c02_what_is_left_of_a_killed_cli_ends_before_its_record_is_believed_to_be_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of its family writes the turn's end while it is being ended: the turn has that end, and no other."""
    parent = tmp_path / "parent.py"
    parent.write_text(PARENT)
    real = structured.end_families

    def once_the_end_is_written(*args: object) -> object:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline and not any(
            b'"result": "late"' in stream.read_bytes() for stream in (host.state / "streams").glob("*.jsonl")
        ):
            time.sleep(0.01)
        return real(*args)  # type: ignore[arg-type]

    with StdioHost((sys.executable, str(parent), *scripted())) as host:
        session = host.session()
        assert session.run("before", deadline_s=WAIT_S).status == "completed"
        ack = session.send("[[sleep:1]][[say:late]]")
        seen(session, events.TurnStarted, ack.seq)
        with monkeypatch.context() as patched:
            patched.setattr(structured, "end_families", once_the_end_is_written)
            child_of(session).send(signal.SIGKILL)
            done = completion_of(session, ack.turn_id)
        assert (done.status, done.answer, done.source) == ("completed", "late", "stream")
        after = session.run("[[say:back]]", deadline_s=WAIT_S)
        assert (after.status, after.answer) == ("completed", "back")
        ends = [done.turn_id for done in completions(session)]
        assert len(ends) == len(set(ends)) == 3
