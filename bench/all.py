"""Run every bench, print its tables as markdown. With ``--json FILE``, write them with the machine's description too.

Figures depend on the machine and on its neighbours: compare ratios, and look at the load that is printed.
Usage: python bench/all.py [--only NAME,NAME] [--quick] [--json bench-results.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from _report import QUICK, TABLES_ENV

HERE = Path(__file__).resolve().parent
BENCH_MAX_S = 60.0 if QUICK else 400.0
PACKAGES = ("pykka", "msgspec", "watchdog", "libtmux", "lastword")


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    cpu = ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        cpu = names[0] if names else ""
    return {
        "cpu": cpu or platform.processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "tmux": _tmux_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _tmux_version() -> str:
    try:
        return subprocess.run(["tmux", "-V"], capture_output=True, text=True, check=False, timeout=5.0).stdout.strip()
    except OSError:
        return ""


def load() -> list[float]:
    """Of the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def run(script: Path) -> dict[str, Any]:
    """One bench in a process of its own; its output is shown as it comes."""
    before, began = load(), time.monotonic()
    print(f"\n## {script.stem}\n", flush=True)
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as tables:
        fenced = "show(\n" not in script.read_text()  # those that print plain lines
        if fenced:
            print("```", flush=True)
        process = subprocess.Popen(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, TABLES_ENV: tables.name},
        )
        assert process.stdout is not None
        too_long = threading.Timer(BENCH_MAX_S, process.kill)
        too_long.daemon = True
        too_long.start()
        lines = []
        for line in process.stdout:
            lines.append(line)
            sys.stdout.write(line)
            sys.stdout.flush()
        status = process.wait()
        too_long.cancel()
        if fenced:
            print("```", flush=True)
        found = [json.loads(line) for line in tables]
    if status:
        print(f"**{script.stem} ended with status {status}**", flush=True)
    return {
        "bench": script.stem,
        "status": status,
        "tables": found,
        "text": [] if found else lines,
        "load_before": before,
        "load_after": load(),
        "took_s": round(time.monotonic() - began, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="names of benches, with commas")
    parser.add_argument("--quick", action="store_true", help="smaller counts (or LASTWORD_BENCH_QUICK=1)")
    parser.add_argument("--json", default="", metavar="FILE", help="write everything there as well")
    args = parser.parse_args()
    scripts = sorted(path for path in HERE.glob("*.py") if path.stem != "all" and not path.stem.startswith("_"))
    wanted = set(args.only.split(",")) if args.only else {path.stem for path in scripts}
    about = machine()
    print("# Benches" + (", a quick look" if QUICK else "") + "\n")
    for key, value in about.items():
        print(f"- {key}: {value if not isinstance(value, dict) else ', '.join(f'{k} {v}' for k, v in value.items())}")
    print(f"- load average before: {load()}", flush=True)
    results = [run(script) for script in scripts if script.stem in wanted]
    if args.json:
        described = {"machine": about, "quick": QUICK, "measured_at": time.time(), "results": results}
        Path(args.json).write_text(json.dumps(described, indent=1) + "\n")
    return 1 if any(result["status"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
