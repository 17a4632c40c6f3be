"""``lastword doctor`` tells who has the state folder: also a host that is stopped, or that serves no socket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit_system import until
from lastword.runtime.command import _desk
from lastword.runtime.command.doctor import examine
from lastword.transports.providers import ADAPTERS

HOST = (
    "import sys\nfrom lastword import Runtime\n"
    "runtime = Runtime.open(sys.argv[1], serve_socket=sys.argv[2] == 'serves')\n"
    "print('open', flush=True)\nsys.stdin.read()\nruntime.close()\n"
)


@contextmanager
def host(state: Path, how: str) -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOST, str(state), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            yield process
        finally:
            process.kill()


def told(state: Path) -> tuple[str, str, str]:
    check = next(check for check in examine(state) if check.name == "journal")
    return check.verdict, check.found, check.remedy


@pytest.mark.parametrize("how", ["serves", "alone"])
def test_doctor_names_the_host_that_has_the_folder_a_stopped_one_too(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_desk, "HOST_ANSWER_S", 0.3)
    state = tmp_path / "state"
    with host(state, how) as process:
        verdict, found, remedy = told(state)
        assert (verdict, remedy) == ("ok", "")
        assert found.endswith(str(_desk.HostSeen(how, process.pid)))
        process.send_signal(signal.SIGSTOP)
        until(lambda: _desk.stopped(process.pid), within_s=5.0)
        verdict, found, remedy = told(state)
        assert (verdict, found.endswith("which is stopped")) == ("note", True)
        assert f"kill -CONT {process.pid}" in remedy
        process.kill()
        process.wait()
        assert told(state)[1].endswith("no live host")
    assert _desk.host_seen(tmp_path / "nowhere") == _desk.HostSeen("none")


def test_a_host_that_listens_and_says_nothing_is_told_from_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its process is not seen to be stopped (another container) or is overloaded."""
    monkeypatch.setattr(_desk, "HOST_ANSWER_S", 0.3)
    monkeypatch.setattr(_desk, "stopped", lambda _: False)
    with host(tmp_path / "state", "serves") as process:
        process.send_signal(signal.SIGSTOP)
        assert _desk.host_seen(tmp_path / "state") == _desk.HostSeen("silent", process.pid)


def test_doctor_knows_every_provider_that_a_session_can_be_opened_for(tmp_path: Path) -> None:
    checks = {check.name: check for check in examine(tmp_path / "state")}
    assert {name for name, _ in ADAPTERS} - {"memory"} <= set(checks)
    any_agent = checks["acp"]
    assert (any_agent.verdict, "over structured" in any_agent.found) == ("note", True)
    assert 'executables={"acp":' in any_agent.remedy
