"""`lastword run`: the answer on stdout, progress on stderr, one exit code for each way a turn can end."""

import json
import os
import pty
import select
import signal
import subprocess
import time

import msgspec
import pytest

from command_kit import WAIT_S
from lastword.actors.core.outcome import Completion
from lastword.runtime.testing import Script, Step, TextBlock

pytestmark = pytest.mark.tmux


def completion_of(out: str) -> Completion:
    return msgspec.json.decode(out, type=Completion)


def test_the_answer_alone_is_on_stdout_and_nothing_is_left(place) -> None:
    code, out, err = place.lastword("run", "[[tool:Bash:echo hi]][[say:All done.]]")
    assert (code, out) == (0, "All done.\n")
    assert "tool Bash ok" in err
    assert "\x1b" not in err
    place.assert_nothing_is_left()


@pytest.mark.contract("C03")
def test_c03_an_answer_that_holds_half_an_emoji_comes_through_journal_events_and_command(place) -> None:
    """JavaScript writes it as an escape of its own, in the record of the answer and of a tool's result alike."""
    wanted = "cut here: \N{REPLACEMENT CHARACTER}"
    code, out, err = place.lastword("run", "--json", "[[tool:Bash:echo hi]][[half:cut here: ]] an emoji")
    done = completion_of(out)
    assert (code, done.status, done.answer) == (0, "completed", wanted)
    assert "tool Bash ok" in err
    (record,) = place.home.glob(".claude/projects/*/*.jsonl")
    assert b"\\ud83d" in record.read_bytes()
    code, out, _ = place.lastword("read", "claude-code", str(record), "--json")
    (turn,) = json.loads(out)["turns"]
    assert (code, turn["status"], turn["final_text"]) == (0, "completed", wanted)
    code, out, _ = place.lastword("events", done.session_id, "--json")
    assert code == 0
    told = [json.loads(line) for line in out.splitlines()]
    assert [each["body"]["text"] for each in told if each["type"] == "assistant_message"] == [wanted]


def test_a_failed_turn_exits_1_and_its_completion_is_json(place) -> None:
    code, out, err = place.lastword("run", "--json", "[[error:400]]")
    done = completion_of(out)
    assert (code, done.status, done.answer) == (1, "failed", None)
    assert f"({done.error.kind})" in err


@pytest.mark.contract("C07")
def test_c07_a_deadline_cancels_and_exits_130(place) -> None:
    code, out, _ = place.lastword("run", "--deadline", "0.5", "--json", "[[sleep:60]]")
    done = completion_of(out)
    assert (code, done.status, done.error.kind) == (130, "cancelled", "deadline")


@pytest.mark.contract("C02")
def test_c02_ctrl_c_interrupts_the_turn_and_exits_130_with_its_completion(place) -> None:
    running = place.start("run", "--json", "[[sleep:60]]")
    running.wait_for("turn t_")
    running.signal(signal.SIGINT)
    code, out, err = running.end()
    done = completion_of(out)
    assert (code, done.status, done.error.kind) == (130, "cancelled", "interrupted")
    assert "Traceback" not in err
    place.assert_nothing_is_left()


@pytest.mark.contract("C61")
def test_c61_sigterm_leaves_nothing_and_the_turn_is_settled(place) -> None:
    running = place.start("run", "[[sleep:60]]")
    turn_id = running.wait_for("turn t_").split()[3]
    running.signal(signal.SIGTERM)
    code, out, err = running.end()
    assert (code, out) == (143, "")
    assert "Traceback" not in err
    place.assert_nothing_is_left()
    code, out, _ = place.lastword("explain", turn_id, "--json")
    assert json.loads(out)["status"] == "cancelled"


def test_a_cli_that_dies_in_the_turn_exits_3(place) -> None:
    code, out, _ = place.lastword("run", "--json", "[[fault:crash=mid]]hello")
    assert (code, completion_of(out).status) == (3, "lost")


def test_the_text_comes_from_stdin_where_it_is_a_dash(place) -> None:
    code, out, _ = place.lastword("run", "-", stdin="first line\nsecond line ünïcödé")
    assert (code, out) == (0, "echo: first line\nsecond line ünïcödé\n")


@pytest.mark.contract("C25")
def test_c25_a_dialog_without_a_terminal_exits_4_and_is_told(place) -> None:
    place.install_cli("--fault", "ask")
    code, out, err = place.lastword("run", "[[tool:Bash:touch not-allowed]]")
    assert (code, out) == (4, "")
    assert "(dialog_open)" in err
    assert "permission-mode" in err
    assert not (place.cwd / "not-allowed").exists()
    place.assert_nothing_is_left()


@pytest.mark.contract("C25")
def test_c25_on_a_terminal_the_person_is_asked_and_their_answer_is_sent(place) -> None:
    place.install_cli("--fault", "ask")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        place.argv("run", "[[tool:Bash:touch allowed]][[say:It is there.]]"),
        env=place.env,
        cwd=place.cwd,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    seen, answered, until = b"", 0, time.monotonic() + WAIT_S
    try:
        while process.poll() is None and time.monotonic() < until:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    seen += os.read(ours, 65536)
                except OSError:  # the other end is closed: it has ended
                    process.wait(WAIT_S)
            if seen.count(b"Option: ") > answered:  # again where the dialog was seen better meanwhile
                os.write(ours, b"1\n")
                answered += 1
        assert process.poll() == 0, (process.poll(), seen)
        out = process.stdout.read()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
        os.close(ours)
    assert answered
    assert out == b"It is there.\n"
    assert (place.cwd / "allowed").exists()


