"""The four stress runs, small, from their command lines: green where the product is whole, red where it is broken."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fault_rig
from lastword import AsyncRuntime, AsyncSession, Completion, Runtime, Session
from lastword.actors.core.events import CompletionReached, Event
from lastword.runtime import _hub
from lastword.runtime._journal import SqliteJournal
from lastword.runtime.testing.memory import memory_edge
from lastword.transports.memory import MemoryCli, MemoryWorld

BENCH = Path(__file__).parents[2] / "bench"
OWN = ("_account", "_arguments", "_chart", "_ending", "_flat", "_listeners", "_report")
RUNS = ("stress_memory", "stress_panes", "stress_soak", "stress_virtual")
KINDS = ("early", "missing", "double", "wrong", "raised", "hung")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a module of bench/ by its name, and forgets it afterwards."""
    for name in (*OWN, *RUNS):
        sys.modules.pop(name, None)
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.delenv("LASTWORD_BENCH_TABLES", raising=False)
    yield importlib.import_module
    for name in (*OWN, *RUNS):
        sys.modules.pop(name, None)


@pytest.fixture
def run(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, dict[str, int], str]]:
    """Its exit code, what is wrong by place and kind, and what it printed. Flat or not is another matter here: such a
    short run says nothing about it.
    """
    monkeypatch.setattr(bench("_listeners"), "HEAR_S", 20.0)
    for name in RUNS[2:]:
        monkeypatch.setattr(bench(name), "told", lambda *_: ([], True, ""))
    monkeypatch.setattr(bench("stress_soak"), "SAMPLE_S", 0.1)
    arguments = {
        "stress_memory": ["--sessions", "3", "--turns", "4", "--rate", "0", "--out", str(tmp_path / "report")],
        "stress_panes": ["--sessions", "2", "--turns", "1", "--out", str(tmp_path / "report")],
        "stress_soak": ["1s", "--sessions", "3", "--rate", "40"],
        "stress_virtual": ["45m", "--sessions", "3"],
    }

    def go(name: str, *more: str) -> tuple[int, dict[str, int], str]:
        module = bench(name)
        code = module.main([*arguments[name], *more])
        printed = capsys.readouterr().out
        found: dict[str, int] = {}
        for line in printed.splitlines():
            cells = [cell.strip() for cell in line.strip("| ").split("|")]
            if cells[0] in bench("_account").PLACES and len(cells) == 7:
                found |= {f"{cells[0]} {kind}": int(n) for kind, n in zip(KINDS, cells[1:], strict=True) if int(n)}
        return code, found, printed

    return go


def test_a_product_that_is_whole_is_green_in_process(run: Any, tmp_path: Path) -> None:
    code, found, printed = run("stress_memory", "--rate", "100")
    assert (code, found) == (0, {})
    assert "| closed | 3 | 3 | 12 | 0 | 0 | 0 | 0 | 0 | 0 |" in printed
    assert "| 100/s | 3 | 3 | 12 | 0 | 0 | 0 | 0 | 0 | 0 |" in printed
    assert (tmp_path / "report" / "memory.svg").exists()


@pytest.mark.tmux
def test_a_product_that_is_whole_is_green_in_panes(run: Any, tmp_path: Path) -> None:
    code, found, printed = run("stress_panes")
    assert (code, found) == (0, {})
    assert "| 2 | 2 | 2 | 0 | 0 | 0 | 0 | 0 | 0 |" in printed
    assert (tmp_path / "report" / "panes.svg").exists()


@pytest.mark.parametrize("name", ["stress_soak", "stress_virtual"])
def test_a_product_that_is_whole_is_green_over_time(run: Any, name: str) -> None:
    code, found, printed = run(name)
    assert (code, found) == (0, {})
    assert "0 early, 0 missing, 0 double, 0 wrong, 0 raised, 0 hung" in printed
    assert " 0 turns," not in printed


# --- broken products --------------------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def drops(patch: Patch) -> None:
    """Each third completion is told to no subscriber."""
    take, seen = _hub._Tap._take, [0]

    def dropping(self: Any) -> Any:
        found = take(self)
        if isinstance(found, Event) and isinstance(found.body, CompletionReached):
            seen[0] += 1
            if seen[0] % 3 == 0:
                return dropping(self)
        return found

    patch.setattr(_hub._Tap, "_take", dropping)


