"""Fail where a required proof is missing, skipped or red: ``required_proofs.py REPORT.xml...``

The list is tools/required_proofs.txt. A suite that is green because it skipped what matters proves nothing.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET  # our own reports
from fnmatch import fnmatchcase
from pathlib import Path

LIST = Path(__file__).with_suffix(".txt")
BAD = ("skipped", "failure", "error")


def patterns(path: Path = LIST) -> list[str]:
    """The list, without comments."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def name_of(case: ET.Element) -> str:
    """``tests/live/test_x.py::test_y[1]`` from pytest's class name ``tests.live.test_x`` and test name."""
    parts = case.get("classname", "").split(".")
    file = max((at for at, part in enumerate(parts) if part.startswith("test_")), default=len(parts) - 1)
    inside = [*parts[file + 1 :], case.get("name", "")]
    return f"{'/'.join(parts[: file + 1])}.py::{'::'.join(inside)}"


def outcomes(reports: list[Path]) -> dict[str, str]:
    """Test -> ``passed``, or what it was instead; where a test is in two reports the better one counts."""
    found: dict[str, str] = {}
    for report in reports:
        for case in ET.parse(report).iter("testcase"):  # noqa: S314
            outcome = next((child.tag for child in case if child.tag in BAD), "passed")
            name = name_of(case)
            if found.get(name) != "passed":
                found[name] = outcome
    return found


def faults(wanted: list[str], found: dict[str, str]) -> list[str]:
    """What is wrong, a line each."""
    told: list[str] = []
    for pattern in wanted:
        matched = [name for name in found if fnmatchcase(name, pattern.replace("[", "[[]"))]
        if not matched:
            told.append(f"missing: no test is called {pattern}")
        told += [f"{found[name]}: {name} (required by {pattern})" for name in matched if found[name] != "passed"]
    return told


def main() -> int:
    """Compare the list with the reports."""
    reports = [Path(argument) for argument in sys.argv[1:]]
    if not reports:
        print(__doc__)
        return 2
    wanted, found = patterns(), outcomes(reports)
    told = faults(wanted, found)
    for line in told:
        print(line)
    print(f"{len(wanted)} required proofs over {len(found)} tests: {'FAILED' if told else 'all there'}")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
