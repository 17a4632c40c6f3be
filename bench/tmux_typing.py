"""Typing into a pane: our control client against a tmux process per command. Prints p50 and p99 in milliseconds.

Run: python bench/tmux_typing.py [rounds]. "landed" rows end when a raw-mode program in the pane has written the bytes
to its log, the others when the answer is in our hands. The last row is the window that look_then_press leaves open:
from tmux's answer to the look until tmux has taken the press.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _report import QUICK, percentile, show

from lastword.transports.tmux import TmuxServer
from lastword.transports.tmux_pane import PaneHandle

TUI = """
import os, sys, tty
tty.setraw(0); os.write(1, b"\\x1b[?2004hready")
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while data := os.read(0, 65536): os.write(log, data)
"""


ROWS: list[list[object]] = []


def row(name: str, call: Callable[[], object], rounds: int) -> None:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e3)
    note(name, times)


def note(name: str, times: list[float]) -> None:
    ROWS.append([name, len(times), percentile(times, 0.5), percentile(times, 0.99)])


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 50 if QUICK else 300
    with tempfile.TemporaryDirectory() as folder:
        server = TmuxServer(f"lwb-{os.getpid()}")
        began = time.perf_counter()
        server.start()
        note("server started and attached", [(time.perf_counter() - began) * 1e3])
        try:
            measure(server, Path(folder), rounds)
        finally:
            server.stop(0.1)
    show(
        "Typing into a pane: a control client; with a dash: a tmux process a command, ms",
        ["what", "n", "p50", "p99"],
        ROWS,
    )


def measure(server: TmuxServer, folder: Path, rounds: int) -> None:
    got: queue.SimpleQueue[Any] = queue.SimpleQueue()
    log = folder / "log"
    server.open_pane("bench", [sys.executable, "-c", TUI, str(log)], cwd=str(folder), env={}, on_opened=got.put)
    pane = got.get(timeout=5)
    assert isinstance(pane, PaneHandle)
    while not log.exists():
        time.sleep(0.01)

    def wait(verb: Callable[..., None], *args: Any, **kwargs: Any) -> Any:
        if kwargs.pop("named", False):
            verb(*args, on_done=got.put)
        else:
            verb(*args, got.put)
        return got.get(timeout=10)

    def landed(call: Callable[[], object], size: int) -> Callable[[], None]:
        def run() -> None:
            before = log.stat().st_size
            call()
            while log.stat().st_size < before + size:
                pass

        return run

    def tmux(*words: str, data: bytes | None = None) -> None:
        subprocess.run(
            ["tmux", "-S", str(server.socket_path), *words], input=data, stdout=subprocess.DEVNULL, check=True
        )

    small, large, target = b"x" * 50, b"line of a prompt\n" * 6000, ("-t", pane.pane_id)
    large = large[:100_000]

    def paste_by_process(data: bytes) -> None:
        tmux("load-buffer", "-b", "b", "-", data=data)
        tmux("paste-buffer", "-p", "-r", "-d", "-b", "b", *target)

    few = max(20, rounds // 5)
    row("look", lambda: wait(pane.look), rounds)
    row(
        "- a process: capture-pane + display-message",
        lambda: (tmux("capture-pane", "-p", *target), tmux("display-message", "-p", *target, "#{pane_title}")),
        few,
    )
    row("paste 50 B", lambda: wait(pane.paste, small), rounds)
    row("paste 50 B, landed", landed(lambda: pane.paste(small, lambda _: None), 62), rounds)
    row("- a process: load-buffer + paste-buffer", lambda: paste_by_process(small), few)
    row("paste 100 kB", lambda: wait(pane.paste, large), few)
    row("paste 100 kB, landed", landed(lambda: pane.paste(large, lambda _: None), 100_012), few)
    row("- a process: load-buffer + paste-buffer", lambda: paste_by_process(large), few)
    row("press Enter", lambda: wait(pane.press, "Enter", named=True), rounds)
    row("press Enter, landed", landed(lambda: pane.press("Enter", on_done=lambda _: None), 1), rounds)
    row("- a process: send-keys", lambda: tmux("send-keys", *target, "Enter"), few)
    row("look_then_press", lambda: wait(pane.look_then_press, lambda _: True, "Enter", named=True), rounds)
    windows = []
    for _ in range(rounds):
        seen: list[float] = []
        wait(pane.look_then_press, lambda _, seen=seen: seen.append(time.perf_counter()) is None, "Enter", named=True)
        windows.append((time.perf_counter() - seen[0]) * 1e3)
    note("- check called -> press acknowledged", windows)


if __name__ == "__main__":
    main()
