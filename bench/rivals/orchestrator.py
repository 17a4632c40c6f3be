"""cli-agent-orchestrator: its server, a terminal that is kept, one ``POST /terminals/run-step`` a turn."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import _turns

START_S = 60.0
STEP_S = 120.0
PROFILE = "---\nname: bench\ndescription: answers\npermissionMode: bypassPermissions\n---\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    store = Path.home() / ".aws" / "cli-agent-orchestrator" / "agent-store"
    store.mkdir(parents=True, exist_ok=True)
    (store / "bench.md").write_text(PROFILE)
    base = f"http://127.0.0.1:{(port := free_port())}"
    program = Path(sys.executable).parent / "cao-server"
    server = subprocess.Popen([program, "--port", str(port)], stdout=2, env={**os.environ, "CAO_API_PORT": str(port)})
    terminal = ""

    def call(path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(base + path, data, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=STEP_S) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.code} {error.read().decode()[:200]}") from error

    def ask(prompt: str) -> str:
        nonlocal terminal
        step = {"provider": "claude_code", "agent": "bench", "prompt": prompt, "teardown": False}
        step |= {"reuse_terminal_id": terminal} if terminal else {"working_directory": _turns.CWD}
        done = call("/terminals/run-step", step)
        terminal = done["terminal_id"]
        return str(done["last_message"])

    try:
        end = time.monotonic() + START_S
        while True:
            try:
                call("/health")
                break
            except (OSError, RuntimeError):
                if time.monotonic() > end or server.poll() is not None:
                    raise
                time.sleep(0.2)
        _turns.ready("cli-agent-orchestrator")
        _turns.serve(ask)
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()


if __name__ == "__main__":
    _turns.begin()
    main()
