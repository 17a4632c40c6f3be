"""Each fault shows the records, the screen or the death that it is documented with."""

import signal
import time

import pytest


def fault(word: str) -> tuple[str, str]:
    return ("--fault", word)


def test_what_is_typed_before_it_reads_is_lost(cli) -> None:
    pane = cli(*fault("slow_start=0.8"), *fault("paint_early"), ready=False)
    pane.until(lambda: "? for shortcuts" in pane.screen(), "painted prompt")
    assert pane.registry() == {}
    pane.submit("too early")
    pane.ready()
    pane.quiet(0.3)
    assert pane.kinds() == []
    assert "too early" not in pane.screen()


def test_the_first_enters_are_lost_and_the_text_stays(cli) -> None:
    pane = cli(*fault("enter_drop=2"))
    pane.submit("hello")
    for _ in range(2):
        pane.quiet(0.15)
        assert pane.kinds() == []
        assert "hello" in pane.box()
        pane.write("\r")
    pane.wait_end()
    assert len(pane.find(type="user")) == 1


def test_an_enter_soon_after_a_paste_is_lost(cli) -> None:
    pane = cli(*fault("enter_swallow_ms=300"))
    pane.submit("hello")
    pane.quiet(0.4)
    assert pane.kinds() == []
    pane.write("\r")
    pane.wait_end()


def test_an_enter_soon_after_a_paste_is_a_newline(cli) -> None:
    pane = cli(*fault("enter_newline_ms=300"))
    pane.submit("hello")
    pane.quiet(0.4)
    pane.write("\r")
    pane.wait_end()
    assert pane.find(type="user")[0]["message"]["content"] == "hello"


def test_the_first_paste_is_lost(cli) -> None:
    pane = cli(*fault("paste_drop=1"))
    pane.paste("gone")
    pane.quiet(0.1)
    assert "gone" not in pane.box()
    pane.submit("kept")
    pane.wait_end()
    assert pane.find(type="user")[0]["message"]["content"] == "kept"


@pytest.mark.parametrize("kind", ["trust", "api_key", "update"])
def test_a_startup_dialog_defaults_to_the_way_out(cli, kind) -> None:
    pane = cli(*fault(f"startup_dialog={kind}"), ready=False)
    pane.until(lambda: "❯" in pane.screen(), "dialog")
    pane.paste("lost")
    pane.write("\r")
    assert pane.exit_code() == 1


def test_startup_dialogs_can_be_answered_in_turn(cli) -> None:
    pane = cli(*fault("startup_dialog=trust,api_key"), ready=False)
    pane.until(lambda: "trust this folder" in pane.screen(), "trust")
    assert pane.registry() == {}
    pane.write("2")
    pane.quiet(0.1)
    assert "trust this folder" in pane.screen()
    pane.write("\x1b[B\r")
    pane.until(lambda: "API key" in pane.screen(), "api key")
    pane.write("\x1b[A\r")
    pane.ready()


def test_it_looks_idle_all_turn(cli) -> None:
    pane = cli()
    pane.submit("[[fault:idle_look]][[sleep:0.8]]x")
    pane.until(lambda: pane.registry()["status"] == "busy", "busy")
    pane.quiet(0.2)
    assert "? for shortcuts" in pane.screen()
    assert "esc to interrupt" not in pane.screen()
    pane.wait_end()


def test_a_repaint_storm_and_a_frozen_screen(cli) -> None:
    pane = cli()
    for word, few, many in (("repaint=100", 20, 10_000), ("frozen", -1, 3)):
        before = pane.output.count(b"\x1b[?25l\x1b[H")
        ends = pane.ends()
        pane.submit(f"[[fault:{word}]][[sleep:0.6]]x")
        pane.until(lambda ends=ends: pane.ends() > ends, "end")
        assert few < pane.output.count(b"\x1b[?25l\x1b[H") - before - (0 if few > 0 else 2) < many


def test_an_answer_quotes_the_screen(cli) -> None:
    pane = cli()
    pane.submit("[[fault:quote_ui]]x")
    pane.wait_end()
    assert "❯" in pane.answers()[0]
    assert "esc to interrupt" in pane.answers()[0]


