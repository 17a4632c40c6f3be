"""A process that was forked off the host's has the objects and none of the threads: each call there is refused at once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from host_kit import Rig, completed
from lastword import Answer, AsyncSession, Command, Interrupt, LastwordError
from lastword.runtime._async_runtime import AsyncRuntime

CHILD_S = 10
"""A child that hangs is ended by its own alarm."""
AT_ONCE_S = 1.0


def in_child(calls: dict[str, Callable[[], Any]]) -> dict[str, list[Any]]:
    """What each call came to in a forked child: the exception's class, its kind, and how long it took."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CHILD_S)
        told = {}
        for name, call in calls.items():
            began = time.monotonic()
            try:
                result = call()
                told[name] = [type(result).__name__, "", time.monotonic() - began]
            except BaseException as error:
                told[name] = [type(error).__name__, getattr(error, "kind", ""), time.monotonic() - began]
        os.write(writing, json.dumps(told).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    assert os.waitpid(pid, 0)[1] == 0, "the child hung"
    found: dict[str, list[Any]] = json.loads(text)
    return found


@pytest.mark.contract("C21")
def test_c21_every_call_in_a_forked_child_is_refused_at_once_and_the_host_goes_on(make) -> None:
    rig: Rig = make()
    session = rig.session()
    assert session.run("before").answer == "echo: before"
    runtime, stream = rig.runtime, session.events(after=1_000)
    twin, twins = AsyncSession(session), AsyncRuntime(rig.runtime)
    calls: dict[str, Callable[[], Any]] = {
        "run": lambda: session.run("x"),
        "send": lambda: session.send("x"),
        "interrupt": lambda: session.send(Interrupt()),
        "answer": lambda: session.send(Answer("d", 1)),
        "command": lambda: session.send(Command("/clear")),
        "events": lambda: session.events(),
        "an iterator": lambda: next(stream),
        "snapshot": session.snapshot,
        "close": session.close,
        "runtime.session": lambda: runtime.session("memory"),
        "runtime.session(id)": lambda: runtime.session(session_id=session.session_id),
        "runtime.run": lambda: runtime.run("memory", "x"),
        "runtime.sessions": runtime.sessions,
        "runtime.completion": lambda: runtime.completion("t"),
        "async run": lambda: asyncio.run(twin.run("x")),
        "async send": lambda: asyncio.run(twin.send("x")),
        "async snapshot": lambda: asyncio.run(twin.snapshot()),
        "async close": lambda: asyncio.run(twin.close()),
        "async session": lambda: asyncio.run(twins.session("memory")),
        "async sessions": lambda: asyncio.run(twins.sessions()),
        "async completion": lambda: asyncio.run(twins.completion("t")),
    }
    ends: dict[str, Callable[[], Any]] = {
        "runtime.close": runtime.close,
        "async runtime.close": lambda: asyncio.run(twins.close()),
    }
    told = in_child({**calls, **ends})
    assert {name: found[:2] for name, found in told.items()} == {
        **{name: ["UsageError", "forked"] for name in calls},
        **{name: ["CloseReport", ""] for name in ends},
    }
    assert max(took for _, _, took in told.values()) < AT_ONCE_S
    assert session.run("after").answer == "echo: after"
    assert len(completed(rig, session, 2)) == 2


@pytest.mark.contract("C21")
def test_c21_what_is_asked_of_a_closed_runtime_is_refused_as_such(make) -> None:
    rig: Rig = make()
    session = rig.session()
    rig.runtime.close()
    for call in (
        rig.runtime.sessions,
        lambda: rig.runtime.completion("t"),
        session.snapshot,
        session.events,
        lambda: rig.runtime.session("memory"),
    ):
        with pytest.raises(LastwordError) as caught:
            call()
        assert (type(caught.value).__name__, caught.value.kind) == ("UsageError", "runtime_closed")
