"""What is shipped: one top-level package, its data files, and the same wheel from the tree and from the sdist."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import lastword

ROOT = Path(__file__).parents[1]
BUILD_S = 120
SHIPPED_TREES = ("actors", "transports", "runtime", "src")
SHIPPED_FILES = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "setup.py")


def python(*words: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    assert done.returncode == 0, f"{words}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def build(kind: str, source: Path, into: Path) -> Path:
    """By the build backend itself: no network, no isolation, the tree itself stays clean."""
    into.mkdir(exist_ok=True)
    code = f"from setuptools import build_meta; print('built:' + build_meta.build_{kind}({str(into)!r}))"
    return into / python("-c", code, cwd=source).rpartition("built:")[2].strip()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean copy of what is under version control here; the symlinks stay symlinks."""
    copy = tmp_path_factory.mktemp("tree") / "lastword"
    copy.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist")
    for name in SHIPPED_TREES:
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignore)
    for name in SHIPPED_FILES:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, copy / name)
    if not (copy / "README.md").exists():
        (copy / "README.md").write_text("# lastword\n")
    return copy


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    clean = tmp_path_factory.mktemp("wheel-tree") / "lastword"
    shutil.copytree(tree, clean, symlinks=True)
    return build("wheel", clean, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    clean = tmp_path_factory.mktemp("sdist-tree") / "lastword"
    shutil.copytree(tree, clean, symlinks=True)
    return build("sdist", clean, tmp_path_factory.mktemp("sdist"))


def files_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def test_the_wheel_of_the_tree_and_the_wheel_of_the_sdist_hold_the_same(wheel, sdist, tmp_path):
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # since Python 3.11.4
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(tmp_path)
    (unpacked,) = tmp_path.iterdir()
    again = build("wheel", unpacked, tmp_path / "out")
    assert files_of(again) == files_of(wheel)


def test_the_wheel_holds_one_top_level_package_and_all_of_it(wheel):
    held = set(files_of(wheel))
    assert {name.split("/")[0] for name in held} == {"lastword"}
    for room in ("actors", "transports", "runtime"):
        for path in (ROOT / room).rglob("*.py"):
            assert f"lastword/{path.relative_to(ROOT)}" in held
    assert not [name for name in held if "__pycache__" in name or name.endswith(".pyc")]


def test_the_wheel_ships_the_type_marker_and_the_schema(wheel):
    held = files_of(wheel)
    assert "lastword/py.typed" in held
    for path in (ROOT / "runtime").rglob("*.sql"):
        assert held[f"lastword/{path.relative_to(ROOT)}"] == path.read_bytes()
    assert [name for name in held if name.endswith("_schema.sql")]


def test_an_unpacked_wheel_works_without_any_editable_install(wheel, tmp_path):
    """From the files of the wheel alone: a runtime, a turn, a completion."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = """
import sys, lastword, pathlib
assert pathlib.Path(lastword.__file__).is_relative_to(sys.argv[1]), lastword.__file__
from lastword import Runtime
from lastword.runtime._edge import Edge
from lastword.transports.memory import MemoryWorld
world = MemoryWorld()
edge = Edge(transport=world, files=world, wakes=world, close=world.close)
with Runtime.open("state", edge=edge, durability="process") as runtime:
    print(runtime.run("memory", "shipped").answer)
"""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path)}
    said = python("-c", code, str(tmp_path / "site"), cwd=tmp_path, env=env)
    assert said.strip() == "echo: shipped"


IMPORT_ALL = """
import importlib, pkgutil, sys
import lastword
for found in pkgutil.walk_packages(lastword.__path__, "lastword."):
    if not found.name.rpartition(".")[2].startswith("__"):
        importlib.import_module(found.name)
loud = [name for name in ("runtime", "actors", "transports") if name in sys.modules]
assert not loud, loud
print(len([name for name in sys.modules if name.startswith("lastword.")]))
"""


def test_importing_everything_brings_no_generic_name_to_the_top():
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    assert int(python("-W", "error", "-c", IMPORT_ALL, cwd=ROOT / "tests", env=env)) > 40


def test_importing_the_core_brings_neither_the_runtime_nor_a_library_of_the_edge():
    code = """
import sys
import lastword.actors.core.turn
import lastword.actors.core.session
heavy = [name for name in sys.modules if name.split(".")[0] in ("libtmux", "watchdog", "loguru", "sqlite3", "pykka", "rich", "click")]
assert not heavy, heavy
assert "lastword.runtime" not in sys.modules
import lastword
lastword.Runtime
late = [name for name in ("libtmux", "rich", "click") if name in sys.modules]
assert not late, late
"""
    python("-c", code, cwd=ROOT / "tests", env={**os.environ, "PYTHONPATH": str(ROOT / "src")})


def test_the_command_of_the_project_is_importable():
    """The entry point names a function that is there."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert list(scripts) == ["lastword"]
    module, _, function = scripts["lastword"].partition(":")
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not in this tree yet")
    assert callable(getattr(importlib.import_module(module), function))


def test_what_is_tested_is_the_tree_not_an_installed_copy():
    """Nothing of the tests leans on what happens to be installed."""
    assert Path(lastword.__file__).resolve().is_relative_to(ROOT)
