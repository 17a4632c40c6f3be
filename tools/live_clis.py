"""Get the pinned real CLIs through npm into a cache folder. Says first what it will download; needs no credentials."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

PINNED = {"claude-code": ("@anthropic-ai/claude-code", "2.1.332", "claude", 130, 390)}
"""provider -> npm package, version, executable, MB to download (about), MB on disk (about)."""


def home_of(cache: Path, provider: str) -> Path:
    """Folder of one pinned CLI."""
    package, version, *_ = PINNED[provider]
    return cache / "cli" / f"{package.rsplit('/', 1)[-1]}-{version}"


def executable_of(cache: Path, provider: str) -> Path:
    """Its executable, whether it is there or not."""
    return home_of(cache, provider) / "node_modules" / ".bin" / PINNED[provider][2]


def fetch(cache: Path, provider: str) -> Path:
    """Install one, unless it is there."""
    package, version, _, download, disk = PINNED[provider]
    executable = executable_of(cache, provider)
    if executable.exists():
        print(f"{package}@{version}: in {executable.parent.parent.parent}")
        return executable
    if shutil.which("npm") is None:
        sys.exit("make live needs npm to get the real CLIs (Node.js comes with it)")
    folder = home_of(cache, provider)
    print(
        f"{package}@{version}: downloading about {download} MB from the npm registry, {disk} MB in {folder}", flush=True
    )
    folder.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run([*command, f"{package}@{version}"], check=True, timeout=900)
    if not executable.exists():
        sys.exit(f"{package}@{version} was installed, but {executable} is not there")
    return executable


def main() -> None:
    """Fetch all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True)
    for provider in PINNED:
        fetch(parser.parse_args().cache, provider)


if __name__ == "__main__":
    main()
