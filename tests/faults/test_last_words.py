"""A CLI in a pane that ends at once: the error says with which status, and in its own words why."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from pane_kit import WAIT_S, PaneHost, Ways

VERSIONS = {"claude-code": "2.1.332 (Claude Code)", "codex": "codex-cli 0.171.0", "pi": "1.6.0"}


def ends_at_once(folder: Path, provider: str, end: str) -> Ways:
    """A program of that provider's name that tells its version and else does this."""
    program = folder / provider
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{VERSIONS[provider]}" && exit 0\n{end}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Ways(
        provider=provider,
        version=VERSIONS[provider],
        argv=(str(program),),
        options={},
        asking={},
        approval="",
        records="*",
        ended="",
        error_kinds={},
    )


WAYS_TO_END = [
    (
        "codex",
        "echo \"error: unexpected argument '--nope' found\" >&2\nexit 2",
        2,
        "unexpected argument '--nope' found",
    ),
    ("codex", "echo one; echo two; exit 1", 1, "one / two"),
    ("claude-code", "echo 'cannot open shared object file: libz.so' >&2\nexit 127", 127, "libz.so"),
    ("pi", 'echo "Unknown option: --nope" >&2\nexit 1', 1, "Unknown option: --nope"),
]


@pytest.mark.tmux
@pytest.mark.contract("C03")
@pytest.mark.parametrize(("provider", "end", "status", "words"), WAYS_TO_END)
def test_c03_a_cli_that_ends_at_once_says_why_in_its_own_words(
    tmp_path: Path, provider: str, end: str, status: int, words: str
) -> None:
    with PaneHost(ends_at_once(tmp_path, provider, end)) as host:
        done = host.session().run("hello", deadline_s=WAIT_S)
    assert done.error is not None
    assert (done.status, done.error.kind) == ("failed", "launch_failed")
    assert f"ended with status {status} before it was ready" in done.error.message
    assert words in done.error.message
