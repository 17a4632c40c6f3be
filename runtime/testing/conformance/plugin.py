"""The pytest plugin: each certification of a subject is a test, and the table stands at the end of the run.

Loaded by pytest's entry point; it does nothing without ``--lastword-subject package.module:NAME`` (again and again for
several) or the ini option ``lastword_subjects``. NAME is a :class:`Subject`, or a function that makes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lastword.runtime.testing.conformance._run import Result
    from lastword.runtime.testing.conformance._subject import Subject

_RESULTS = pytest.StashKey["dict[str, tuple[Subject, list[Result]]]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two options."""
    text = "certify the adapter of this lastword conformance Subject"
    parser.getgroup("lastword").addoption(
        "--lastword-subject", action="append", default=[], metavar="MODULE:NAME", help=text
    )
    parser.addini("lastword_subjects", text, type="args", default=[])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each certification that is due."""
    if "certification" not in metafunc.fixturenames or "subject" not in metafunc.fixturenames:
        return
    from lastword.runtime.testing.conformance import due  # noqa: PLC0415 - late: pytest loads this module in every run

    cases = [(subject, each) for subject in _subjects(metafunc.config) for each in due(subject.adapter)]
    names = [f"{subject.name}-{each.name}" for subject, each in cases]
    metafunc.parametrize(("subject", "certification"), cases, ids=names)


def pytest_configure(config: pytest.Config) -> None:
    """Where the results are kept."""
    config.stash[_RESULTS] = {}


def keep(config: pytest.Config, subject: Subject, result: Result) -> None:
    """Have it in the table."""
    config.stash[_RESULTS].setdefault(subject.name, (subject, []))[1].append(result)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The table."""
    if not config.stash[_RESULTS]:
        return
    from lastword.runtime.testing.conformance import Report, table  # noqa: PLC0415

    terminalreporter.section("certification")
    reports = [
        Report(
            provider=subject.adapter.name,
            transport=subject.adapter.transport,
            version=", ".join(sorted(set().union(*(each.versions for each in results)))),
            realness=subject.realness,
            results=tuple(results),
        )
        for subject, results in config.stash[_RESULTS].values()
    ]
    for line in table(reports):
        terminalreporter.write_line(line)


def _subjects(config: pytest.Config) -> list[Subject]:
    from lastword import UsageError  # noqa: PLC0415
    from lastword.runtime.testing.conformance import load  # noqa: PLC0415

    try:
        return [load(name) for name in (*config.getoption("--lastword-subject"), *config.getini("lastword_subjects"))]
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error
