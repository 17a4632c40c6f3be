"""A proof that CI requires and that is missing, skipped or red makes it fail."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "required_proofs.py"
spec = importlib.util.spec_from_file_location("required_proofs", TOOL)
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)

REPORT = """<testsuites><testsuite>
<testcase classname="tests.live.test_x" name="test_a[1]"/>
<testcase classname="tests.live.test_x" name="test_b"><skipped message="no CLI"/></testcase>
<testcase classname="tests.core.test_y.TestZ" name="test_c"><failure>no</failure></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def found(tmp_path: Path) -> dict[str, str]:
    report = tmp_path / "r.xml"
    report.write_text(REPORT)
    return tool.outcomes([report])


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("tests/live/test_x.py::test_a[1]", ""),
        ("tests/live/*test_a*", ""),
        ("tests/live/*", "skipped: tests/live/test_x.py::test_b"),
        ("tests/core/test_y.py::TestZ::test_c", "failure: "),
        ("*::test_ic11_*", "missing: "),
    ],
)
def test_a_required_proof_must_have_run_and_passed(found: dict[str, str], pattern: str, says: str) -> None:
    told = tool.faults([pattern], found)
    assert [line.startswith(says) for line in told] == ([True] if says else [])


def test_the_list_itself_is_readable() -> None:
    assert "tests/live/*" in tool.patterns()
