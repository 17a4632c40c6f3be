"""What the scripted CLI does when it behaves."""

import json
import subprocess
import sys
import time

import pytest

from lastword.runtime.testing import SCRIPTED_CLI, echo, inline_steps


def test_version_is_told_at_once() -> None:
    started = time.monotonic()
    done = subprocess.run([sys.executable, str(SCRIPTED_CLI), "--version"], capture_output=True, check=True, timeout=10)
    assert done.stdout.decode().strip() == "2.1.332 (Claude Code)"
    assert time.monotonic() - started < 1


def test_a_prompt_is_recorded_answered_and_closed(cli) -> None:
    pane = cli()
    assert not pane.path.exists()
    pane.submit("hello")
    pane.wait_end()
    assert pane.kinds() == ["user", "assistant", "system/turn_duration"]
    user = pane.find(type="user")[0]
    assert user["message"]["content"] == "hello"
    assert (user["promptSource"], user["origin"], user["turnPosition"]["promptIndex"]) == (
        "typed",
        {"kind": "human"},
        1,
    )
    assert pane.answers() == ["echo: hello"]
    pane.submit("again")
    pane.wait_end(2)
    assert pane.find(type="user")[1]["parentUuid"] == pane.find(subtype="turn_duration")[0]["uuid"]


def test_the_registry_tells_idle_busy_waiting_and_goes_at_exit(cli) -> None:
    pane = cli()
    assert pane.registry()["sessionId"] == pane.session_id
    pane.submit("[[sleep:0.3]]x")
    pane.until(lambda: pane.registry()["status"] == "busy", "busy")
    pane.until(lambda: pane.registry()["status"] == "idle", "idle")
    pane.submit("/exit")
    assert pane.exit_code() == 0
    assert pane.registry() == {}


def test_a_message_has_one_line_for_each_block_and_tools_a_result(cli) -> None:
    pane = cli()
    pane.submit("[[think:hm]][[say:look]][[tool:Bash:echo alpha; false]][[say:one ]][[say:two]]")
    pane.wait_end()
    lines = pane.find(type="assistant")
    assert [line["message"]["stop_reason"] for line in lines] == ["tool_use"] * 3 + ["end_turn"] * 2
    assert [line["apiBlockIndex"] for line in lines] == [0, 1, 2, 0, 1]
    assert len({line["message"]["id"] for line in lines}) == 2
    result = pane.find(type="user")[1]["message"]["content"][0]
    assert (result["is_error"], "alpha" in result["content"]) == (True, True)


def test_a_dialog_swallows_a_paste_and_enter_approves(cli) -> None:
    pane = cli()
    pane.submit("[[tool:Bash:touch made]][[say:done]]")
    pane.until(lambda: "Do you want to proceed?" in pane.screen(), "dialog")
    assert pane.registry()["status"] == "waiting"
    pane.paste("lost text")
    pane.write("\r")
    pane.wait_end()
    assert (pane.cwd / "made").exists()
    assert b"lost text" not in pane.raw()
    assert "lost text" not in pane.screen()


@pytest.mark.parametrize("key", ["3", "\x1b"])
def test_a_dialog_can_be_refused(cli, key) -> None:
    pane = cli()
    pane.submit("[[tool:Bash:touch made]]")
    pane.until(lambda: "Do you want to proceed?" in pane.screen(), "dialog")
    pane.write(key)
    pane.until(lambda: b"[Request interrupted by user for tool use]" in pane.raw(), "interruption")
    assert pane.find(toolDenialKind="user-rejected")[0]["toolDenialBeforeRun"] is True
    assert not (pane.cwd / "made").exists()
    assert pane.ends() == 0


def test_a_message_during_a_tool_is_absorbed(cli) -> None:
    pane = cli()
    pane.submit("[[tool:Bash:sleep 0.6]][[say:both]]")
    pane.until(lambda: pane.find(type="assistant"), "tool call")
    pane.submit("steer")
    pane.wait_end()
    wanted = (
        "user assistant queue-operation/enqueue queue-operation/remove user attachment assistant system/turn_duration"
    )
    assert pane.kinds() == wanted.split()
    removed = pane.find(operation="remove")[0]
    joined = next(r for r in pane.find(type="attachment") if r["attachment"]["type"] == "queued_command")["attachment"]
    assert (removed["reason"], joined["prompt"]) == ("absorbed_mid_turn", "steer")
    assert removed["deliveryId"] == joined["delivery_id"]


