"""What can go wrong between us and a model's API, and what becomes of the turn."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from api_kit import ApiHost
from kit_system import until
from lastword import Completion, JournalError, ProviderError, RejectedError, Session, Tool, UsageError, events
from lastword.actors.core.ports import Batch
from lastword.runtime.testing.homes import FAKE_OPENAI_KEY
from lastword.runtime.testing.script import Step, StepError
from lastword.runtime.testing.wire import CONTEXT_OVERFLOW, ModelRequest
from lastword.transports import api as edge
from structured_kit import WAIT_S, completed, completion_of, of_type, on_record, seen

BASE_URL = {"anthropic": ("ANTHROPIC_BASE_URL", ""), "openai": ("OPENAI_BASE_URL", "/v1")}
BASE_URL["openai-chat"] = BASE_URL["openai"]
KEY = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}

one_vendor = pytest.mark.parametrize("provider", ["anthropic"])
"""For what is the same code whichever the vendor."""


def failing(host: ApiHost, error: StepError) -> None:
    """Requests of prompts that say so are refused like that."""

    def respond(request: ModelRequest) -> Step | None:
        host.heard.append(request)
        return Step(error=error) if "please fail" in request.prompt else None

    host.kit.server._respond = respond


def two_tries(host: ApiHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the SDK's, not three: its pauses grow."""
    monkeypatch.setattr(importlib.import_module(f"lastword.transports.api_{host.provider}"), "RETRIES_MAX", 1)


