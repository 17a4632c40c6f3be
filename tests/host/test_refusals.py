"""What is not accepted: a typed error that costs the session nothing (C21)."""

from __future__ import annotations

import pytest

from host_kit import kinds
from lastword import Answer, Command, Interrupt, LastwordError, RejectedError, UsageError
from lastword.transports.providers.memory import MemoryAdapter


def refused(call):
    with pytest.raises(LastwordError) as caught:
        call()
    error = caught.value
    assert error.reason
    return type(error), error.kind


@pytest.mark.contract("C21")
def test_c21_each_bad_input_is_a_typed_error_and_costs_the_session_nothing(make):
    rig = make()
    session = rig.session()
    cases = [
        (lambda: session.send(""), (RejectedError, "empty_message")),
        (lambda: session.send(" \n\t "), (RejectedError, "empty_message")),
        (lambda: session.run(""), (RejectedError, "empty_message")),
        (lambda: session.send("a\0b"), (RejectedError, "unsupported_text")),
        (lambda: session.send("half \ud800 pair"), (RejectedError, "unsupported_text")),
        (lambda: session.send("x" * 2_000_000), (RejectedError, "unsupported_text")),
        (lambda: session.send(b"bytes"), (UsageError, "usage")),
        (lambda: session.send(None), (UsageError, "usage")),
        (lambda: session.run(17), (UsageError, "usage")),
        (lambda: session.run("x", deadline_s=-1), (UsageError, "usage")),
        (lambda: session.send("x", deadline_s=float("nan")), (UsageError, "usage")),
        (lambda: session.send("x", deadline_s=float("inf")), (UsageError, "usage")),
        (lambda: session.send("x", deadline_s="soon"), (UsageError, "usage")),
        (lambda: session.send("x", message_id=""), (UsageError, "usage")),
        (lambda: session.send("x", message_id="y" * 1000), (UsageError, "usage")),
        (lambda: session.send("x", message_id=5), (UsageError, "usage")),
        (lambda: session.send("x", message_id="a\nb"), (UsageError, "usage")),
        (lambda: session.send(Answer("nope", 1)), (RejectedError, "unknown_dialog")),
        (lambda: session.send(Answer("nope", "1")), (UsageError, "usage")),
        (lambda: session.send(Answer(None, 1)), (UsageError, "usage")),
        (lambda: session.send(Interrupt(turn_id=["x"])), (UsageError, "usage")),
        (lambda: session.send(Command("/compact")), (UsageError, "unsupported_capability")),
        (lambda: session.send(Command("")), (UsageError, "unsupported_capability")),
        (lambda: session.send(Command(3)), (UsageError, "usage")),
        (lambda: rig.runtime.session("nobody"), (UsageError, "unknown_provider")),
        (rig.runtime.session, (UsageError, "usage")),
        (lambda: rig.runtime.session(session_id="s_unknown"), (UsageError, "unknown_session")),
        (lambda: rig.runtime.session("memory", cwd="/nowhere/at/all"), (UsageError, "cwd_unusable")),
        (lambda: rig.runtime.session("memory", cwd="\udcff"), (UsageError, "cwd_unusable")),
        (lambda: rig.runtime.session("memory", model="\ud83d"), (UsageError, "usage")),
        (lambda: rig.runtime.session("memory", permission_mode="\ud83d"), (UsageError, "usage")),
        (lambda: rig.runtime.session("memory", args=("--x", "\ud83d")), (UsageError, "usage")),
        (lambda: rig.runtime.session("memory", args=("--x", b"y")), (UsageError, "usage")),
        (lambda: rig.runtime.session("\ud83d"), (UsageError, "unknown_provider")),
        (lambda: rig.runtime.session(session_id="\ud83d"), (UsageError, "unknown_session")),
        (lambda: rig.runtime.session("memory", transport="api"), (UsageError, "unsupported_capability")),
    ]
    for call, expected in cases:
        assert refused(call) == expected
    assert session.run("still well").answer == "echo: still well"
    assert kinds(rig, session).count("message_accepted") == 1
    assert session.send(Interrupt(turn_id="t_unknown")).taken == "nothing_to_do"


@pytest.mark.contract("C21")
def test_c21_an_adapter_that_raises_on_a_text_refuses_the_text_not_the_session(make):
    class Stumbling(MemoryAdapter):
        name = "stumbling"

        def escape(self, text):
            if "trip" in text:
                raise ZeroDivisionError(text)
            return super().escape(text)

    rig = make(adapters=[Stumbling()])
    session = rig.runtime.session("stumbling")
    kind = refused(lambda: session.send("trip over this secret"))
    assert kind == (RejectedError, "unsupported_text")
    assert session.run("walk").status == "completed"


@pytest.mark.contract("C21")
def test_c21_a_closed_session_and_a_closed_runtime_say_so(make):
    rig = make()
    session, other = rig.session(), rig.session()
    session.close()
    assert refused(lambda: session.send("x")) == (RejectedError, "session_closed")
    assert refused(lambda: session.run("x")) == (RejectedError, "session_closed")
    assert refused(lambda: session.send(Interrupt())) == (RejectedError, "session_closed")
    rig.runtime.close()
    assert refused(lambda: other.send("x")) == (RejectedError, "session_closed")
    assert refused(lambda: rig.runtime.session("memory")) == (UsageError, "runtime_closed")


@pytest.mark.contract("C21")
def test_c21_a_missing_or_uncertified_cli_is_refused_before_anything_is_made(make, tmp_path):
    class Missing(MemoryAdapter):
        name, executables = "missing", ("no-such-cli-anywhere",)

    class Old(MemoryAdapter):
        name, certified_versions = "old", ("99",)

    rig = make(adapters=[Missing(), Old()])
    assert refused(lambda: rig.runtime.session("missing"))[1] == "provider_unavailable"
    assert refused(lambda: rig.runtime.session("old"))[1] == "unsupported_cli_version"
    assert not rig.runtime.sessions()
    assert not rig.world.opened


@pytest.mark.contract("C21")
def test_c21_a_thousand_waiting_messages_are_the_bound(make):
    rig = make(manual=True)
    rig.world.on_start = lambda cli: setattr(cli, "starting", True)
    session = rig.session()
    session.send("first")
    taken = 1

    def fill():
        nonlocal taken
        for number in range(2000):
            session.send(f"{number}")
            taken += 1

    assert refused(fill) == (RejectedError, "overloaded")
    assert taken == 1000