def triggers(patch: Patch, *statements: str) -> None:
    """The journal's file does that by itself."""
    opened = SqliteJournal.open.__func__  # type: ignore[attr-defined]

    def opening(cls: Any, *args: Any, **options: Any) -> SqliteJournal:
        journal: SqliteJournal = opened(cls, *args, **options)
        db = sqlite3.connect(journal.path)
        for statement in statements:
            db.execute(statement)
        db.commit()
        db.close()
        return journal

    patch.setattr(SqliteJournal, "open", classmethod(opening))


def keeps_no_row(patch: Patch) -> None:
    """Each third turn's row of the completion is gone again."""
    when = "WHEN (SELECT count(*) FROM event WHERE type = 'unified_completion') % 3 = 2"
    what = "DELETE FROM completion WHERE turn_id = new.turn_id"
    triggers(patch, f"CREATE TRIGGER broken AFTER INSERT ON completion {when} BEGIN {what}; END")


def keeps_no_event(patch: Patch) -> None:
    """No completion's event stays on record, though its number is used and it is told."""
    what = "DELETE FROM event WHERE session_id = new.session_id AND seq = new.seq"
    triggers(
        patch,
        f"CREATE TRIGGER broken AFTER INSERT ON event WHEN new.type = 'unified_completion' BEGIN {what}; END",
    )


def answers(patch: Patch, change: Callable[[Completion], Completion]) -> None:
    """Each third caller gets something else than what is on record."""
    returned, seen = _hub.Hub.returned, [0]
    completion = Runtime.completion

    def other(done: Completion) -> Completion:
        seen[0] += 1
        return change(done) if seen[0] % 3 == 0 else done

    patch.setattr(_hub.Hub, "returned", lambda self, done: other(returned(self, done)))
    patch.setattr(Runtime, "completion", lambda self, turn_id: other(completion(self, turn_id)))


def broken_answer(patch: Patch) -> None:
    answers(patch, lambda done: msgspec.structs.replace(done, answer="another"))


def broken_turn_id(patch: Patch) -> None:
    answers(patch, lambda done: msgspec.structs.replace(done, turn_id="t_of_another"))


def broken_status(patch: Patch) -> None:
    answers(patch, lambda done: msgspec.structs.replace(done, status="lost"))


def raises(patch: Patch) -> None:
    def broken(done: Completion) -> Completion:
        raise RuntimeError("broken")

    answers(patch, broken)


BROKEN: dict[str, tuple[Callable[[Patch], None], str]] = {
    "the hub drops completions": (drops, "subscriber missing"),
    "completions are not kept": (keeps_no_row, "journal missing"),
    "events are not kept": (keeps_no_event, "journal missing"),
    "another answer": (broken_answer, "caller wrong"),
    "another turn": (broken_turn_id, "caller wrong"),
    "another status": (broken_status, "caller wrong"),
    "an exception": (raises, "caller raised"),
}


OVER_TIME = {
    "stress_soak": ("the hub drops completions", "completions are not kept", "another answer"),
    "stress_virtual": ("the hub drops completions", "events are not kept", "another turn", "an exception"),
}


@pytest.mark.parametrize(
    ("name", "what"), [(name, what) for name in (RUNS[0], *RUNS[2:]) for what in OVER_TIME.get(name, BROKEN)]
)
def test_a_broken_product_is_red(run: Any, bench: Any, name: str, what: str, monkeypatch: Patch) -> None:
    broken, kind = BROKEN[what]
    broken(monkeypatch)
    monkeypatch.setattr(bench("_listeners"), "HEAR_S", 1.0)
    code, found, printed = run(name)
    assert (code, found.get(kind, 0) > 0) == (1, True), printed


@pytest.mark.tmux
def test_a_broken_product_is_red_in_panes(run: Any, bench: Any, monkeypatch: Patch) -> None:
    def broken(done: Completion) -> Completion:
        return msgspec.structs.replace(done, turn_id="t_of_another")

    answers(monkeypatch, broken)
    keeps_no_row(monkeypatch)
    drops(monkeypatch)
    monkeypatch.setattr(bench("_listeners"), "HEAR_S", 1.0)
    code, found, printed = run("stress_panes", "--turns", "2")
    assert code == 1
    assert {"caller wrong", "subscriber missing", "journal missing"} <= set(found), printed


