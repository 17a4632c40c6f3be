#!/usr/bin/env python3
"""A terminal program that imitates a coding CLI, with the model inside it, and misbehaves on request.

Stdlib only: run it by path, with any Python from 3.9, in a real terminal. Its parts are in ``scripted/``, beside it.

    python3 scripted_cli.py [--dialect claude-code|plain] [--fault NAME[=ARG]]... [--script FILE] [options]

``claude-code`` imitates Claude Code 2.1.332 as an observer sees it: options (``--session-id --resume
--continue --permission-mode --model --settings --version``; unknown ones are ignored), transcript path and
record dialect, registry file ``~/.claude/sessions/<pid>.json``, screen, keys, dialogs, queue. Format facts
come from docs/providers/claude_code.md; ``tests/live/test_scripted_cli_drift.py`` holds it against the real
one.

``plain`` has the same screen and keys and a record of its own, one JSON object a line, at ``--record FILE``
(default ``$HOME/.plain/<session-id>.jsonl``): ``{"kind": K, "turn": N, "text": ...}`` where K is prompt,
answer, tool, tool_result, queued, joined or end; ``end`` has a ``status`` of completed, failed or cancelled.

**What it says** is read from the prompt: ``[[script:NAME]]`` plays a row of steps from ``--script FILE``
(or ``LASTWORD_SCRIPTED_SCRIPT``), else the inline directives of ``script.py`` (sleep, say, half, think, tool,
also, pause, chunk, size, stop, next, error, cut, hang), else ``echo: <prompt>``.

**Faults** come from ``--fault``, ``LASTWORD_SCRIPTED_FAULTS`` (separated by ``;``) or, for one turn,
``[[fault:NAME=ARG]]``.

start  : ``slow_start=S`` what is typed in the first S seconds is lost; ``paint_early`` with the ready
         screen already shown; ``startup_dialog=trust,api_key,update``; ``exit_at_start=CODE:MESSAGE``;
         ``no_registry``; ``registry_late=S``
input  : ``enter_swallow_ms=N`` Enter within N ms of the last text is lost; ``enter_drop=N`` the first N
         Enters are lost; ``enter_newline_ms=N`` Enter within N ms of the last text is a newline;
         ``paste_drop=N`` the first N pastes are lost; ``ignore_escape``; ``queue_drop`` a queued message is
         removed and never read
screen : ``idle_look`` looks ready all turn; ``repaint=HZ`` storm; ``frozen`` no repaint during a turn;
         ``quote_ui`` the answer quotes the prompt glyph and the busy footer; ``ask`` a permission dialog
         before every tool; ``ask_after_paste=MS`` the same, MS ms after a paste has landed during the turn
         (``MS-MS``: at a random time between the two); ``dialog_lead=MS`` from what the registry says to
         the dialog that is painted and takes the keys, default 450
record : ``dup_end=N`` the terminal record N times more; ``late_dup=S`` the same once more after S seconds;
         ``torn=PARTS:MS`` the terminal records in PARTS writes, cut inside characters too;
         ``no_turn_duration``; ``end_delay=S`` between answer and terminal record; ``record_delay=S`` screen
         and registry are done S seconds before answer and terminal record; ``no_record`` the screen is done
         and no terminal record ever comes; ``huge_line=BYTES``; ``unknown_records=N``; ``interrupt_silent``
         Escape ends the turn and writes nothing; ``auto_compact``; ``stop_hook_veto=N``;
         ``task_notification=S`` a self-started turn S seconds after the end; ``subagent=S`` the same by a
         sub-agent; ``companion`` with the isMeta line before it that the real one writes when the sub-agent
         used tools
registry: ``registry_busy`` stays busy for ever; ``registry_stale`` is never updated after the start
death  : ``crash=before|mid|tool|end|after[:CODE]`` ends there, with CODE or by SIGKILL
"""

# ruff: noqa: PTH100, PTH110, PTH120

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING or __package__:
    from lastword.runtime.testing.scripted.app import App
    from lastword.runtime.testing.scripted.faults import Faults
    from lastword.runtime.testing.scripted.identity import VERSION
    from lastword.runtime.testing.scripted.options import bind, parse
    from lastword.runtime.testing.scripted.record_file import Out
    from lastword.runtime.testing.scripted.steps import echo, inline_steps
    from lastword.runtime.testing.scripted.terminal import raw_terminal, restore_terminal
else:  # run by its path, perhaps by a runner that does not add its folder to where modules are looked for
    HERE = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, HERE)
    from scripted.app import App
    from scripted.faults import Faults
    from scripted.identity import VERSION
    from scripted.options import bind, parse
    from scripted.record_file import Out
    from scripted.steps import echo, inline_steps
    from scripted.terminal import raw_terminal, restore_terminal

    sys.path.remove(HERE)

__all__ = ["App", "Faults", "Out", "echo", "inline_steps", "main"]


def refuse(message: str, code: int = 1) -> int:
    """One line to the person, and out."""
    sys.stderr.write(message + "\n")
    return code


def main(argv: list[str]) -> int:
    """Run the program; returns its exit code."""
    options = parse(argv)
    if options["version"]:
        sys.stdout.write(f"{VERSION} (Claude Code)\n")
        return 0
    faults = Faults(options["faults"])
    if "exit_at_start" in faults:
        code, _, message = faults.text("exit_at_start").partition(":")
        return refuse(message or "scripted failure at start", int(code or 1))
    complaint = bind(options)
    if complaint:
        return refuse(complaint)
    app = App(options)
    exists = os.path.exists(app.recorder.out.path)
    if options["resume"]:
        if not exists:
            return refuse(f"No conversation found with session ID: {options['resume']}")
        app.recorder.adopt()
    elif exists and options["dialect"] == "claude-code":
        return refuse(f"Error: Session ID {app.session_id} is already in use.")

    def leave(signum: int, frame: object) -> None:
        del frame
        app.exit_code = 128 + signum

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
    signal.signal(signal.SIGWINCH, lambda *_: setattr(app.screen, "dirty", True))
    raw_terminal()
    try:
        exit_code = app.run()
    finally:
        restore_terminal()
        app.registry.remove()
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