@contextmanager
def silent_endpoint() -> Iterator[str]:
    """Takes connections and never says a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(8)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def dead_endpoint() -> str:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{server.getsockname()[1]}"


# --- what the service says -------------------------------------------------------------------------------------------


@pytest.mark.contract("C03")
def test_c03_an_error_of_the_service_is_a_failed_turn_with_its_kind_and_the_session_goes_on(
    host: ApiHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_tries(host, monkeypatch)
    wanted = {400: "invalid_request", 401: "authentication", 403: "authentication", 404: "invalid_request"}
    wanted |= {429: "rate_limited", 500: "provider_error", 529: "overloaded"}
    sessions = {status: host.session() for status in wanted}
    done: dict[int, Completion] = {}

    def drive(status: int, session: Session) -> None:
        done[status] = session.run(f"[[error:{status}]] please", deadline_s=WAIT_S)

    threads = [threading.Thread(target=drive, args=each) for each in sessions.items()]  # at once: the SDK pauses
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    for status, session in sessions.items():
        error = done[status].error
        assert done[status].status == "failed"
        assert error is not None
        assert (error.kind, error.status_code, done[status].answer) == (wanted[status], status, None)
        retried = of_type(session, events.ProviderRetrying)
        assert len(retried) == (1 if status >= 429 else 0)
        assert all(f"HTTP {status}" in each.body.message for each in retried)
        assert session.run("after", deadline_s=WAIT_S).answer == "echo: after"
        assert len(of_type(session, events.ProviderStarted)) == 1


@pytest.mark.contract("C03")
@pytest.mark.parametrize(("stop", "kind"), [("refusal", "refused"), ("max_tokens", "provider_error")])
def test_c03_an_answer_that_is_refused_or_cut_off_is_no_answer(host: ApiHost, stop: str, kind: str) -> None:
    session = host.session()
    done = session.run(f"[[say:I will]][[stop:{stop}]] please", deadline_s=WAIT_S)
    assert (done.status, done.answer, done.error.kind if done.error else "") == ("failed", None, kind)
    assert session.run("after", deadline_s=WAIT_S).answer == "echo: after"


@pytest.mark.contract("C03")
def test_c03_a_full_context_is_told_as_that(host: ApiHost) -> None:
    failing(host, StepError(status=400, word=CONTEXT_OVERFLOW))
    done = host.session().run("please fail", deadline_s=WAIT_S)
    assert (done.status, done.error.kind if done.error else "") == ("failed", "context_overflow")


@pytest.mark.contract("C03")
def test_c03_a_long_rate_limit_is_told_with_its_end_and_not_waited_for(host: ApiHost) -> None:
    failing(host, StepError(status=429, retry_after_s=3600.0))
    session = host.session()
    began = time.time()
    done = session.run("please fail", deadline_s=WAIT_S)
    assert time.time() - began < 10
    assert done.error is not None
    assert (done.status, done.error.kind) == ("failed", "rate_limited")
    assert done.error.resets_at is not None
    assert began + 3590 < done.error.resets_at < time.time() + 3600
    assert of_type(session, events.ProviderRetrying) == []


@pytest.mark.contract("C03")
def test_c03_what_the_sdk_overcomes_itself_is_told_as_retrying_and_is_no_failure(host: ApiHost) -> None:
    session = host.session()
    assert session.run("[[error:529:1]] once", deadline_s=WAIT_S).status == "completed"
    (retried,) = of_type(session, events.ProviderRetrying)
    assert retried.body.message == "try 2, after HTTP 529"


@pytest.mark.contract("C04")
def test_c04_an_answer_that_breaks_off_is_asked_for_again_and_no_half_of_it_stands(
    host: ApiHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge, "CUT_PAUSE_S", 0.01)
    session = host.session()
    done = session.run("[[say:half of it]][[cut:1]] once", deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("completed", "half of it")
    (retried,) = of_type(session, events.ProviderRetrying)
    assert "broke off" in retried.body.message
    always = session.run("[[say:half of it]][[cut]] always", deadline_s=WAIT_S)
    assert (always.status, always.answer, always.error.kind if always.error else "") == (
        "failed",
        None,
        "provider_error",
    )
    assert [each.body.text for each in of_type(session, events.AssistantMessage)] == ["half of it"]
    assert session.run("after", deadline_s=WAIT_S).answer == "echo: after"


# --- what the network does -------------------------------------------------------------------------------------------


def elsewhere(host: ApiHost, url: str) -> None:
    host.close()
    name, suffix = BASE_URL[host.provider]
    host.env[name] = url + suffix
    host.open()


@one_vendor
@pytest.mark.contract("C07")
def test_c07_an_endpoint_that_says_nothing_is_waited_for_until_the_deadline(host: ApiHost) -> None:
    with silent_endpoint() as url:
        elsewhere(host, url)
        done = host.session().run("hello", deadline_s=0.5)
        assert (done.status, done.error.kind if done.error else "") == ("cancelled", "deadline")
        host.close()
    host.open()


@one_vendor
@pytest.mark.contract("C02")
def test_c02_an_endpoint_that_is_down_fails_the_turn_after_the_sdks_tries(
    host: ApiHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_tries(host, monkeypatch)
    elsewhere(host, dead_endpoint())
    session = host.session()
    done = session.run("hello", deadline_s=WAIT_S)
    assert (done.status, done.error.kind if done.error else "") == ("failed", "provider_error")
    assert done.error is not None
    assert done.error.native_kind == "connection"
    (retried,) = of_type(session, events.ProviderRetrying)
    assert retried.body.message == "try 2, after no answer"


FIRST_WORDS = {
    "anthropic": {
        "type": "message_start",
        "message": {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        },
    },
    "openai": {
        "type": "response.created",
        "sequence_number": 0,
        "response": {"id": "r1", "object": "response", "created_at": 1, "status": "in_progress", "output": []},
    },
    "openai-chat": {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": "half"}, "finish_reason": None}],
    },
}


@contextmanager
def forgetful_endpoint(first: dict[str, Any]) -> Iterator[str]:
    """Begins an answer, and ends the stream in all order without a last word."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            data = f"event: {first.get('type', 'message')}\ndata: {json.dumps(first)}\n\n".encode()
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(WAIT_S)


@pytest.mark.contract("C04")
@pytest.mark.parametrize("provider", sorted(FIRST_WORDS))
def test_c04_a_stream_that_ends_in_all_order_without_a_last_word_is_no_answer(
    host: ApiHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge, "CUT_PAUSE_S", 0.01)
    with forgetful_endpoint(FIRST_WORDS[host.provider]) as url:
        elsewhere(host, url)
        session = host.session()
        done = session.run("hello", deadline_s=WAIT_S)
        assert (done.status, done.answer, done.error.native_kind if done.error else "") == (
            "failed",
            None,
            "connection",
        )
        assert len(of_type(session, events.ProviderRetrying)) == edge.CUTS_MAX
        host.close()
    host.open()


# --- what the disk does ---