def test_a_message_during_the_answer_runs_on_its_own(cli) -> None:
    pane = cli()
    pane.submit("[[sleep:0.5]]one")
    pane.until(lambda: pane.registry()["status"] == "busy", "busy")
    pane.submit("two")
    pane.wait_end(2)
    kinds = pane.kinds()
    assert kinds.index("queue-operation/dequeue") < kinds.index("assistant")
    assert [r["promptSource"] for r in pane.find(type="user")] == ["typed", "queued"]


def test_escape_before_any_output_writes_nothing_and_returns_the_text(cli) -> None:
    pane = cli()
    pane.submit("[[sleep:5]]early")
    pane.until(lambda: pane.find(type="user"), "prompt")
    pane.write("\x1b")
    pane.until(lambda: pane.registry()["status"] == "idle" and "early" in pane.box(), "text back")
    pane.quiet(0.2)
    assert pane.kinds() == ["user"]
    pane.write("\x15")
    pane.submit("next")
    pane.wait_end()
    first, second = pane.find(type="user")
    assert first["parentUuid"] == second["parentUuid"]
    assert first["turnPosition"] == second["turnPosition"]
    assert pane.find(type="last-prompt", leafUuid="00000000-0000-0000-0000-000000000000")


def test_escape_in_the_answer_leaves_a_partial_and_a_line(cli) -> None:
    pane = cli()
    pane.submit("[[chunk:5:0.05]][[size:500]]")
    pane.until(lambda: "01234" in pane.screen(), "words")
    pane.write("\x1b")
    pane.until(lambda: b"[Request interrupted by user]" in pane.raw(), "interruption")
    partial = pane.find(isAbortedMidStream=True)[0]
    assert partial["message"]["stop_reason"] is None
    assert pane.find(interruptedMessageId=partial["message"]["id"])
    pane.quiet(0.2)
    assert pane.ends() == 0


def test_escape_in_a_tool_ends_the_tool(cli) -> None:
    pane = cli()
    pane.submit("[[tool:Bash:sleep 30]]")
    pane.until(lambda: pane.find(type="assistant"), "call")
    pane.write("\x1b")
    pane.until(lambda: b"interrupted by user for tool use" in pane.raw(), "interruption", 3)
    assert pane.find(toolDenialKind="user-rejected")


@pytest.mark.parametrize(
    ("text", "recorded", "wrapped"),
    [
        ("a\nb\n  c", "a\nb\n  c", False),
        ("a\nb\nc\nd", "a\nb\nc\nd", True),
        ("x" * 800, "x" * 800, False),
        ("x" * 801, "x" * 801, True),
        ("tail \\ ", "tail \\", False),
        ("a\tb", "a    b", False),
        ("end  \n\n", "end", False),
        ("\n/foo", "\n/foo", False),
        ("/tmp/foo bar", "/tmp/foo bar", False),
        ("/foo bar\n\n\n", "/foo bar\n\n\n", True),
        ("👩‍👩‍👧 漢字 é", "👩‍👩‍👧 漢字 é", False),
        ("z" * 100_000, "z" * 100_000, True),
    ],
)
def test_text_is_recorded_as_the_real_one_records_it(cli, text, recorded, wrapped) -> None:
    pane = cli()
    pane.paste(text)
    pane.quiet(0.1)
    pane.write("\r")
    pane.wait_end()
    content = pane.find(type="user")[0]["message"]["content"]
    if wrapped:
        tag = content.split('"')[1]
        recorded = f'\n\n<pasted_content id="{tag}">\n{recorded}\n</pasted_content id="{tag}">\n'
    assert content == recorded


def test_a_backslash_before_enter_makes_a_newline(cli) -> None:
    pane = cli()
    pane.submit("one\\")
    pane.quiet(0.2)
    assert pane.kinds() == []
    pane.submit("two")
    pane.wait_end()
    assert pane.find(type="user")[0]["message"]["content"] == "one\ntwo"


def test_an_unknown_command_loses_its_text(cli) -> None:
    pane = cli()
    pane.submit("/nosuch thing")
    pane.until(lambda: pane.find(subtype="informational"), "notice")
    pane.quiet(0.2)
    assert pane.find(type="user") == []


def test_bash_mode_runs_and_asks_the_model(cli) -> None:
    pane = cli()
    pane.submit("!echo bang")
    pane.wait_end()
    told = [r["message"]["content"] for r in pane.find(type="user")]
    assert told == [
        "<bash-input>echo bang</bash-input>",
        "<bash-stdout>bang</bash-stdout><bash-stderr></bash-stderr>",
    ]


