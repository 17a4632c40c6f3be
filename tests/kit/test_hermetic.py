"""The sealed place for a real CLI."""

import json
import os
import stat

import pytest

from lastword.runtime.testing import FAKE_KEY, SEALED_HOMES, Rehearsal, claude_home


def test_the_home_is_seeded_and_the_environment_is_whole(tmp_path) -> None:
    env = claude_home(tmp_path / "h", [tmp_path / "w"], base_url="http://127.0.0.1:1")
    seed = json.loads((tmp_path / "h/.claude.json").read_text())
    assert seed["customApiKeyResponses"]["approved"] == [FAKE_KEY[-20:]]
    assert seed["projects"][str(tmp_path / "w")]["hasTrustDialogAccepted"] is True
    assert stat.S_IMODE((tmp_path / "h/.claude.json").stat().st_mode) == 0o600
    assert env["TMPDIR"].startswith(env["HOME"])
    assert env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    own_key = os.environ.get("ANTHROPIC_API_KEY")
    assert own_key is None or own_key not in env.values()


def test_a_rehearsal_leaves_nothing(tmp_path) -> None:
    with Rehearsal(parent=tmp_path) as stage:
        root, server = stage.root, stage.server
        assert stage.env["ANTHROPIC_BASE_URL"] == server.base_url
        (stage.tmp / "claude-0").mkdir()
    assert not root.exists()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError):
        _ = server.base_url


@pytest.mark.parametrize("provider", sorted(SEALED_HOMES))
def test_every_sealed_home_names_the_scripted_server_and_no_place_outside(tmp_path, provider: str, monkeypatch) -> None:
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "the-persons-own-key")
    with Rehearsal(parent=tmp_path, provider=provider) as stage:
        files = [path for path in stage.home.rglob("*") if path.is_file()]
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} <= {0o600}
        told = "".join(path.read_text() for path in files) + json.dumps(stage.env)
        assert stage.server.base_url in told
        assert "the-persons-own-key" not in told
        for name in ("HOME", "TMPDIR"):
            assert stage.env[name].startswith(str(stage.root))
        other = tmp_path / "other"
        assert stage.env_for(other).keys() == stage.env.keys()
    with pytest.raises(ValueError, match="no sealed home"):
        Rehearsal(provider="nobody")
