"""The scripted CLI's dialogs list what the recorded ones of the real CLI list, in that order, with that default."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lastword.actors.core.adapter import DialogOpen, SignalView
from lastword.transports.providers.claude_code_screen import signals

RECORDED = Path(__file__).parent.parent / "fixtures/claude_code/2.1.332"


def recorded(name: str) -> DialogOpen:
    """What the adapter reads off the recorded screen."""
    facts = json.loads((RECORDED / f"{name}.json").read_text())
    if "screen" not in facts:  # the registry file as it was, the screen beside it
        facts = {"registry": facts, "screen": (RECORDED / f"{name}.txt").read_text().split("\n"), "pid": facts["pid"]}
    status = json.dumps(facts["registry"]).encode() if facts["registry"] else None
    dialog = signals(SignalView(screen=tuple(facts["screen"]), title="", status=status, pid=facts["pid"]))
    assert isinstance(dialog, DialogOpen)
    return dialog


def scripted(pane) -> DialogOpen:
    """What it reads off the scripted CLI's pane, once it is painted."""

    def seen() -> DialogOpen | None:
        entry = pane.registry()
        status = json.dumps(entry).encode() if entry else None
        signal = signals(
            SignalView(screen=tuple(pane.screen().split("\n")), title="", status=status, pid=entry.get("pid", 0))
        )
        return signal if isinstance(signal, DialogOpen) else None

    return pane.until(seen, "dialog")


@pytest.mark.contract("C25")
@pytest.mark.parametrize("kind", ["trust", "api_key"])
def test_a_scripted_startup_dialog_lists_what_the_recorded_one_lists(cli, kind) -> None:
    mine, real = scripted(cli("--fault", f"startup_dialog={kind}", ready=False)), recorded(f"dialogs/{kind}")
    assert (mine.kind, mine.options, mine.cursor) == (real.kind, real.options, real.cursor)


@pytest.mark.contract("C25")
def test_a_scripted_permission_dialog_begins_and_ends_as_the_recorded_one(cli) -> None:
    """What stands between varies in the real one, from command to command."""
    pane = cli()
    pane.submit("[[tool:Bash:touch probe.txt]]")
    mine, real = scripted(pane), recorded("screens/permission")
    assert (mine.kind, mine.cursor, mine.options[0], mine.options[-1]) == (
        real.kind,
        real.cursor,
        real.options[0],
        real.options[-1],
    )
