"""Starting is cheap, and importing the command imports no actors. Output is safe for a terminal."""

import subprocess
import sys

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from command_kit import SOURCES
from lastword.runtime.command._show import as_json, one_line, safe

HEAVY = ("pykka", "libtmux", "asyncio", "sqlite3", "rich", "watchdog", "loguru", "lastword.actors.session")


def modules_after(code: str) -> set[str]:
    script = f"import sys; {code}; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": SOURCES, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return set(done.stdout.split())


def test_the_version_and_a_read_load_neither_actors_nor_tmux() -> None:
    version = "from lastword.runtime.command import cli; cli(['--version'], standalone_mode=False)"
    reading = "from lastword.runtime.command.read import read_files; read_files('claude-code', [])"
    for code in (version, reading):
        assert not modules_after(code) & set(HEAVY)


def test_the_public_names_load_on_first_use_and_are_the_same_objects() -> None:
    import lastword
    from lastword import runtime

    for name in lastword.__all__:
        assert getattr(lastword, name) is getattr(runtime, name)
    assert set(lastword.__all__) == set(runtime.__all__) == set(dir(runtime))


CONTROL = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


@given(st.text())
def test_no_control_character_reaches_a_terminal(text: str) -> None:
    assert not CONTROL & set(safe(text))
    assert not (CONTROL | {"\n"}) & set(one_line(text))


@given(st.text())
def test_json_escapes_them_and_loses_nothing(text: str) -> None:
    shown = as_json({"text": text})
    assert not CONTROL & set(shown)
    assert msgspec.json.decode(shown) == {"text": text}
