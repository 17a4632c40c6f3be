"""The journal's disk: full, read-only, its files deleted, in the middle of turns. Nothing that was accepted is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from faults.namespace_kit import run_inside
from host_kit import WAIT_S, Rig, away, bodies, completed, completions, kinds
from kit_system import until
from lastword import JournalError, events
from lastword.runtime._journal import SqliteJournal

DOWN_S = 1.2


@contextmanager
def full(rig: Rig) -> Iterator[None]:
    """No page more for the journal: SQLite answers as on a full disk."""
    journal = rig.runtime._journal
    with journal._write_lock:
        journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
        journal._db.execute(f"PRAGMA max_page_count = {pages}").fetchone()
    try:
        yield
    finally:
        with journal._write_lock:
            if journal._db is not None:
                journal._db.execute("PRAGMA max_page_count = 1000000").fetchone()


LONG = "y" * 20_000  # does not fit into what is left of the last page


@pytest.mark.contract("C02")
@pytest.mark.contract("C09")
def test_c02_turns_that_run_while_the_disk_is_full_complete_once_there_is_space(make):
    rig = make(manual=True)
    sessions = [rig.session() for _ in range(5)]
    waiting = [away(session.run, f"go {n}") for n, session in enumerate(sessions)]
    clis = [rig.running(session) for session in sessions]
    rig.settle()
    before = [rig.events(session)[-1].seq for session in sessions]
    with full(rig):
        for n, cli in enumerate(clis):
            cli.say(f"{LONG} thinking {n}")
            cli.tool("c1", "Bash")
            cli.tool_end("c1", LONG)
            cli.finish(f"{LONG} answer {n}")
        until(lambda: rig.dead_letters().counts().get("held_journal_full"), within_s=WAIT_S)
        with pytest.raises(JournalError) as caught:
            sessions[0].send(LONG)
        assert caught.value.kind == "journal_full"
        with pytest.raises(JournalError) as caught:
            sessions[0].send(LONG, message_id="mine")
        with pytest.raises(JournalError) as caught:
            rig.runtime.session("memory", args=(LONG,))
        assert caught.value.kind == "journal_full"
        busy_s = time.process_time()
        time.sleep(DOWN_S)
        busy_s = time.process_time() - busy_s
        for session in sessions:
            seen = session.snapshot()
            assert (seen.state, seen.waits_for and seen.waits_for.kind) == ("busy", "journal")
        tries = rig.dead_letters().counts()["held_journal_full"]
        assert not any(future.done() for future in waiting)
        assert [rig.events(session)[-1].seq for session in sessions] == before, "half a turn was told"
    assert busy_s < DOWN_S * 0.2, "a busy loop"
    assert tries < 12
    for n, future in enumerate(waiting):
        done = future.result(WAIT_S)
        assert (done.status, done.answer) == ("completed", f"{LONG} answer {n}")
    rig.settle()
    for n, session in enumerate(sessions):
        log = rig.events(session)
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        told = [event.type for event in log if event.seq > before[n]]
        work = ["assistant_message", "tool_started", "tool_finished", "assistant_message", "unified_completion"]
        assert told[:-1] == work, told
        assert len(completions(rig, session)) == 1
        assert "invariant_violation" not in told
        (stall,) = bodies(rig, session, events.StallDiagnosed)
        assert stall.body.waits_for == "the journal's file"
    rig.world.manual = False
    assert sessions[0].run("and now", message_id="mine").answer == "echo: and now"


@pytest.mark.contract("C42")
def test_c42_a_message_that_a_full_disk_refused_is_not_what_the_running_turn_waits_for(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    cli.tool("c1", "Bash")
    until(lambda: "tool_started" in kinds(rig, session), within_s=WAIT_S)
    rig.settle()
    with full(rig):
        with pytest.raises(JournalError):
            session.send(LONG)
        rig.settle()
        named = session.snapshot().waits_for
        assert named is not None
        assert named.kind == "tool"
        cli.tool_end("c1", LONG)
        until(lambda: rig.dead_letters().counts().get("held_journal_full"), within_s=WAIT_S)
        named = session.snapshot().waits_for
        assert named is not None
        assert named.kind == "journal"
    cli.finish("x")
    assert waiting.result(WAIT_S).answer == "x"


@pytest.mark.contract("C40")
def test_c40_a_full_disk_is_no_stuck_turn_however_long_it_lasts(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    rig.settle()
    with full(rig):
        cli.finish(LONG)
        until(lambda: rig.dead_letters().counts().get("held_journal_full"), within_s=WAIT_S)
        for _ in range(10):
            clock.advance(6.0)
        rig.settle()
    clock.advance(6.0)
    assert waiting.result(WAIT_S).answer == LONG
    rig.settle()
    assert "invariant_violation" not in kinds(rig, session)


@pytest.mark.contract("C02")
@pytest.mark.contract("C17")
def test_c17_a_host_that_ends_while_the_disk_is_full_says_so_and_the_next_one_settles(tmp_path):
    first = Rig(tmp_path, manual=True)
    session = first.session()
    session.send("go")
    cli = first.running(session)
    first.settle()
    with full(first):
        cli.finish(LONG)
        until(lambda: first.dead_letters().counts().get("held_journal_full"), within_s=WAIT_S)
        began = time.monotonic()
        closing = away(first.runtime.close, grace_s=0.2)
        seen = until(lambda: (now := session.snapshot()).state == "closed" and now, within_s=WAIT_S)
        assert seen.waits_for is not None
        assert seen.waits_for.kind == "journal"
        report = closing.result(WAIT_S)
        assert time.monotonic() - began < 12.0
        assert report.sessions_left == (session.session_id,)
        assert report.commits_left > 0
    first.world.manual = False
    with Rig(tmp_path, world=first.world) as again:
        (done,) = completed(again, session.session_id)
        assert (done.status, done.answer) == ("completed", LONG)
        assert again.runtime.session(session_id=session.session_id).run("more").answer == "echo: more"


# --- its files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files",
    [
        ("journal.db",),
        ("journal.db-wal",),
        ("journal.db-shm",),
        ("journal.db", "journal.db-wal", "journal.db-shm"),
        ("journal.lock",),
    ],
)
@pytest.mark.contract("C09")
@pytest.mark.contract("C17")
def test_c09_what_is_told_is_on_record_though_the_file_was_deleted_under_us(tmp_path, files):
    with Rig(tmp_path, manual=True) as rig:
        session = rig.session()
        first = away(session.run, "first")
        rig.running(session).finish("one")
        assert first.result(WAIT_S).answer == "one"
        second = away(session.run, "second")
        cli = rig.running(session)
        rig.settle()
        for name in files:
            (rig.state / name).unlink()
        cli.finish("two")
        assert second.result(WAIT_S).answer == "two"
        if files == ("journal.lock",):  # where a folder cannot be locked it is all that keeps another host out
            until(lambda: (rig.state / "journal.lock").exists(), within_s=WAIT_S)
        with pytest.raises(JournalError) as caught:  # the lock is ours still
            SqliteJournal.open(rig.state)
        assert caught.value.kind == "journal_locked"
        reader = SqliteJournal.open(rig.state, readonly=True)  # as another process, by path
        assert [done.answer for done in reader.completions(session.session_id)] == ["one", "two"]
        reader.close()
        assert [done.answer for done in completions(rig, session)] == ["one", "two"]
        rig.settle()
    journal = SqliteJournal.open(tmp_path / "state")
    log = journal.events(session.session_id, 0, 1000)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert len(journal.completions(session.session_id)) == 2
    journal.close()
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["journal.db", "journal.lock"]


@pytest.mark.contract("C09")
def test_c09_another_file_in_the_journals_place_is_left_alone_and_nothing_is_told(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    rig.settle()
    path = rig.state / "journal.db"
    path.rename(rig.state / "mine.db")
    path.write_text("a person's notes")
    with pytest.raises(JournalError) as caught:
        session.send("more")
    assert caught.value.kind == "journal_unwritable"
    cli.finish("the answer")
    assert not waiting.done()
    assert path.read_text() == "a person's notes"
    path.unlink()
    (rig.state / "mine.db").rename(path)
    assert waiting.result(WAIT_S).answer == "the answer"
    assert len(completions(rig, session)) == 1


def test_a_host_without_its_folder_waits_for_it(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    rig.settle()
    rig.state.rename(rig.state.with_name("away"))
    with pytest.raises(JournalError) as caught:
        session.send("more")
    assert caught.value.kind == "journal_unwritable"
    cli.finish("the answer")
    rig.state.with_name("away").rename(rig.state)
    assert waiting.result(WAIT_S).answer == "the answer"


# --- a real file system -------------------------------------------------------------------------------------------

_REAL_DISK = r"""
import json, subprocess, sys, threading, time
from pathlib import Path
from host_kit import Rig, away, completions, kinds
from kit_system import until
from lastword import JournalError, Runtime
disk = Path(sys.argv[1]); what = sys.argv[2]
disk.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)], check=True)
told = {}
rig = Rig(disk, manual=True, durability="power")
sessions = [rig.session() for _ in range(3)]
waiting = [away(each.run, "go") for each in sessions]
clis = [rig.running(each) for each in sessions]
rig.settle()
def remount(how):
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)
if what == "full":
    with (disk / "filler").open("wb", buffering=0) as filler:
        try:
            while True: filler.write(b"x" * 4096)
        except OSError as error: told["filled"] = error.errno