@one_vendor
@pytest.mark.contract("C09")
@pytest.mark.contract("C32")
def test_c09_while_the_journal_fails_nothing_is_done_that_is_not_on_record(host: ApiHost) -> None:
    assert host.runtime is not None
    journal, failing = host.runtime._journal, threading.Event()
    record, refused = journal.record, list[int]()

    def unsure(batches: Sequence[Batch], now_wall_s: float) -> Any:
        if failing.is_set():
            refused.append(len(batches))
            raise JournalError("journal_full", "no space")
        return record(batches, now_wall_s)

    journal.record = unsure  # type: ignore[method-assign]
    session = host.session()
    log, gate = host.kit.root / "log", host.kit.root / "gate"
    command = f"echo ran >>{log}; until test -e {gate}; do sleep 0.01; done"
    ack = session.send(f"[[tool:Bash:{command}]][[tool:Bash:echo again >>{log}]][[say:done]] work")
    until(log.exists, within_s=WAIT_S)
    asked = len(host.heard)
    failing.set()
    gate.touch()
    until(lambda: refused, within_s=WAIT_S)
    until(lambda: [t for t in threading.enumerate() if t.name.startswith("lastword-tool")] == [], within_s=WAIT_S)
    assert len(host.heard) == asked  # the result is not on record: the model is not told it
    failing.clear()
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.answer) == ("completed", "done")
    assert log.read_text().split() == ["ran", "again"]


# --- what the host does ----------------------------------------------------------------------------------------------


@pytest.mark.contract("C21")
def test_c21_a_missing_extra_is_told_by_its_name(host: ApiHost, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    session = host.session()
    assert session.run("before", deadline_s=WAIT_S).status == "completed"
    host.close()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == host.provider else real(name))
    host.open()
    with pytest.raises(ProviderError) as refused:
        host.session()
    assert refused.value.kind == "provider_unavailable"
    assert f"lastword[{host.provider}]" in refused.value.reason
    assert f"'lastword[{host.provider}]'" in refused.value.remedy
    again = host.again(session)
    done = again.run("now", deadline_s=WAIT_S)  # accepted, and settled all the same
    assert (done.status, done.error.kind if done.error else "") == ("failed", "launch_failed")
    monkeypatch.undo()
    assert again.run("after", deadline_s=WAIT_S).answer == "echo: after"


@one_vendor
@pytest.mark.contract("C21")
def test_c21_what_cannot_be_asked_is_refused_with_a_reason(hosts: Callable[..., ApiHost]) -> None:
    host = hosts()
    for args, options, word in (
        (("--tempo", "3"), {}, "--tempo"),
        (("--system",), {}, "--system has no value"),
        (("--max-tokens",), {}, "--max-tokens has no value"),
        (("--max-tokens", "none"), {}, "--max-tokens"),
        ((), {"permission_mode": "plan"}, "permission"),
    ):
        with pytest.raises(UsageError) as refused:
            host.session(*args, **options)
        assert refused.value.kind == "usage"
        assert word in refused.value.reason
    for transport, words in (("", "'' is no transport"), ("tmux", "is not driven over tmux")):
        with pytest.raises(UsageError) as elsewhere:
            host.session(transport=transport)
        assert elsewhere.value.kind == "unsupported_capability"
        assert words in elsewhere.value.reason
    host.close()
    model, key = host.env.pop(f"{host.provider.upper()}_MODEL"), host.env.pop(KEY[host.provider])
    host.open()
    with pytest.raises(ProviderError) as keyless:
        host.session(model=model)
    assert keyless.value.kind == "provider_unavailable"
    assert KEY[host.provider] in keyless.value.remedy
    host.close()
    host.env[KEY[host.provider]] = key
    host.open()
    with pytest.raises(UsageError) as modelless:
        host.session()
    assert "model" in modelless.value.reason
    assert host.session(model=model).run("named", deadline_s=WAIT_S).status == "completed"
    assert host.heard[-1].model == model


async def _async(*_: object) -> str:
    return "never awaited"


class _Async:
    async def __call__(self, _: object) -> str:
        return "never awaited"


