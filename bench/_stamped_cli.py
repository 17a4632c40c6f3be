"""The scripted CLI with a clock in it: when bytes came to its terminal, and when it wrote its records.

Run in a pane in the place of the scripted CLI. Each stamp is one line of ``$LASTWORD_BENCH_STAMPS``: the machine's
monotonic clock, what happened, and the mark ``<<N>>`` of the prompt that it is about. ``in``: the prompt was read off
the terminal; ``enter``: so was the Enter; ``prompt``, ``end``: just before that record is written.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src" / "lastword" / "runtime" / "testing"))
import scripted_cli

MARK = re.compile(rb"<<(\d+)>>")
_STAMPS = os.open(os.environ["LASTWORD_BENCH_STAMPS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
_read = os.read
_flush = scripted_cli.Out.flush
_marks = {"typed": "", "running": ""}


def stamp(what: str, mark: str, at: float) -> None:
    os.write(_STAMPS, f"{at!r} {what} {mark}\n".encode())


def read(fd: int, size: int) -> bytes:
    data = _read(fd, size)
    at = time.perf_counter()
    if fd == 0 and (found := MARK.search(data)):
        _marks["typed"] = found[1].decode()
        stamp("in", _marks["typed"], at)
    if fd == 0 and b"\r" in data:
        stamp("enter", _marks["typed"], at)
    return data


def flush(self: scripted_cli.Out, *, everything: bool = False) -> None:
    before, at = list(self.waiting), time.perf_counter()
    _flush(self, everything=everything)
    for _, line in before[: len(before) - len(self.waiting)]:
        if b'"promptSource"' in line and (found := MARK.search(line)):
            _marks["running"] = found[1].decode()
            stamp("prompt", _marks["running"], at)
        if b'"turn_duration"' in line:
            stamp("end", _marks["running"], at)


scripted_cli.os.read = read
scripted_cli.Out.flush = flush  # type: ignore[method-assign]
sys.exit(scripted_cli.main(sys.argv[1:]))
