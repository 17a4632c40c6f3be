"""`run --rehearse`: sealed off, on whichever real CLI there is (here the scripted one under its name)."""

import sys

import pytest

from lastword.runtime.testing import SCRIPTED_CLI, SEALED_HOMES
from lastword.transports.providers import ADAPTERS


@pytest.mark.parametrize("provider", ["anthropic", "openai", "openai-chat"])
def test_a_models_api_is_rehearsed_without_a_cli_or_a_key(place, provider: str) -> None:
    code, out, err = place.lastword("run", "--rehearse", "--provider", provider, "hello", env=bare(place))
    assert (code, out) == (0, "echo: hello\n"), err
    assert "writes" not in err
    assert not place.state.exists()


def test_the_help_names_those_that_can_be_rehearsed_and_no_other(place) -> None:
    code, out, _ = place.lastword("run", "--help")
    told = " ".join(out.split()).partition("--rehearse ")[2].partition(" For ")[2].partition(". ")[0]
    assert code == 0
    assert told.split(", ") == sorted(SEALED_HOMES)
    for name in {name for name, _ in ADAPTERS} - set(SEALED_HOMES) - {"memory"}:
        code, _, err = place.lastword("run", "--rehearse", "--provider", name, "hello")
        assert (code, f"Can be rehearsed: {told}" in err) == (2, True), (name, err)


def test_what_cannot_be_sealed_off_is_not_rehearsed(place) -> None:
    place.program("cursor-agent", "#!/bin/sh\necho started >>'$HOME/started'\n")
    code, out, err = place.lastword("run", "--rehearse", "--provider", "cursor", "hello", env=bare(place))
    assert (code, out) == (2, "")
    assert "(unsupported_capability). Can be rehearsed:" in err
    assert "Traceback" not in err


def pinned(place) -> None:
    """As `make live` leaves it."""
    folder = place.root / "no-cache" / "cli" / "claude-code-2.1.332" / "node_modules" / ".bin"
    folder.mkdir(parents=True)
    (folder / "claude").write_text((place.bin / "claude").read_text())
    (folder / "claude").chmod(0o755)


def bare(place) -> dict[str, str]:
    return place.env | {"PATH": f"{place.bin}:/usr/bin:/bin"}


def test_the_pinned_cli_is_used_where_there_is_none_on_path(place) -> None:
    pinned(place)
    (place.bin / "claude").unlink()
    code, out, err = place.lastword("run", "--rehearse", "[[say:rehearsed]]", env=bare(place))
    assert (code, out) == (0, "rehearsed\n"), err


def test_a_certified_pinned_cli_is_preferred_to_one_on_path_that_was_never_certified(place) -> None:
    pinned(place)
    place.program("claude", "#!/bin/sh\necho '9.9.9 (Claude Code)'\n")
    code, out, err = place.lastword("run", "--rehearse", "[[say:pinned]]", env=bare(place))
    assert (code, out) == (0, "pinned\n"), err


def test_a_rehearsal_touches_neither_home_nor_the_state_folder(place) -> None:
    """The CLI sees a home, a key and a folder of the rehearsal's own, and what it wrote is gone afterwards."""
    place.program("claude", f"#!/bin/sh\nenv > '{place.root}/seen'\nexec '{sys.executable}' '{SCRIPTED_CLI}' \"$@\"\n")
    before = sorted(path for path in place.home.rglob("*"))
    code, _, err = place.lastword("run", "--rehearse", "hello", env=place.env | {"ANTHROPIC_API_KEY": "a-real-one"})
    assert code == 0, err
    seen = (place.root / "seen").read_text()
    assert "a-real-one" not in seen
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:" in seen
    assert f"HOME={place.home}\n" not in seen
    assert sorted(path for path in place.home.rglob("*")) == before
    assert not place.state.exists()
