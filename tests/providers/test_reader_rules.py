"""Rules of readers that no recording shows: made records, each a change of one that was recorded."""

import json

import pytest

from cases_kit import BY_PROVIDER, all_facts, oracle_of
from lastword.actors.core.facts import Fact, TurnClosed, UnknownRecord
from lastword.actors.core.outcome import Status


def lines(*records: dict) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def closed(facts: list[Fact]) -> list[TurnClosed]:
    return [fact for fact in facts if isinstance(fact, TurnClosed)]


def stream(**result: object) -> bytes:
    said = {"id": "m", "content": [{"type": "text", "text": "API Error"}]}
    return lines(
        {"type": "system", "subtype": "init", "session_id": "s", "uuid": "u"},
        {"type": "assistant", "session_id": "s", "message": said},
        {"type": "result", "session_id": "s", **result},
    )


@pytest.mark.contract("C03")
@pytest.mark.parametrize("provider", ["claude-code", "qwen", "cursor"])
@pytest.mark.parametrize(
    ("result", "status"),
    [
        ({"subtype": "success", "is_error": True}, "failed"),
        ({"subtype": "error_during_execution", "is_error": False}, "failed"),
        ({"subtype": "success", "is_error": False, "terminal_reason": "api_error"}, "failed"),
        ({"subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_streaming"}, "cancelled"),
        ({"subtype": "success", "is_error": False}, "completed"),
    ],
)
def test_c03_a_result_is_judged_by_its_error_flag_and_reason(provider: str, result: dict, status: Status) -> None:
    [end] = closed(all_facts(BY_PROVIDER[provider], stream(**result)))
    assert end.status == status


@pytest.mark.contract("C04")
def test_c04_text_before_a_call_is_no_answer_in_geminis_stream() -> None:
    data = lines(
        {"type": "init", "session_id": "s"},
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "message", "role": "assistant", "content": "Let me look.", "delta": True},
        {"type": "tool_use", "tool_name": "t", "tool_id": "1", "parameters": {}},
        {"type": "tool_result", "tool_id": "1", "status": "success", "output": ""},
        {"type": "message", "role": "assistant", "content": "Done.", "delta": True},
        {"type": "result", "status": "success"},
    )
    [end] = closed(all_facts(BY_PROVIDER["gemini"], data))
    assert end.answer == "Done."


@pytest.mark.contract("C04")
@pytest.mark.parametrize(("reason", "ends"), [("tool-calls", 0), ("stop", 1), ("length", 1)])
def test_c04_an_opencode_step_that_calls_a_tool_ends_nothing_even_at_the_end(reason: str, ends: int) -> None:
    part = {"messageID": "m", "sessionID": "s"}
    data = lines(
        {"type": "step_start", "sessionID": "s", "part": part},
        {"type": "text", "sessionID": "s", "part": {**part, "text": "so far"}},
        {"type": "step_finish", "sessionID": "s", "part": {**part, "reason": reason}},
    )
    reader = oracle_of(BY_PROVIDER["opencode"])
    assert not closed(reader.feed("f", data))
    assert len(closed(reader.eof("f"))) == ends


@pytest.mark.contract("C03")
@pytest.mark.parametrize(
    ("info", "kind", "status_code"),
    [
        ("context_window_exceeded", "context_overflow", None),
        ({"http_connection_failed": {"http_status_code": 401}}, "authentication", 401),
        ({"response_too_many_failed_attempts": {"http_status_code": 429}}, "rate_limited", 429),
        ("usage_limit_exceeded", "rate_limited", None),
        ("other", "provider_error", None),
    ],
)
def test_c03_codexs_word_for_an_error_has_a_kind_and_a_limit_its_end(
    info: object, kind: str, status_code: int | None
) -> None:
    limits = {"primary": {"used_percent": 100.0, "resets_at": 1796200000}, "secondary": {"used_percent": 3.0}}
    error = {"message": "no", "codex_error_info": info}
    data = lines(
        {"type": "event_msg", "payload": {"type": "task_started", "turn_id": "t"}},
        {"type": "event_msg", "payload": {"type": "token_count", "rate_limits": limits}},
        {"type": "event_msg", "payload": {"type": "task_complete", "turn_id": "t", "error": error}},
    )
    [end] = closed(all_facts(BY_PROVIDER["codex"], data))
    assert end.error is not None
    assert (end.status, end.error.kind, end.error.status_code) == ("failed", kind, status_code)
    assert end.error.resets_at == (1796200000 if kind == "rate_limited" else None)


@pytest.mark.contract("C04")
def test_c04_only_the_end_of_its_own_turn_closes_a_codex_turn_and_the_next_start_proves_it_lost() -> None:
    message = {"type": "UserMessage", "id": "i", "content": [{"type": "text", "text": "hi"}]}
    started = [{"type": "event_msg", "payload": {"type": "task_started", "turn_id": turn}} for turn in ("a", "b")]
    said = {"type": "event_msg", "payload": {"type": "item_completed", "turn_id": "a", "item": message}}
    end = {"type": "event_msg", "payload": {"type": "task_complete", "turn_id": "x", "last_agent_message": "no"}}
    reader = oracle_of(BY_PROVIDER["codex"])
    assert not closed(reader.feed("f", lines(started[0], said, end)))
    [lost] = closed(reader.feed("f", lines(started[1])))
    assert (lost.native_turn, lost.status) == ("a", "lost")
    assert not closed(reader.feed("f", lines({**end, "payload": {**end["payload"], "turn_id": "a"}})))


@pytest.mark.contract("C51")
def test_c51_what_runs_of_another_conversation_say_in_one_file_is_none_of_ours() -> None:
    def run(thread: str, answer: str) -> bytes:
        return lines(
            {"type": "thread.started", "thread_id": thread},
            {"type": "turn.started"},
            {"type": "item.completed", "item": {"id": "item_0", "type": "agent_message", "text": answer}},
            {"type": "turn.completed", "usage": {}},
        )

    ends = closed(all_facts(BY_PROVIDER["codex"], run("ours", "one") + run("another", "no") + run("ours", "two")))
    assert [end.answer for end in ends] == ["one", "two"]


@pytest.mark.contract("C03")
def test_c03_a_run_that_the_model_server_refused_failed_as_an_invalid_request() -> None:
    body = '{"error": {"message": "no", "type": "invalid_request_error"}}'
    started = ({"type": "thread.started", "thread_id": "t"}, {"type": "turn.started"})
    [end] = closed(
        all_facts(BY_PROVIDER["codex"], lines(*started, {"type": "turn.failed", "error": {"message": body}}))
    )
    assert end.error is not None
    assert end.error.kind == "invalid_request"


@pytest.mark.contract("C04")
def test_c04_only_the_end_of_its_own_run_closes_a_run_of_muse() -> None:
    """A damaged file had a terminal record of no run that began, twice: it closed one and the same turn twice."""
    began = {"stream": {"id": "run-a"}, "payload": {"kind": "run_started"}}
    end = {"stream": {"id": "run-a"}, "payload": {"kind": "run_terminal", "terminal": "completed", "text": "x"}}
    stray = {**end, "stream": {"id": "run-b"}}
    facts = all_facts(BY_PROVIDER["muse"], lines(began, stray, stray, end))
    assert [end.native_turn for end in closed(facts)] == ["run-a"]
    assert [fact.what for fact in facts if isinstance(fact, UnknownRecord)] == ["late_terminal", "late_terminal"]
