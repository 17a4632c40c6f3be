"""inotify runs out of instances or watches, or its queue runs over: turns end a little later, it is told, and it comes back."""

from __future__ import annotations

import json

import pytest

from faults.namespace_kit import run_inside

_LIMITS = r"""
import json, sys, time
from pathlib import Path
from faults.pane_host import PaneHost
from kit_system import until
limit = Path(f"/proc/sys/user/max_inotify_{sys.argv[1]}")
told = {}
with PaneHost() as host:
    first = host.session()
    assert host.run(first, "warm [[say:warm]]").answer == "warm"
    before = limit.read_text().strip()
    if sys.argv[1] == "instances":  # the source is made with the first watch: a new life of the host
        host.runtime.close()
    limit.write_text("0")
    if sys.argv[1] == "instances":
        host.open()
    elsewhere = host.kit.root / "elsewhere"  # its record stands in a folder that nobody watches yet
    elsewhere.mkdir()
    session = host.runtime.session("claude-code", cwd=elsewhere)
    began = time.monotonic()
    told["slow"] = host.run(session, "go [[say:slow]]").answer
    told["slow_s"] = time.monotonic() - began
    counts = host.runtime._system.dead_letters.counts
    told["word"] = [word for word in counts() if word.startswith("watch_")]
    limit.write_text(before)
    until(lambda: counts().get("watch_recovered"), within_s=10)
    wakes = host.runtime._edges.opened["tmux"].wakes
    told["source"] = wakes.stats.source
    swept = wakes.stats.swept
    began = time.monotonic()
    told["quick"] = host.run(session, "go [[say:quick]]").answer
    told["quick_s"] = time.monotonic() - began
    told["woken"] = wakes.stats.woken
    told["completions"] = [each.answer for each in host.completed(session, 2)]
print(json.dumps(told))
"""


@pytest.mark.tmux
@pytest.mark.contract("C02")
@pytest.mark.parametrize(("what", "word"), [("watches", "watch_limit"), ("instances", "watch_source_missing")])
def test_c02_without_inotify_the_slow_look_carries_the_turn_and_it_is_told(what, word):
    told = json.loads(run_inside(_LIMITS, what))
    assert (told["slow"], told["quick"]) == ("slow", "quick")
    assert told["completions"] == ["slow", "quick"]
    assert word in told["word"]
    assert told["slow_s"] < 12.0
    assert told["source"] == "inotify"
    assert told["woken"] > 0
    assert told["quick_s"] < 2.0
