"""What a person asks of the CLI itself: ``/command`` and ``!shell``."""

from __future__ import annotations

import re

from .identity import new_uuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .app import App
    from .turn import Turn

COMMAND = re.compile(r" */([A-Za-z0-9:_-]*)(?:\s+(.*))?$", re.DOTALL)


def command(app: App, name: str, arguments: str) -> None:
    """A command of the CLI's own."""
    if name == "clear":
        app.session_id = new_uuid()
        app.recorder.reset()
        app.recorder.snapshot(new_uuid())
        app.recorder.local("clear", arguments, "")
        app.registry.put("idle")
        app.screen.history = app.screen.history[:4]
    elif name == "compact":
        prompt_id = new_uuid()
        app.registry.put("busy")
        app.recorder.header()
        app.recorder.compacted("manual", prompt_id)
        app.recorder.local("compact", arguments, "Compacted (ctrl+o to see full summary)", prompt_id=prompt_id)
        app.registry.put("idle")
    elif name in ("exit", "quit"):
        app.exit_code = 0
    elif name in ("cost", "help", "status", "config", "usage", "model"):
        app.screen.panel = name
    elif not name:
        app.recorder.header()
        app.recorder.local("", "", "Commands are in the form `/command [args]`")
    else:
        app.screen.history.append(f"  Unknown command: /{name}")
        app.recorder.inform(f"Unknown command: /{name}")
        if arguments:
            app.recorder.inform(f"Args from unknown skill: {arguments}")


def shell(app: App, turn: Turn, command_line: str) -> None:
    """A command that a person runs with ``!``."""
    import subprocess  # noqa: PLC0415 - costs start time

    done = subprocess.run(["/bin/bash", "-c", command_line], capture_output=True, check=False, cwd=app.cwd)
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    app.recorder.bash(turn, command_line, out.rstrip("\n"), err)