@one_vendor
@pytest.mark.parametrize(
    "tools",
    [
        "bash",
        [print],
        [Tool(name="two words", description="", call=print)],
        [Tool(name="one", description="", call=print)] * 2,
        [Tool(name="one", description="", call=print, parameters={"type": "string"})],
        [Tool(name="one", description="", call="print")],  # type: ignore[arg-type]
        [Tool(name="one", description="", call=_async)],
        [Tool(name="one", description="", call=functools.partial(_async, 1))],
        [Tool(name="one", description="", call=_Async())],
    ],
    ids=["no list", "no tool", "bad name", "twice", "no object", "no function", "async", "async part", "async object"],
)
def test_c21_what_is_no_tool_is_refused_at_the_door(provider: str, tmp_path, tools) -> None:
    from lastword import Runtime

    with pytest.raises(UsageError) as refused:
        Runtime.open(tmp_path, tools=tools)
    assert refused.value.kind == "usage"


def test_c62_a_driver_goes_by_the_runtimes_environment_and_not_by_the_processes_own(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (BASE_URL[provider][0], KEY[provider], "ANTHROPIC_AUTH_TOKEN", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "https://elsewhere.example")
    driver = importlib.import_module(f"lastword.transports.api_{provider}").make({KEY[provider]: "ours"})
    client = driver._client
    assert str(client.base_url).startswith(f"https://api.{provider}.com")
    headers = {**client.auth_headers, **client.default_headers}
    assert "elsewhere" not in str(headers)
    assert "ours" in str(headers)


def test_the_system_text_and_the_limit_of_tokens_reach_the_service(host: ApiHost) -> None:
    session = host.session("--system", "Be brief.", "--max-tokens", "321")
    assert session.run("hello", deadline_s=WAIT_S).status == "completed"
    assert host.heard[-1].max_tokens in (321, 0)


@one_vendor
@pytest.mark.contract("C62")
def test_c62_the_key_stands_in_no_file_of_ours_and_the_text_in_no_trace(
    hosts: Callable[..., ApiHost], tmp_path
) -> None:
    host = hosts(trace=tmp_path / "trace.jsonl")
    session = host.session()
    assert session.run("a secret word [[error:401]]", deadline_s=WAIT_S).status == "failed"
    host.close()
    assert b"secret word" not in (tmp_path / "trace.jsonl").read_bytes()
    for path in (host.kit.root / "state").rglob("*"):
        if path.is_file():
            assert FAKE_OPENAI_KEY.encode() not in path.read_bytes(), path
    host.open()


@one_vendor
@pytest.mark.contract("C13")
def test_c13_a_tool_that_hangs_holds_up_no_other_session_and_is_named_when_it_is_left(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge, "JOIN_S", 0.3)
    gate = threading.Event()

    def stuck(_: object) -> str:
        gate.wait(WAIT_S)
        return "late"

    with ApiHost(provider, tools=[Tool(name="stuck", description="", call=stuck)]) as host:
        sessions = [host.session() for _ in range(4)]
        for session in sessions:
            session.send("[[tool:stuck:{}]] wait")
        for session in sessions:
            seen(session, events.ToolStarted)
        other = host.session()
        assert other.run("meanwhile", deadline_s=5.0).answer == "echo: meanwhile"
        assert host.runtime is not None
        runtime, host.runtime = host.runtime, None
        report = runtime.close(grace_s=0.5)
        assert len([name for name in report.threads_left if name.startswith("lastword-tool")]) == 4
        assert not report.clean
        gate.set()
        until(lambda: not [t for t in threading.enumerate() if t.name.startswith("lastword-tool")], within_s=WAIT_S)


@one_vendor
def test_c42_a_waiting_turn_says_what_it_waits_for(host: ApiHost) -> None:
    session = host.session()
    gate = host.kit.root / "gate"
    ack = session.send(f"[[tool:Bash:until test -e {gate}; do sleep 0.01; done]][[sleep:2]][[say:done]] work")
    seen(session, events.ToolStarted)
    wait = session.snapshot().waits_for
    assert wait is not None
    assert (wait.kind, wait.what) == ("tool", "tool Bash")
    gate.touch()
    seen(session, events.ToolFinished)
    wait = session.snapshot().waits_for
    assert wait is not None
    assert wait.kind == "model"
    (done,) = completed(session)
    assert done.turn_id == ack.turn_id
    with pytest.raises(RejectedError):
        session.send("")
    assert len(on_record(session)) == session.snapshot().seq
