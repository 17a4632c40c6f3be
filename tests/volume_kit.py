"""Very long transcripts of realistic records, and a host in a process of its own that takes one over and is measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

MIB = 1024 * 1024
NATIVE = "00000000-0000-4000-8000-000000000001"
OLD = "2020-01-01T00:00:00.000Z"
HOST = Path(__file__).with_name("volume_host.py")
REPOSITORY = Path(__file__).parent.parent
TOOL_OUTPUT = "".join(
    f"{number:5d}\tdef function_{number}(argument): return argument + {number}\n" for number in range(400)
)
"""About 24 kB: what a CLI's file reading tool puts into its record."""
_MARK = "0badc0de-0000-4000-8000-"


def turn_lines(*, prompt: str, answer: str, at: str, tools: int = 4, native: str = NATIVE) -> list[dict[str, Any]]:
    """One turn with its tool calls; the ids are those of the template."""
    ids = iter(f"{_MARK}{number:012d}" for number in range(100))
    common = {"sessionId": native, "timestamp": at, "version": "2.1.332", "isSidechain": False, "cwd": "/w"}
    first = next(ids)
    lines = [
        {
            "type": "user",
            "uuid": first,
            "parentUuid": None,
            "origin": {"kind": "human"},
            "promptSource": "typed",
            "message": {"role": "user", "content": prompt},
        }
    ]
    parent = first
    for number in range(tools):
        call, result = next(ids), next(ids)
        block = {"type": "tool_use", "id": f"toolu_{call}", "name": "Read", "input": {"file_path": f"/w/{number}.py"}}
        message = {"id": f"msg_{call}", "model": "m", "stop_reason": "tool_use", "content": [block]}
        lines.append({"type": "assistant", "uuid": call, "parentUuid": parent, "message": message})
        done = {"type": "tool_result", "tool_use_id": f"toolu_{call}", "content": TOOL_OUTPUT}
        lines.append(
            {"type": "user", "uuid": result, "parentUuid": call, "message": {"role": "user", "content": [done]}}
        )
        parent = result
    said, end = next(ids), next(ids)
    message = {
        "id": f"msg_{said}",
        "model": "m",
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": answer}],
    }
    lines.append({"type": "assistant", "uuid": said, "parentUuid": parent, "message": message})
    lines.append({"type": "system", "subtype": "turn_duration", "durationMs": 5, "uuid": end, "parentUuid": said})
    return [{**line, **common} for line in lines]


def encoded(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def write_transcript(path: Path, size: int, *, long_line: int = 0, last_at: str = OLD) -> int:
    """A transcript of about that size, whose last turn is ``native_turn()``; the offset at which that one begins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    template = encoded(turn_lines(prompt="Look at the files", answer="They are fine. " * 20, at=OLD))
    pieces = template.split(_MARK.encode())
    with path.open("wb", buffering=8 * MIB) as file:
        number = written = 0
        while written < size - len(template):
            number += 1
            written += file.write(f"{number:08x}-0000-4000-8000-".encode().join(pieces))
        if long_line:
            blob = {"type": "user", "uuid": str(uuid.uuid4()), "sessionId": NATIVE, "message": {"content": "X"}}
            head, tail = json.dumps(blob).encode().split(b"X")
            file.write(head)
            for _ in range(long_line // MIB):
                file.write(b"x" * MIB)
            file.write(tail + b"\n")
        offset = file.tell()
        file.write(encoded(turn_lines(prompt="the last prompt", answer="the last answer", at=last_at)))
    return offset


def native_turn() -> str:
    return f"{_MARK}{0:012d}"


def attach(folder: Path, case: str, *, offset: int, timeout_s: float = 300) -> dict[str, Any]:
    """Run a host on that folder in a process of its own; what it measured."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY / "tests")])}
    done = subprocess.run(
        [sys.executable, str(HOST), str(folder), case, str(offset)],
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured
