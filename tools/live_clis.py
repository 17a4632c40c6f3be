"""Get the pinned real CLIs through npm into a cache folder. Says first what it will download; needs no credentials."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

NODE = "node"
"""Not a CLI: the Node.js that Pi (>= 22.19) and Qwen Code (>= 22) ask for; distributions carry older ones."""
FETCH_BOUND_S = 900
AT_ONCE = 2


class Pin(NamedTuple):
    """One pinned CLI.

    Attributes:
        entry: what is run, below ``node_modules``; ``{arch}`` and ``{triple}`` are the machine's.
        on_node: run with the pinned Node.js. scripts: npm runs the packages' install scripts.
    """

    package: str
    version: str
    executable: str
    download_mb: int
    disk_mb: int
    entry: str = ""
    on_node: bool = False
    scripts: bool = False


PINNED = {
    NODE: Pin("node-{arch}", "22.23.3", "node", 50, 185, "node-{arch}/bin/node"),
    "claude-code": Pin("@anthropic-ai/claude-code", "2.1.332", "claude", 130, 390, scripts=True),
    "codex": Pin("@openai/codex", "0.171.0", "codex", 165, 425, "@openai/codex-{arch}/vendor/{triple}/bin/codex"),
    "pi": Pin(
        "@earendil-works/pi-coding-agent",
        "1.6.0",
        "pi",
        72,
        170,
        "@earendil-works/pi-coding-agent/dist/bundle/cli.js",
        on_node=True,
    ),
    "gemini": Pin(
        "@google/gemini-cli", "0.61.0", "gemini", 23, 100, "@google/gemini-cli/bundle/gemini.js", on_node=True
    ),
    "qwen": Pin("@qwen-code/qwen-code", "0.24.4", "qwen", 44, 145, "@qwen-code/qwen-code/cli-entry.js", on_node=True),
    "opencode": Pin("opencode-ai", "1.18.33", "opencode", 116, 355, "opencode-{arch}/bin/opencode"),
}
_TRIPLES = {
    "linux-x64": "x86_64-unknown-linux-musl",
    "linux-arm64": "aarch64-unknown-linux-musl",
    "darwin-x64": "x86_64-apple-darwin",
    "darwin-arm64": "aarch64-apple-darwin",
}


def _arch() -> str:
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(platform.machine().lower(), platform.machine())
    return f"{platform.system().lower()}-{machine}"


def _named(text: str) -> str:
    arch = _arch()
    return text.format(arch=arch, triple=_TRIPLES.get(arch, arch))


def home_of(cache: Path, provider: str) -> Path:
    """Folder of one pinned CLI."""
    return cache / "cli" / f"{provider}-{PINNED[provider].version}"


def executable_of(cache: Path, provider: str) -> Path:
    """What a host would have on its PATH, whether it is there or not."""
    return home_of(cache, provider) / "node_modules" / ".bin" / PINNED[provider].executable


def argv_of(cache: Path, provider: str) -> tuple[str, ...]:
    """The program itself without a launcher: the native binary, or the pinned Node.js and the entry script."""
    pin = PINNED[provider]
    if not pin.entry:
        return (str(executable_of(cache, provider)),)
    entry = str(home_of(cache, provider) / "node_modules" / _named(pin.entry))
    return (*argv_of(cache, NODE), entry) if pin.on_node else (entry,)


def is_there(cache: Path, provider: str) -> bool:
    """Whether it was installed to the end: all that its argv names, and our launcher, which is written last."""
    executable = executable_of(cache, provider)
    whole = not PINNED[provider].entry or not executable.is_symlink()
    return executable.exists() and whole and all(Path(word).exists() for word in argv_of(cache, provider))


def fetch(cache: Path, provider: str) -> None:
    """Install one, unless it is there. Raises: ``CalledProcessError``, ``TimeoutExpired``, ``FileNotFoundError``."""
    pin = PINNED[provider]
    what = f"{_named(pin.package)}@{pin.version}"
    folder = home_of(cache, provider)
    if not is_there(cache, provider):
        print(f"{what}: about {pin.download_mb} MB from the npm registry, {pin.disk_mb} MB in {folder}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error"]
        scripts = [] if pin.scripts else ["--ignore-scripts"]
        subprocess.run([*command, *scripts, what], check=True, timeout=FETCH_BOUND_S)
        _launcher(cache, provider)
    else:
        print(f"{what}: in {folder}")


def _launcher(cache: Path, provider: str) -> None:
    """Make the executable start the program itself: npm's own needs install scripts or the ``node`` on PATH."""
    if not PINNED[provider].entry:
        return
    argv, launcher = argv_of(cache, provider), executable_of(cache, provider)
    launcher.parent.mkdir(parents=True, exist_ok=True)
    fresh = launcher.with_suffix(".new")
    fresh.write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n', encoding="utf-8")
    fresh.chmod(0o755)
    os.replace(fresh, launcher)  # noqa: PTH105 - over npm's link, not through it


def main() -> None:
    """Fetch all, a few at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--only", action="append", choices=sorted(PINNED), help="these (default: all)")
    options = parser.parse_args()
    wanted = options.only or list(PINNED)
    if any(PINNED[provider].on_node for provider in wanted):
        wanted = list(dict.fromkeys([NODE, *wanted]))
    missing = [provider for provider in wanted if not is_there(options.cache, provider)]
    if missing and shutil.which("npm") is None:
        sys.exit("make live needs npm to get the real CLIs (Node.js comes with it)")
    total = sum(PINNED[provider].download_mb for provider in missing)
    if missing:
        print(f"{len(missing)} of {len(wanted)} pinned packages are missing: about {total} MB to download", flush=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda provider: fetch(options.cache, provider), wanted))
    absent = [provider for provider in wanted if not is_there(options.cache, provider)]
    if absent:
        sys.exit(f"installed, but not all there: {', '.join(absent)}")


if __name__ == "__main__":
    main()