@pytest.mark.parametrize("name", ["stress_memory", "stress_soak"])
def test_a_call_that_never_returns_is_hung_and_the_run_ends(
    run: Any, bench: Any, name: str, monkeypatch: Patch
) -> None:
    whole, seen = AsyncSession.run, [0]

    async def never(self: AsyncSession, text: str, **options: Any) -> Completion:
        seen[0] += 1
        if seen[0] == 4:
            await asyncio.get_running_loop().create_future()
        return await whole(self, text, **options)

    monkeypatch.setattr(AsyncSession, "run", never)
    monkeypatch.setattr(bench(name), "TURN_S", 2.0)
    code, found, printed = run(name)
    assert (code, found.get("caller hung", 0) >= 1) == (1, True), printed


@pytest.mark.tmux
def test_a_call_that_never_returns_is_hung_in_panes_too(run: Any, monkeypatch: Patch) -> None:
    released = threading.Event()
    monkeypatch.setattr(Session, "run", lambda *_, **__: released.wait(60) and None)
    monkeypatch.setattr(fault_rig, "CALL_BOUND_S", 0.2)
    try:
        code, found, printed = run("stress_panes")
    finally:
        released.set()
    assert (code, found.get("caller hung")) == (1, 2), printed


def test_a_turn_that_never_ends_is_hung_in_virtual_time(run: Any, monkeypatch: Patch) -> None:
    monkeypatch.setattr(MemoryCli, "finish", lambda *_, **__: None)
    code, found, printed = run("stress_virtual")
    assert code == 1
    assert found.get("caller hung", 0) > 0, printed


