"""The other process that completions are measured against: what is written once it was told of a folder, it sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastword.runtime.testing.conformance._witness import Witness


@pytest.mark.contract("C05")
@pytest.mark.parametrize("below", ["", "not/yet/there"])
def test_c05_what_is_written_right_behind_the_call_is_seen(tmp_path: Path, below: str) -> None:
    folder = tmp_path / below
    with Witness() as witness:
        witness.watch(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "record.jsonl").write_bytes(b"the end\n")
        assert witness.held(str(folder / "record.jsonl"), 0, within_s=10.0) is not None


@pytest.mark.contract("C05")
def test_c05_what_stood_there_before_is_no_news(tmp_path: Path) -> None:
    old = tmp_path / "old.jsonl"
    old.write_bytes(b"long ago\n")
    with Witness() as witness:
        witness.watch(tmp_path)
        (tmp_path / "new.jsonl").write_bytes(b"now\n")
        assert witness.held(str(tmp_path / "new.jsonl"), 0, within_s=10.0) is not None
        assert witness.held(str(old), 0, within_s=0.0) is None


def test_a_witness_that_is_gone_holds_up_nobody(tmp_path: Path) -> None:
    with Witness() as witness:
        assert witness._process is not None
        witness._process.kill()
        witness._process.wait(10.0)
        witness.watch(tmp_path)
        assert witness.held(str(tmp_path / "x"), 0, within_s=0.0) is None