def test_terminal_records_come_twice_and_late(cli) -> None:
    pane = cli()
    pane.submit("[[fault:dup_end=2]][[fault:late_dup=0.5]]x")
    pane.wait_end(3)
    assert pane.ends() == 3
    pane.wait_end(4)


def test_a_terminal_record_comes_in_pieces_and_whole_in_the_end(cli) -> None:
    pane = cli()
    pane.submit("[[fault:torn=4:120]][[say:größe 漢字]]")
    pane.until(lambda: pane.raw() and not pane.raw().endswith(b"\n"), "a torn line")
    pane.wait_end()
    assert pane.answers() == ["größe 漢字"]


def test_a_turn_without_its_closing_record(cli) -> None:
    pane = cli()
    pane.submit("[[fault:no_turn_duration]]x")
    pane.until(pane.answers, "answer")
    pane.until(lambda: pane.registry()["status"] == "idle", "idle")
    pane.quiet(0.3)
    assert pane.ends() == 0


def test_the_registry_stays_busy(cli) -> None:
    pane = cli()
    pane.submit("[[fault:registry_busy]]x")
    pane.wait_end()
    pane.quiet(0.3)
    assert pane.registry()["status"] == "busy"


def test_the_registry_is_missing_or_stale(cli) -> None:
    missing = cli(*fault("no_registry"), ready=False)
    missing.until(lambda: "❯" in missing.screen(), "prompt")
    missing.submit("x")
    missing.wait_end()
    assert missing.registry() == {}
    stale = cli(*fault("registry_stale"))
    stale.submit("[[sleep:0.5]]x")
    stale.until(lambda: stale.find(type="user"), "prompt")
    assert stale.registry()["status"] == "idle"
    stale.wait_end()


def test_the_record_is_later_than_screen_and_registry(cli) -> None:
    pane = cli()
    pane.submit("[[fault:record_delay=0.8]]x")
    pane.until(lambda: pane.find(type="user"), "prompt")
    pane.until(lambda: pane.registry()["status"] == "idle", "idle")
    assert pane.answers() == []
    pane.wait_end()


def test_the_closing_record_is_later_than_the_answer(cli) -> None:
    pane = cli()
    pane.submit("[[fault:end_delay=0.6]]x")
    pane.until(pane.answers, "answer")
    assert pane.ends() == 0
    pane.wait_end()


def test_a_turn_that_is_over_on_the_screen_only(cli) -> None:
    pane = cli()
    pane.submit("[[fault:no_record]]x")
    pane.until(lambda: "echo:" in pane.screen(), "answer on the screen")
    pane.quiet(0.4)
    assert pane.kinds() == ["user"]


def test_a_stop_hook_sends_the_answer_back(cli) -> None:
    pane = cli()
    pane.submit("[[fault:stop_hook_veto=1]][[say:first]]")
    pane.wait_end()
    wanted = ["user", "assistant", "user", "system/stop_hook_summary", "assistant", "system/turn_duration"]
    assert pane.kinds() == wanted
    assert pane.answers() == ["first", "after the veto: first"]


def test_a_subagent_and_its_notification(cli) -> None:
    pane = cli()
    pane.submit('[[tool:Agent:{"description":"d","prompt":"p"}]][[say:parent]]')
    pane.wait_end(2)
    assert pane.find(subtype="turn_duration")[0]["pendingBackgroundAgentCount"] == 1
    notified = next(r for r in pane.find(type="user") if r.get("turnOrigin") == "task_notification")
    assert notified["origin"]["kind"] == "task-notification"
    files = list(pane.path.with_suffix("").glob("subagents/agent-*.jsonl"))
    assert len(files) == 1


def test_a_background_task_starts_a_turn(cli) -> None:
    pane = cli()
    pane.submit("[[fault:task_notification=0.3]]x")
    pane.wait_end(2)
    assert "<task-notification>" in pane.find(type="user")[-1]["message"]["content"]