else:
    # an open descriptor that writes keeps a mount busy, so only a bind over it can be made read-only
    subprocess.run(["mount", "--bind", str(disk), str(disk)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=True)
for n, cli in enumerate(clis):
    for _ in range(40): cli.say("y" * 20000)
    cli.finish(f"answer {n}")
if what == "full":
    until(lambda: any(key.startswith("held_") for key in rig.dead_letters().counts()), within_s=20)
    try: sessions[0].send("z" * 200000)
    except JournalError as error: told["kind"] = error.kind
    began = time.process_time(); time.sleep(0.8); told["busy_s"] = time.process_time() - began
    told["early"] = sum(each.done() for each in waiting)
    (disk / "filler").unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
else:
    try: Rig(disk / "b")
    except JournalError as error: told["open"] = error.kind
    subprocess.run(["umount", str(disk)], check=True)
told["answers"] = [each.result(20).answer for each in waiting]
told["counts"] = [len(completions(rig, each)) for each in sessions]
rig.world.manual = False
told["next"] = sessions[1].run("again").answer
report = rig.runtime.close()
told["left"] = [*report.sessions_left, *report.threads_left]
print(json.dumps(told))
"""


@pytest.mark.contract("C02")
@pytest.mark.contract("C09")
def test_c09_a_real_file_system_runs_full_and_gets_room_again(tmp_path):
    told = json.loads(run_inside(_REAL_DISK, tmp_path / "disk", "full"))
    assert told["kind"] == "journal_full"
    assert (told["early"], told["counts"], told["left"]) == (0, [1, 1, 1], [])
    assert told["answers"] == ["answer 0", "answer 1", "answer 2"]
    assert told["next"] == "echo: again"
    assert told["busy_s"] < 0.2


_READ_ONLY = r"""
import json, subprocess, sys
from pathlib import Path
from host_kit import Rig
from lastword import JournalError
disk = Path(sys.argv[1]); disk.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "none", str(disk)], check=True)
with Rig(disk / "a") as rig:
    assert rig.session().run("go").answer == "echo: go"
subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
kinds = []
for folder in ("a", "new"):
    try: Rig(disk / folder)
    except JournalError as error: kinds.append(error.kind)
subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
with Rig(disk / "a") as rig:
    kinds.append(rig.session().run("again").answer)
print(json.dumps(kinds))
"""


@pytest.mark.contract("C21")
def test_c21_a_read_only_file_system_is_a_typed_error_at_the_opening_and_no_more(tmp_path):
    assert json.loads(run_inside(_READ_ONLY, tmp_path / "disk")) == ["journal_unwritable"] * 2 + ["echo: again"]
