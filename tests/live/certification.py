"""What the live suite has shown, as one table: provider, transport, version of the real CLI, and the rules of the contract
that were proved on it in this run. A rule with a test that failed or was skipped is not proved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import live_clis
import pytest

from lastword.runtime.testing.conformance import Report, table

MODULES = {
    "test_claude_code": ("claude-code", "tmux"),
    "test_claude_code_pane": ("claude-code", "tmux"),
    "test_codex": ("codex", "tmux"),
    "test_dialogs": ("claude-code", "tmux"),
    "test_pi_tui": ("pi", "tmux"),
    "test_restart": ("claude-code", "tmux"),
    "test_structured_claude_code": ("claude-code", "structured"),
    "test_structured_codex": ("codex", "structured"),
    "test_structured_pi": ("pi", "structured"),
}
MANY = {"test_acp": "structured"}
"""Of these the parameter ``host`` names the provider."""

Row = tuple[str, str]
REPORTS: list[Report] = []
"""Of the conformance kit, as its tests have put them here."""


def row_of(item: pytest.Item) -> Row | None:
    """Which provider over which transport a test is put to."""
    module = item.path.stem
    if module in MANY and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        return str(item.callspec.params["host"]), MANY[module]
    return MODULES.get(module)


class Certification:
    """Counts what ran; a pytest plugin."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self._rules: dict[str, set[str]] = {}
        self._outcomes: dict[str, str] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            row = row_of(item)
            if row is not None:
                self._rows[item.nodeid] = row
                self._rules[item.nodeid] = {str(mark.args[0]) for mark in item.iter_markers("contract")}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        worse = report.outcome != "passed"
        if report.nodeid in self._rows and (worse or report.when == "call"):
            self._outcomes.setdefault(report.nodeid, report.outcome)
            if worse:
                self._outcomes[report.nodeid] = report.outcome

    def lines(self) -> list[str]:
        """The table."""
        rows = sorted({self._rows[nodeid] for nodeid in self._outcomes})
        if not rows:
            return []
        cells: list[Sequence[str]] = [("provider", "transport", "version", "CLI", "passed", "rules proved")]
        for row in rows:
            outcomes = {nodeid: how for nodeid, how in self._outcomes.items() if self._rows[nodeid] == row}
            tests, good = Counter[str](), Counter[str]()
            for nodeid, how in outcomes.items():
                tests.update(self._rules[nodeid])
                good.update(self._rules[nodeid] if how == "passed" else ())
            proved = " ".join(sorted(rule for rule in tests if good[rule] == tests[rule]))
            missed = " ".join(sorted(rule for rule in tests if good[rule] < tests[rule]))
            passed = f"{sum(how == 'passed' for how in outcomes.values())}/{len(outcomes)}"
            shown = proved + (f"; NOT PROVED: {missed}" if missed else "")
            cells.append((*row, live_clis.PINNED[row[0]].version, "real", passed, shown))
        widths = [max(len(line[column]) for line in cells) for column in range(5)]
        return ["  ".join([*map(str.ljust, line, widths), line[5]]) for line in cells]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        lines = self.lines()
        if lines:
            terminalreporter.section("certification")
            for line in lines:
                terminalreporter.write_line(line)
        if REPORTS:
            terminalreporter.section("certification by the conformance kit")
            for line in table(REPORTS):
                terminalreporter.write_line(line)
