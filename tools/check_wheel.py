"""Look into what `make package` built: everything that must ship is there, nothing else, and it starts when installed.

``python tools/check_wheel.py DIST``. Exit code 1 names what is wrong.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOMS = ("actors", "runtime", "transports")
ROOT = Path(__file__).parent.parent
DATA = (
    "lastword/py.typed",
    "lastword/runtime/_schema.sql",
    "lastword/runtime/testing/conformance/pi_asks.ts",
    "lastword/transports/providers/pi_extension.ts",
    "lastword/runtime/testing/scripted_cli.py",
)
ENTRY = "lastword = lastword.runtime.command:main"
START_TIMEOUT_S = 60.0


def expected() -> set[str]:
    """Every module of the source tree, as the wheel names it."""
    modules = {f"lastword/{path.name}" for path in (ROOT / "src" / "lastword").glob("*.py")}
    for room in ROOMS:
        modules |= {f"lastword/{path.relative_to(ROOT)}" for path in (ROOT / room).rglob("*.py")}
    return modules | set(DATA)


def wheel_faults(wheel: Path) -> list[str]:
    """What is missing in it, or should not be there."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        entries = "".join(archive.read(name).decode() for name in names if name.endswith("/entry_points.txt"))
    code = {name for name in names if ".dist-info/" not in name}
    faults = [f"missing: {name}" for name in sorted(expected() - code)]
    faults += [f"not ours: {name}" for name in sorted(code - expected()) if not name.startswith("lastword/")]
    faults += [f"should not ship: {name}" for name in sorted(code) if "__pycache__" in name or "/tests/" in name]
    if ENTRY not in entries:
        faults.append(f"no entry point: {ENTRY}")
    return faults


def sdist_faults(sdist: Path) -> list[str]:
    """An sdist must be enough to build the wheel."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"pyproject.toml", "README.md", "LICENSE"} | {f"src/{name}" for name in expected()}
    return [f"missing in the sdist: {name}" for name in sorted(needed - names)]


def start_faults(wheel: Path) -> list[str]:
    """Unpacked alone, the command says its version, and nothing generic can be imported."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)  # noqa: S202 - our own
        code = (
            f"import sys; sys.path.insert(0, {folder!r}); import lastword;"
            f"assert lastword.__file__.startswith({folder!r}); from lastword import Runtime;"
            "from lastword.runtime.testing import SCRIPTED_CLI; assert SCRIPTED_CLI.is_file();"
            "assert not {'runtime', 'actors', 'transports'} & set(sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
    return [] if done.returncode == 0 else [f"does not start: {done.stderr.strip()[-500:]}"]


def main() -> int:
    """Check the one wheel and the one sdist of a folder."""
    dist = Path(sys.argv[1])
    wheels, sdists = sorted(dist.glob("*.whl")), sorted(dist.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        print(f"{dist} should hold one wheel and one sdist, not {len(wheels)} and {len(sdists)}")
        return 1
    faults = wheel_faults(wheels[0]) + sdist_faults(sdists[0]) + start_faults(wheels[0])
    for fault in faults:
        print(fault)
    if not faults:
        print(f"{wheels[0].name} and {sdists[0].name}: complete, {len(expected())} files")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
