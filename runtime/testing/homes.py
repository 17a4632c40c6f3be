"""The files and the environment with which each real CLI starts sealed off: no dialog, no login, no call but loopback.

One function a provider: it seeds a home and returns the environment for ``env -i``; :data:`HOMES` lists them. None
starts a CLI. Facts come from runs of the pinned versions (tests/live/test_rehearsal_of_clis.py): Codex 0.171.0,
Pi 1.6.0, Gemini CLI 0.61.0, Qwen Code 0.24.4, opencode 1.18.33. Claude Code's are in ``hermetic.claude_home``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

FAKE_OPENAI_KEY = "sk-rehearsal-not-a-real-key"
MODEL = "rehearsal-1"
SMALL_MODEL = "rehearsal-small"
"""What opencode asks for titles."""

Home = Callable[[Path, Sequence[Path], str, Path], dict[str, str]]
"""(home, folders that count as trusted, model server, temporary folder) -> environment."""


def _base_env(home: Path, tmp: Path) -> dict[str, str]:
    home.mkdir(parents=True, exist_ok=True)
    tmp.mkdir(parents=True, exist_ok=True)
    return {
        "HOME": str(home),
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "SHELL": "/bin/bash",
        "TMPDIR": str(tmp),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "XDG_CACHE_HOME": str(home / ".cache"),
    }


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)


def _write_json(path: Path, value: object) -> None:
    _write(path, json.dumps(value, indent=1))


def codex_home(home: Path, cwds: Sequence[Path], base_url: str, tmp: Path) -> dict[str, str]:
    """Codex. Start its terminal program with ``--no-daemon``, else a background server outlives it.

    Retries are few and quick, so that a scripted failure ends within seconds. Codex writes into its own config.toml.
    """
    codex = home / ".codex"
    lines = [
        f'model = "{MODEL}"',
        'model_provider = "rehearsal"',
        'approval_policy = "never"',
        'sandbox_mode = "danger-full-access"',
        "check_for_update_on_startup = false",
        "[analytics]",
        "enabled = false",
        "[model_providers.rehearsal]",
        'name = "rehearsal"',
        f'base_url = "{base_url}/v1"',
        'wire_api = "responses"',
        'env_key = "REHEARSAL_KEY"',
        "request_max_retries = 1",
        "stream_max_retries = 1",
        "stream_idle_timeout_ms = 20000",
    ]
    for cwd in cwds:
        lines += [f"[projects.{json.dumps(os.path.abspath(cwd))}]", 'trust_level = "trusted"']  # noqa: PTH100 - links unresolved
    _write(codex / "config.toml", "\n".join(lines) + "\n")
    return {**_base_env(home, tmp), "CODEX_HOME": str(codex), "REHEARSAL_KEY": FAKE_OPENAI_KEY}


def pi_home(home: Path, cwds: Sequence[Path], base_url: str, tmp: Path) -> dict[str, str]:  # noqa: ARG001 - no trust list
    """Pi. Project trust is settled by ``defaultProjectTrust``; its default backoff of 2 s is made short."""
    agent = home / ".pi" / "agent"
    model = {"id": MODEL, "name": "Rehearsal", "contextWindow": 128000, "maxTokens": 4096}
    provider = {
        "baseUrl": f"{base_url}/v1",
        "api": "openai-completions",
        "apiKey": FAKE_OPENAI_KEY,
        "models": [model],
    }
    settings = {
        "defaultProvider": "rehearsal",
        "defaultModel": MODEL,
        "retry": {"baseDelayMs": 100, "maxRetries": 1},
        "enableInstallTelemetry": False,
        "quietStartup": True,
        "defaultProjectTrust": "never",
    }
    _write_json(agent / "models.json", {"providers": {"rehearsal": provider}})
    _write_json(agent / "settings.json", settings)
    return {**_base_env(home, tmp), "PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"}


def gemini_home(home: Path, cwds: Sequence[Path], base_url: str, tmp: Path) -> dict[str, str]:  # noqa: ARG001 - trust is off
    """Gemini CLI. Tools run unasked only with ``--approval-mode yolo``."""
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False, "maxAttempts": 2},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    _write_json(home / ".gemini" / "settings.json", settings)
    return {
        **_base_env(home, tmp),
        "GEMINI_API_KEY": FAKE_OPENAI_KEY,
        "GOOGLE_GEMINI_BASE_URL": base_url,
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }


def qwen_home(home: Path, cwds: Sequence[Path], base_url: str, tmp: Path) -> dict[str, str]:  # noqa: ARG001 - trust is off
    """Qwen Code. Tools run unasked only with ``--approval-mode yolo``; the default asks a classifier.

    Its shell runs without a pty: in one, about one command in a hundred that ended well is told as failed, "Signal: 1"
    beside "Exit Code: 0" (seen with 0.24.4 on a busy machine).
    """
    settings = {
        "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "model": {"name": MODEL},
        "tools": {"shell": {"enableInteractiveShell": False}},
    }
    _write_json(home / ".qwen" / "settings.json", settings)
    return {
        **_base_env(home, tmp),
        "OPENAI_API_KEY": FAKE_OPENAI_KEY,
        "OPENAI_BASE_URL": f"{base_url}/v1",
        "OPENAI_MODEL": MODEL,
    }


def opencode_home(home: Path, cwds: Sequence[Path], base_url: str, tmp: Path) -> dict[str, str]:  # noqa: ARG001 - no trust list
    """For opencode. A retryable failure is retried without a bound: script 400 to see one end."""
    limit = {"context": 128000, "output": 4096}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Rehearsal",
        "options": {"baseURL": f"{base_url}/v1", "apiKey": FAKE_OPENAI_KEY},
        "models": {name: {"name": name, "limit": limit, "tool_call": True} for name in (MODEL, SMALL_MODEL)},
    }
    config = {
        "$schema": "https://opencode.ai/config.json",
        "model": f"rehearsal/{MODEL}",
        "small_model": f"rehearsal/{SMALL_MODEL}",
        "provider": {"rehearsal": provider},
        "enabled_providers": ["rehearsal"],
        "autoupdate": False,
        "share": "disabled",
        "permission": "allow",
    }
    _write_json(home / ".config" / "opencode" / "opencode.json", config)
    quiet = ("AUTOUPDATE", "MODELS_FETCH", "DEFAULT_PLUGINS", "LSP_DOWNLOAD")
    return {**_base_env(home, tmp), **{f"OPENCODE_DISABLE_{word}": "1" for word in quiet}}


def anthropic_home(home: Path, cwds: Sequence[Path], base_url: str, tmp: Path) -> dict[str, str]:  # noqa: ARG001 - no CLI
    """Anthropic's API, asked by us: no CLI, but the same sealed environment."""
    service = {"ANTHROPIC_API_KEY": FAKE_OPENAI_KEY, "ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_MODEL": MODEL}
    return {**_base_env(home, tmp), **service}


def openai_home(home: Path, cwds: Sequence[Path], base_url: str, tmp: Path) -> dict[str, str]:  # noqa: ARG001 - no CLI
    """OpenAI's API, asked by us."""
    service = {"OPENAI_API_KEY": FAKE_OPENAI_KEY, "OPENAI_BASE_URL": f"{base_url}/v1", "OPENAI_MODEL": MODEL}
    return {**_base_env(home, tmp), **service}


HOMES: Mapping[str, Home] = {
    "codex": codex_home,
    "pi": pi_home,
    "gemini": gemini_home,
    "qwen": qwen_home,
    "opencode": opencode_home,
    "anthropic": anthropic_home,
    "openai": openai_home,
    "openai-chat": openai_home,
}
"""Beside Claude Code's."""
