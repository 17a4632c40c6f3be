"""Run every bench, print its tables as markdown. With ``--json FILE``, write them with the machine's description too.

Each bench is a process of its own with a bound in time: one that hangs is ended with all that it started, and the others
go on. The file is written anew after each, so a run that is broken off leaves what it had. The stress runs are not here
(`make stress`). Figures depend on the machine and on its neighbours: compare ratios, and look at the load that is printed.

Usage: python bench/all.py [--only NAME,NAME] [--quick] [--json bench-results.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from _report import QUICK, SKIPPED, TABLES_ENV

HERE = Path(__file__).resolve().parent
BENCHES: dict[str, tuple[float, float]] = {
    "completion_latency": (150, 420),
    "panes": (120, 300),
    "turns_per_second": (90, 240),
    "actors": (240, 900),
    "journal": (60, 120),
    "wake_ups": (60, 120),
    "tmux_typing": (60, 120),
    "transcript_tailing": (60, 300),
    "restart": (120, 300),
    "idle_sessions": (90, 180),
    "fairness": (90, 240),
    "tracing_cost": (120, 720),
    "top": (60, 180),
    "provider_latency": (300, 900),
    "rival_turns": (900, 2400),
}
"""In this order; the seconds that each may take, quick and whole. The last two download or install once."""
PACKAGES = ("pykka", "msgspec", "watchdog", "libtmux", "lastword")
END_S = 30.0
"""What a bench that took too long has for closing what it opened."""


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


def run(script: Path, bound_s: float, end_s: float = END_S) -> dict[str, Any]:
    """One bench in a process of its own, for ``bound_s`` seconds at most; its output is shown as it comes."""
    before, began = load(), time.monotonic()
    print(f"\n## {script.stem}\n", flush=True)
    lines: list[str] = []
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as tables:
        process = subprocess.Popen(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, TABLES_ENV: tables.name},
            start_new_session=True,
        )

        def show_output() -> None:
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    lines.append(line)
                    sys.stdout.write(line)
                    sys.stdout.flush()

        reader = threading.Thread(target=show_output, daemon=True)
        reader.start()
        too_long = False
        try:
            process.wait(bound_s)
        except subprocess.TimeoutExpired:
            too_long = True
        finally:  # broken off too: what it started outside of its group, a tmux server, it must end itself
            _end_group(process, end_s)
        reader.join(end_s)  # whoever left the group may hold its end of the pipe
        found = [json.loads(line) for line in tables]
    status = process.returncode
    fault = f"took more than {bound_s:g} s" if too_long else f"ended with status {status}" if status else ""
    fault = fault or ("" if found else "printed no table")
    if fault:
        print(f"**{script.stem} {fault}**", flush=True)
    return {
        "bench": script.stem,
        "status": status,
        "outcome": fault or _outcome(found),
        "failed": bool(fault),
        "tables": found,
        "text": [] if found else lines,
        "load_before": before,
        "load_after": load(),
        "took_s": round(time.monotonic() - began, 1),
    }


def _outcome(tables: list[dict[str, Any]]) -> str:
    skipped = sum(table["title"].endswith(SKIPPED) for table in tables)
    if skipped == len(tables):
        return "skipped"
    return f"measured, {skipped} skipped" if skipped else "measured"


def _end_group(process: subprocess.Popen[str], end_s: float) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(end_s)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def summary(results: list[dict[str, Any]]) -> str:
    """A table of the benches themselves."""
    lines = ["\n## What was run\n", "| bench | outcome | tables | s | load before, after |", "|---|---|---|---|---|"]
    for each in results:
        loads = f"{each['load_before'][0]}, {each['load_after'][0]}"
        lines.append(f"| {each['bench']} | {each['outcome']} | {len(each['tables'])} | {each['took_s']} | {loads} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help=f"with commas, of {', '.join(BENCHES)}")
    parser.add_argument("--quick", action="store_true", help="smaller counts (or LASTWORD_BENCH_QUICK=1)")
    parser.add_argument("--json", default="", metavar="FILE", help="write everything there as well")
    args = parser.parse_args()
    wanted = args.only.split(",") if args.only else list(BENCHES)
    if unknown := set(wanted) - set(BENCHES):
        parser.error(f"no such bench: {', '.join(sorted(unknown))}")
    if args.json:
        try:
            Path(args.json).open("a").close()
        except OSError as error:
            parser.error(f"{args.json} cannot be written: {error.strerror}")
    about = machine()
    print("# Benches" + (", a quick look" if QUICK else "") + "\n")
    for key, value in about.items():
        print(f"- {key}: {value if not isinstance(value, dict) else ', '.join(f'{k} {v}' for k, v in value.items())}")
    print(f"- load average before: {load()}", flush=True)
    described: dict[str, Any] = {"machine": about, "quick": QUICK, "measured_at": time.time(), "results": []}
    try:
        for name in wanted:
            described["results"].append(run(HERE / f"{name}.py", BENCHES[name][0 if QUICK else 1]))
            if args.json:
                Path(args.json).write_text(json.dumps(described, indent=1, allow_nan=False) + "\n")
    finally:
        print(summary(described["results"]), flush=True)
    return int(any(result["failed"] for result in described["results"]))


if __name__ == "__main__":
    sys.exit(main())
