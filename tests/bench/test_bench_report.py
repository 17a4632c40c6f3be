"""What the benches print and write, and how a bench that hangs, fails or says nothing is told. No figure is judged."""

from __future__ import annotations

import importlib
import json
import os
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit_system import until

BENCH = Path(__file__).parents[2] / "bench"
OWN = ("_report", "all", "_rival_table", "rivals", "rivals._venv")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a module of bench/ by its name, and forgets it afterwards."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.delenv("LASTWORD_BENCH_TABLES", raising=False)
    yield importlib.import_module
    for name in OWN:
        sys.modules.pop(name, None)


def script(folder: Path, text: str) -> Path:
    path = folder / "made_up.py"
    path.write_text(f"import sys\nsys.path.insert(0, {str(BENCH)!r})\n" + textwrap.dedent(text))
    return path


def alive(pid: int) -> bool:
    """Running; a zombie is not, and may be left where nobody reaps."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_table_is_markdown_and_strict_json(
    bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = bench("_report")
    monkeypatch.setenv("LASTWORD_BENCH_TABLES", str(tmp_path / "tables"))
    report.show("One", ["what", "p50"], [["a|b", 1.234], ["none", float("nan")]], "A note.")
    report.skipped("a rival", "no such\npackage")
    printed = capsys.readouterr().out
    assert "| what | p50 |\n|---|---|\n| a\\|b | 1.23 |\n| none | - |\n" in printed
    first, second = (tmp_path / "tables").read_text().splitlines()
    strict = json.loads(first, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert strict == {"title": "One", "columns": ["what", "p50"], "rows": [["a|b", 1.234], ["none", None]], "note": "A note."}  # fmt: skip
    assert json.loads(second)["rows"] == [["a rival", "no such package"]]


@pytest.mark.parametrize(("share", "wanted"), [(0.5, 3.0), (0.99, 4.0), (1.0, 4.0), (0.0, 1.0)])
def test_a_percentile_is_one_of_the_values(bench: Any, share: float, wanted: float) -> None:
    assert bench("_report").percentile([4.0, 1.0, 3.0, 2.0], share) == wanted


def test_every_bench_is_run_by_make_bench_and_exists(bench: Any) -> None:
    there = {path.stem for path in BENCH.glob("[!_]*.py")} - {"all"}
    stress = {name for name in there if name.startswith("stress_")}
    assert set(bench("all").BENCHES) == there - stress


def test_a_bench_that_prints_tables_is_measured(bench: Any, tmp_path: Path) -> None:
    path = script(tmp_path, 'from _report import show\nshow("T", ["a"], [[1]])\nprint("and a word")')
    found = bench("all").run(path, 60)
    assert (found["outcome"], found["status"], found["text"]) == ("measured", 0, [])
    assert found["tables"] == [{"title": "T", "columns": ["a"], "rows": [[1]], "note": ""}]


def test_a_bench_that_only_says_why_it_measured_nothing_is_skipped(bench: Any, tmp_path: Path) -> None:
    words = 'from _report import show, skipped\nskipped("one", "not installed")\nskipped("two", "neither")\n'
    found = bench("all").run(script(tmp_path, words), 60)
    assert (found["outcome"], len(found["tables"])) == ("skipped", 2)
    found = bench("all").run(script(tmp_path, words + 'show("T", ["a"], [[1]])'), 60)
    assert (found["outcome"], len(found["tables"])) == ("measured, 2 skipped", 3)


def test_a_bench_without_a_table_is_told(bench: Any, tmp_path: Path) -> None:
    found = bench("all").run(script(tmp_path, 'print("only words")'), 60)
    assert (found["outcome"], found["text"]) == ("printed no table", ["only words\n"])


def test_a_bench_that_fails_is_told_with_the_tables_that_it_had(bench: Any, tmp_path: Path) -> None:
    path = script(tmp_path, 'from _report import show\nshow("T", ["a"], [[1]])\nsys.exit(3)')
    found = bench("all").run(path, 60)
    assert (found["outcome"], len(found["tables"])) == ("ended with status 3", 1)


def test_a_bench_that_hangs_is_ended_with_what_it_started(bench: Any, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    path = script(
        tmp_path,
        f"""
        import os, pathlib, subprocess, time
        from _report import show
        show("T", ["a"], [[1]])
        child = subprocess.Popen(["sleep", "600"])  # holds our stdout open
        try:
            pathlib.Path({str(pids)!r}).write_text(f"{{os.getpid()}} {{child.pid}}")
            time.sleep(600)
        finally:
            pathlib.Path({str(tmp_path / "closed")!r}).touch()
        """,
    )
    began = time.monotonic()
    found = bench("all").run(path, 8.0)
    assert time.monotonic() - began < 60
    assert (found["outcome"], len(found["tables"])) == ("took more than 8 s", 1)
    assert (tmp_path / "closed").exists(), "it had no time to close what it opened"
    left = [int(pid) for pid in pids.read_text().split()]
    until(lambda: not any(alive(pid) for pid in left))  # killed with its group; only its head is waited for


def test_a_bench_that_does_not_heed_the_end_is_killed(bench: Any, tmp_path: Path) -> None:
    path = script(tmp_path, "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)")
    found = bench("all").run(path, 4.0, end_s=0.5)
    assert (found["outcome"], found["status"]) == ("took more than 4 s", -9)


def test_the_summary_has_a_row_for_each(bench: Any) -> None:
    one = {
        "outcome": "measured",
        "tables": [{}, {}],
        "took_s": 1.5,
        "load_before": [0.1, 0, 0],
        "load_after": [0.2, 0, 0],
    }
    told = bench("all").summary([{"bench": "x", **one}, {"bench": "y", **one, "outcome": "printed no table"}])
    assert told.splitlines()[-2:] == [
        "| x | measured | 2 | 1.5 | 0.1, 0.2 |",
        "| y | printed no table | 2 | 1.5 | 0.1, 0.2 |",
    ]


def test_a_shim_without_an_interpreter_is_passed_over(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = bench("rivals._venv")
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert venv.interpreter((3, 11)) == (sys.executable, f"{sys.version_info.major}.{sys.version_info.minor}")
    with pytest.raises(venv.MissingError, match=r"it needs Python 3\.99"):
        venv.interpreter((3, 99))