@pytest.mark.contract("C25")
def test_c25_a_trust_dialog_without_a_terminal_is_answered_where_the_caller_says_so_and_only_there(place) -> None:
    place.install_cli("--fault", "startup_dialog=trust")
    code, out, err = place.lastword("run", "hello")
    assert (code, out) == (4, "")
    assert "a trust dialog waits" in err
    code, out, err = place.lastword("run", "--trust", "hello")
    assert (code, out) == (0, "echo: hello\n"), err
    place.assert_nothing_is_left()


@pytest.mark.contract("C25")
def test_c25_trust_answers_no_permission(place) -> None:
    place.install_cli("--fault", "ask")
    code, out, err = place.lastword("run", "--trust", "[[tool:Bash:touch not-allowed]]")
    assert (code, out) == (4, "")
    assert "a permission dialog waits" in err
    assert not (place.cwd / "not-allowed").exists()
    place.assert_nothing_is_left()


def test_what_a_model_says_reaches_no_terminal_raw(place) -> None:
    evil = "a\x1b]2;title\x07b\x9b31mc\rd\u202ee\x00f"
    script = Script(scripts={"evil": (Step(blocks=(TextBlock(text=evil),)),)})
    file = place.root / "evil.json"
    file.write_bytes(script.to_json())
    place.install_cli("--script", str(file))
    code, out, err = place.lastword("run", "--state", str(place.state), "[[script:evil]]")
    assert code == 0
    assert out.startswith("a␛]2;title␇b")
    code, raw, err_json = place.lastword("run", "--json", "[[script:evil]]")
    for text in (out, err, raw, err_json):
        assert not {"\x1b", "\x07", "\x9b", "\r", "\u202e", "\x00"} & set(text)
    assert "\x1b]2;title" in completion_of(raw).answer


def test_another_process_steers_a_running_one_through_its_socket(place) -> None:
    running = place.start("run", "--json", "[[sleep:60]]")
    session = running.wait_for("session s_").split()[3]
    running.wait_for("turn t_")
    assert (place.state / "host.sock").stat().st_mode & 0o777 == 0o600
    code, out, _ = place.lastword("send", session, "more of it", "--json", "--message-id", "m_mine")
    ack = json.loads(out)
    assert (code, ack["taken"], ack["message_id"]) == (0, "pending", "m_mine")
    code, out, _ = place.lastword("send", session, "more of it", "--message-id", "m_mine")
    assert "known already" in out
    code, out, _ = place.lastword("sessions", "--json")
    assert json.loads(out)["host_lives"] is True
    code, _, err = place.lastword("run", "hello")
    assert (code, "journal_locked" in err) == (2, True)
    code, out, _ = place.lastword("send", session, "--interrupt")
    assert (code, out.split()[0]) == (0, "applied")
    code, out, _ = running.end()
    assert (code, completion_of(out).status) == (130, "cancelled")


def test_a_run_in_a_session_of_a_live_host_gets_its_completion(place) -> None:
    running = place.start("run", "[[sleep:2]][[say:first]]")
    session = running.wait_for("session s_").split()[3]
    running.wait_for("turn t_")
    other = place.start("run", "--session", session, "--json", "[[say:second]]")
    other.wait_for("message accepted")
    code, _, _ = running.end()
    assert code == 0
    code, out, err = other.end()
    if code == 2:  # the host went with its own turn: said, not hung
        assert "(" in err
    else:
        assert completion_of(out).status in {"completed", "cancelled"}


@pytest.mark.contract("C63")
def test_c63_the_record_tells_it_all_afterwards(place) -> None:
    secret = "a-prompt-that-no-trace-may-show"
    code, out, _ = place.lastword("run", "--json", f"[[tool:Bash:echo hi]]{secret}")
    done = completion_of(out)
    code, out, _ = place.lastword("explain", done.turn_id, "--json")
    told = json.loads(out)
    whats = [point["what"] for point in told["points"]]
    for what in ("accepted", "typed and submitted", "bound to the native turn", "completion committed"):
        assert what in whats
    ends = [point for point in told["points"] if point["what"].startswith("unified_completion")]
    evidence = ends[0]["evidence"]
    assert evidence["source"].endswith(".jsonl")
    assert evidence["offset"] > 0
    assert evidence["native_id"]
    assert evidence["native_at"]
    assert all("since_accepted_ms" in point for point in told["points"])
    code, text, _ = place.lastword("explain", done.turn_id)
    assert (code, "settled by a terminal record" in text) == (0, True)
    assert secret not in text + json.dumps(told)  # C62

    code, out, _ = place.lastword("events", done.session_id, "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert sum(event["type"] == "unified_completion" for event in events) == 1
    code, out, _ = place.lastword("events", done.session_id, "--json", "--after", str(len(events) - 1))
    assert len(out.splitlines()) == 1
    code, out, _ = place.lastword("sessions", "--json")
    assert json.loads(out)["sessions"][0]["last_turn_id"] == done.turn_id
    code, _, err = place.lastword("send", done.session_id, "hello")
    assert (code, "(host_unreachable)" in err) == (2, True)


def test_following_shows_events_as_they_come_and_ends_at_ctrl_c(place) -> None:
    running = place.start("run", "[[sleep:2]][[say:late]]")
    session = running.wait_for("session s_").split()[3]
    follower = subprocess.Popen(
        place.argv("events", session, "--follow", "--json"),
        env=place.env,
        cwd=place.cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        types = []
        while "unified_completion" not in types:
            line = follower.stdout.readline()
            assert line, types
            types.append(json.loads(line)["type"])
        follower.send_signal(signal.SIGINT)
        _, err = follower.communicate(timeout=WAIT_S)
    finally:
        if follower.poll() is None:
            follower.kill()
            follower.communicate()
    assert (follower.returncode, err) == (130, "")
    assert running.end()[0] == 0