@pytest.mark.parametrize(("place", "kinds"), [("before", ["user"]), ("mid", ["user"]), ("after", None)])
def test_it_dies_by_signal_at_a_place(cli, place, kinds) -> None:
    pane = cli()
    pane.submit(f"[[fault:crash={place}]]x")
    assert pane.exit_code() == -signal.SIGKILL
    assert pane.kinds() == (kinds or ["user", "assistant", "system/turn_duration"])
    assert pane.registry(), "a killed CLI leaves its registry file"


def test_it_dies_with_a_code_in_a_tool(cli) -> None:
    pane = cli()
    pane.submit("[[fault:crash=tool:7]][[tool:Bash:echo x]]")
    assert pane.exit_code() == 7
    assert pane.kinds() == ["user", "assistant"]


def test_it_dies_at_the_start_with_a_message(cli) -> None:
    pane = cli(*fault("exit_at_start=3:no licence"), ready=False)
    assert pane.exit_code() == 3
    pane.quiet(0.05)
    assert b"no licence" in pane.output


def test_huge_and_unknown_lines_come_before_the_answer(cli) -> None:
    pane = cli()
    pane.submit("[[fault:huge_line=3000000]][[fault:unknown_records=2]]x")
    pane.wait_end()
    assert max(map(len, pane.raw().split(b"\n"))) > 3_000_000
    assert len(pane.find(type="record-of-the-future")) == 2
    assert pane.answers() != []


def test_a_queued_message_is_dropped_silently(cli) -> None:
    pane = cli()
    pane.submit("[[fault:queue_drop]][[sleep:0.6]]x")
    pane.until(lambda: pane.registry()["status"] == "busy", "busy")
    pane.submit("vanishes")
    pane.wait_end()
    pane.quiet(0.3)
    assert pane.find(operation="remove")[0].get("reason") is None
    assert "queue-operation/dequeue" not in pane.kinds()
    assert len(pane.find(type="user")) == 1


def test_an_interrupt_that_writes_nothing(cli) -> None:
    pane = cli()
    pane.submit("[[fault:interrupt_silent]][[chunk:5:0.05]][[size:500]]")
    pane.until(lambda: "01234" in pane.screen(), "words")
    pane.write("\x1b")
    pane.until(lambda: pane.registry()["status"] == "idle", "idle")
    pane.quiet(0.2)
    assert pane.kinds() == ["user"]


def test_escape_is_ignored(cli) -> None:
    pane = cli()
    pane.submit("[[fault:ignore_escape]][[sleep:0.5]]x")
    pane.until(lambda: pane.find(type="user"), "prompt")
    pane.write("\x1b")
    pane.wait_end()
    assert pane.answers() != []


def test_an_automatic_compaction_in_the_turn(cli) -> None:
    pane = cli()
    pane.submit("[[fault:auto_compact]]x")
    pane.wait_end()
    assert pane.find(subtype="compact_boundary")[0]["compactMetadata"]["trigger"] == "auto"
    assert pane.answers() != []


def test_sigterm_takes_the_registry_along(cli) -> None:
    import os

    pane = cli()
    pane.submit("[[sleep:9]]x")
    pane.until(lambda: pane.find(type="user"), "prompt")
    os.kill(pane.pid, signal.SIGTERM)
    started = time.monotonic()
    assert pane.exit_code() == 143
    assert time.monotonic() - started < 2
    assert pane.registry() == {}


def test_a_permission_dialog_opens_so_long_after_a_paste(cli) -> None:
    pane = cli()
    for window, least_s in (("150", 0.15), ("150-250", 0.15)):
        ends = pane.ends()
        pane.submit(f"[[fault:ask_after_paste={window}]][[fault:dialog_lead=40]][[tool:Bash:true]][[say:done]]")
        pane.until(lambda: pane.registry()["status"] == "busy", "busy")
        pane.quiet(0.2)
        assert pane.registry()["status"] == "busy"
        began = time.monotonic()
        pane.paste("a draft")
        pane.until(lambda: pane.registry()["status"] == "waiting", "dialog announced")
        assert least_s - 0.02 <= time.monotonic() - began
        assert "a draft" in pane.box()
        pane.until(lambda: "Do you want to proceed?" in pane.screen(), "dialog")
        pane.write("1")
        pane.until(lambda ends=ends: pane.ends() > ends, "end")
        pane.write("\x15" * 3)