def test_a_bang_typed_behind_a_letter_is_plain_text(cli) -> None:
    pane = cli()
    pane.paste("a!")
    pane.write("\x01\x04\x05")
    pane.submit("echo x\nb")
    pane.wait_end()
    assert pane.find(type="user")[0]["message"]["content"] == "!echo x\nb"


def test_clear_goes_on_in_a_new_file(cli) -> None:
    pane = cli()
    pane.submit("before")
    pane.wait_end()
    old = pane.session_id
    pane.submit("/clear")
    pane.until(lambda: pane.registry().get("sessionId") not in (None, old), "new id")
    pane.session_id = pane.registry()["sessionId"]
    pane.submit("after")
    pane.wait_end()
    assert pane.answers() == ["echo: after"]
    assert pane.find(promptSource="typed")[0]["turnPosition"]["promptIndex"] == 1


def test_compact_writes_a_boundary_and_a_summary(cli) -> None:
    pane = cli()
    pane.submit("before")
    pane.wait_end()
    pane.submit("/compact")
    pane.until(lambda: b"Compacted" in pane.raw(), "compaction")
    assert pane.find(subtype="compact_boundary")[0]["parentUuid"] is None
    assert pane.find(isCompactSummary=True)


@pytest.mark.parametrize(
    ("status", "word", "tries"),
    [(500, "server_error", 2), (429, "rate_limit", 2), (401, "authentication_failed", 2)],
)
def test_an_api_error_closes_the_turn_without_a_duration(cli, status, word, tries) -> None:
    pane = cli()
    pane.submit(f"[[error:{status}]]")
    pane.until(lambda: pane.find(isApiErrorMessage=True), "error")
    error = pane.find(isApiErrorMessage=True)[0]
    assert (error["apiErrorStatus"], error["error"], error["message"]["model"]) == (
        status,
        word,
        "<synthetic>",
    )
    assert len(pane.find(type="api-request")) == tries
    assert pane.ends() == 0


def test_a_retried_error_leaves_no_trace(cli) -> None:
    pane = cli()
    pane.submit("[[error:529:1]]fine")
    pane.wait_end()
    assert not pane.find(isApiErrorMessage=True)


def test_resume_goes_on_in_the_same_file_and_a_used_id_is_refused(cli) -> None:
    pane = cli()
    pane.submit("one")
    pane.wait_end()
    pane.submit("/exit")
    assert pane.exit_code() == 0
    again = cli(ready=False, session_id=pane.session_id)
    assert again.exit_code() == 1
    assert b"already in use" in again.output
    resumed = cli(resume=pane.session_id)
    resumed.submit("two")
    resumed.wait_end(2)
    assert [r["turnPosition"]["promptIndex"] for r in resumed.find(promptSource="typed")] == [1, 2]


def test_a_bad_session_id_is_refused(cli) -> None:
    pane = cli(ready=False, session_id="nonsense")
    assert pane.exit_code() == 1
    assert b"Invalid session ID" in pane.output


def test_the_plain_dialect_has_a_record_of_its_own(cli, tmp_path) -> None:
    record = tmp_path / "plain.jsonl"
    pane = cli("--dialect", "plain", "--record", str(record), ready=False)
    pane.until(lambda: "❯" in pane.screen(), "prompt")
    pane.submit("hello")
    pane.until(lambda: record.exists() and b'"end"' in record.read_bytes(), "end")
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["prompt", "answer", "end"]
    assert (lines[-1]["status"], lines[-1]["text"], lines[-1]["turn"]) == ("completed", "echo: hello", 1)


@pytest.mark.parametrize(
    "prompt",
    [
        "plain",
        "[[sleep:1]]x",
        "[[say:a]][[pause:2]][[say:b]]",
        '[[tool:Bash:ls]][[also:Read:{"p": 1}]][[say:end]]',
        "[[think:t]][[tool:Bash:echo :x:]]",
        "[[say:a]][[stop:max_tokens]][[size:25]]",
        "[[half:an emoji ]]",
        "[[error:429:2:1]][[chunk:3:0.5]][[cut:1]][[hang:2]]q",
        "[[tool:Read:broken]]",
        "x [[nothing:here]] y",
    ],
)  # fmt: skip
def test_server_and_cli_read_the_same_language(prompt) -> None:
    import importlib.util

    import msgspec

    spec = importlib.util.spec_from_file_location("scripted_cli_file", SCRIPTED_CLI)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own = msgspec.convert(module.inline_steps(prompt), type=type(inline_steps(prompt)) and tuple[_step(), ...])
    assert own == inline_steps(prompt)
    assert module.echo("x" * 3000) == echo("x" * 3000)


def _step():
    from lastword.runtime.testing import Step

    return Step
