"""A rival's side of ``bench/rival_turns.py``; run with the rival's own interpreter, stdlib only.

A prompt is one line of JSON on stdin, its answer one on stdout: when it was given and when the end was in hand (Unix
seconds), and the answer. The first line out says that the rival is ready, and its version. What a rival prints by itself
goes to stderr.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from importlib import metadata
from typing import Any, TextIO

CLI, CWD = (sys.argv[1], sys.argv[2]) if len(sys.argv) > 2 else ("", "")
OUT: TextIO = sys.stderr
Told = str | tuple[str, float]
"""The answer; or the answer and when it was in hand, where the call that gave it returns later."""


def begin() -> None:
    """Before the rival is imported: stdout is for our lines only."""
    global OUT  # noqa: PLW0603 - one stdout of one process
    OUT = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)


def ready(package: str) -> None:
    _say({"ready": metadata.version(package)})


def serve(ask: Callable[[str], Told]) -> None:
    for line in sys.stdin:
        sent = time.time()
        _answer(sent, ask(json.loads(line)["prompt"]))


async def serve_async(ask: Callable[[str], Awaitable[Told]]) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        sent = time.time()
        _answer(sent, await ask(json.loads(line)["prompt"]))


def _answer(sent: float, told: Told) -> None:
    now = time.time()
    answer, at = told if isinstance(told, tuple) else (told, now)
    _say({"sent": sent, "told": at, "answer": answer})


def _say(line: dict[str, Any]) -> None:
    OUT.write(json.dumps(line) + "\n")
    OUT.flush()