class Told:
    """A session whose subscriber is told nothing, and never that it is over; or raises."""

    session_id = "s"

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.over = threading.Event()

    def events(self) -> Any:
        return self

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if self.error is not None:
            raise self.error
        self.over.wait(60)
        raise StopIteration

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        if self.error is not None:
            raise self.error
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(("error", "kind"), [(None, "hung"), (RuntimeError("broken"), "raised")])
@pytest.mark.parametrize("kept", ["AsyncListeners", "Listeners"])
def test_a_subscriber_that_raises_or_never_ends_is_told(
    bench: Any, kept: str, error: Exception | None, kind: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    module, account_of = bench("_listeners"), bench("_account")
    monkeypatch.setattr(module, "HEAR_S", 0.2 if error is None else 20.0)
    with Runtime.open(tmp_path, edge=memory_edge(MemoryWorld())):
        account = account_of.Account(tmp_path / "journal.db", lambda *_: "")
    session = Told(error)

    async def listen() -> None:
        listeners = module.AsyncListeners(account)
        listeners.follow(session)
        await listeners.caught_up()
        await listeners.ended()

    if kept == "AsyncListeners":
        asyncio.run(listen())
    else:
        listeners = module.Listeners(account)
        listeners.follow(session)
        listeners.caught_up()
        listeners.ended()
        session.over.set()
    account.close()
    assert dict(account.faults) == {("subscriber", kind): 1}


@pytest.mark.parametrize("name", ["stress_memory", "stress_soak"])
def test_a_session_that_cannot_be_opened_is_counted(run: Any, name: str, monkeypatch: Patch) -> None:
    async def refused(*_: Any, **__: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(AsyncRuntime, "session", refused)
    code, found, printed = run(name)
    assert (code, found.get("caller raised", 0) > 0) == (1, True), printed


def test_a_close_that_raises_is_counted(run: Any, monkeypatch: Patch) -> None:
    async def refused(*_: Any, **__: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(AsyncSession, "close", refused)
    monkeypatch.setattr(importlib.import_module("_listeners"), "HEAR_S", 0.1)
    code, found, printed = run("stress_soak")
    assert (code, found.get("caller raised", 0) > 0) == (1, True), printed


def test_a_call_that_raises_in_virtual_time_is_counted_and_the_run_ends(run: Any, monkeypatch: Patch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(Session, "snapshot", refused)
    code, found, printed = run("stress_virtual")
    assert (code, found.get("caller raised", 0) > 0) == (1, True), printed


# --- broken off -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["stress_memory", "stress_soak", "stress_virtual"])
def test_a_signal_ends_a_run_with_a_report_of_what_was_done(
    run: Any, bench: Any, name: str, signum: signal.Signals, tmp_path: Path, monkeypatch: Patch
) -> None:
    account, before, sent = bench("_account").Account, signal.getsignal(signum), []
    returned = account.returned

    def ended(self: Any, text: str, done: Any) -> None:
        returned(self, text, done)
        if len(self._got) == 3 and not sent:
            sent.append(os.kill(os.getpid(), signum))

    monkeypatch.setattr(account, "returned", ended)
    more = ["--turns", "2000"] if name == "stress_memory" else ["--rate", "20"] if name == "stress_soak" else []
    code, found, printed = run(name, *more)
    assert (code, found) == (128 + signum, {}), printed
    assert f"interrupted by {signum.name}" in printed
    assert name != "stress_memory" or (tmp_path / "report" / "memory.svg").exists()
    assert signal.getsignal(signum) is before


@pytest.mark.tmux
def test_a_signal_ends_the_panes_and_what_was_done_is_reported(
    run: Any, bench: Any, tmp_path: Path, monkeypatch: Patch
) -> None:
    account, roots, sent = bench("_account").Account, [], []
    returned, rehearsal = account.returned, fault_rig.Rehearsal

    class Kept(rehearsal):  # type: ignore[misc, valid-type]
        def __enter__(self) -> Any:
            kit = super().__enter__()
            roots.append(kit.root)
            return kit

    def ended(self: Any, text: str, done: Any) -> None:
        returned(self, text, done)
        if not sent:
            sent.append(os.kill(os.getpid(), signal.SIGINT))

    monkeypatch.setattr(fault_rig, "Rehearsal", Kept)
    monkeypatch.setattr(account, "returned", ended)
    code, found, printed = run("stress_panes", "--turns", "500")
    assert (code, found) == (130, {}), printed
    assert "interrupted by SIGINT" in printed
    assert (tmp_path / "report" / "panes.svg").exists()
    (root,) = roots
    assert not root.exists()
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if str(root) in command_line(pid)]


def command_line(pid: Path) -> str:
    try:
        return (pid / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


# --- command lines ----------------------------------------------------------------------------------------------------

NO_NUMBERS = ("0", "-1", "nan", "inf", "x", "", "1.5", "9" * 30)
SILLY = [
    *((name, ["--sessions", value]) for name in RUNS for value in (*NO_NUMBERS, "1,,2") if name != RUNS[2] or value),
    *((name, ["--turns", value]) for name in RUNS[:2] for value in NO_NUMBERS),
    *(("stress_memory", ["--rate", value]) for value in ("-5", "nan", "inf", "x", "", "1e-300", "1e300")),
    *(("stress_soak", ["--rate", value]) for value in ("0", "-5", "nan", "inf", "x", "", "1e-300", "1e300")),
    *((name, ["--out", "/dev/null/x"]) for name in RUNS[:2]),
    *((name, ["--seed", value]) for name in (RUNS[1], RUNS[3]) for value in ("x", "nan", "9" * 5000)),
    ("stress_memory", ["--sessions", "100000", "--turns", "100000"]),
    ("stress_panes", ["--sessions", "1000", "--turns", "10000"]),
    *((name, [value]) for name in RUNS[2:] for value in ("0", "0s", "nan", "inf", "infs", "nanh", "x", "", "s", "1s", "9e9h")),
]  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_what_is_no_number_of_anything_is_refused_with_its_reason(
    bench: Any, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for script, arguments in SILLY:
        if script != name:
            continue
        length = ["20m"] if name in RUNS[2:] and arguments[0].startswith("-") else []
        with pytest.raises(SystemExit) as ended:
            bench(name).main([*length, *arguments])
        told = capsys.readouterr().err
        assert (ended.value.code, "error: " in told) == (2, True), (arguments, told)
