"""The canary of `make live LATEST=1`: the newest version of each CLI, certified, and what differs from the pinned one.

Needs the network; nothing that must hold depends on it. Exit code 0: nothing differs; 1: something does; 2: a CLI could
not be fetched or tried.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path

import live_clis

ASK_BOUND_S = 60
CERTIFY_BOUND_S = 1_800


def newest(provider: str) -> str:
    """Its version that the registry calls ``latest``. Raises: ``CalledProcessError``, ``TimeoutExpired``."""
    words = ["npm", "view", live_clis.PINNED[provider].package, "dist-tags.latest", "--json"]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=ASK_BOUND_S)
    return str(json.loads(done.stdout))


def outcomes(provider: str, argv: tuple[str, ...]) -> dict[str, str]:
    """What came of each certification on that CLI: ``transport certification`` -> outcome and why.

    Raises:
        ValueError: it could not be tried.
    """
    words = ["-m", "lastword.runtime.command", "certify", provider, "--json", "--cli", shlex.join(argv)]
    done = subprocess.run(
        [sys.executable, *words], check=False, capture_output=True, text=True, timeout=CERTIFY_BOUND_S
    )
    if done.returncode not in (0, 1):
        raise ValueError(done.stderr.strip()[-300:])
    found: dict[str, str] = {}
    for report in json.loads(done.stdout)["reports"]:
        for each in report["results"]:
            what = f"{report['transport']} {each['certification']} {each.get('proves', '')}".strip()
            found[what] = each["outcome"] + (f" ({each['why']})" if each.get("why") else "")
    return found


def differences(pinned: dict[str, str], latest: dict[str, str]) -> list[str]:
    """One line for each certification that came out otherwise; the words of a failure may vary."""
    lines = []
    for what in sorted({*pinned, *latest}):
        before, now = pinned.get(what, "not due"), latest.get(what, "not due")
        if before.split(" (")[0] != now.split(" (")[0]:
            lines.append(f"{what}: {before} -> {now}")
    return lines


def compare(cache: Path, provider: str) -> list[str]:
    """What differs between the pinned and the newest version. Raises as its parts do."""
    pin = live_clis.PINNED[provider]
    version = newest(provider)
    if version == pin.version:
        print(f"{provider}: {version} is the newest", flush=True)
        return []
    live_clis.fetch(cache, provider)
    before = outcomes(provider, live_clis.argv_of(cache, provider))
    try:
        live_clis.PINNED[provider] = pin._replace(version=version)
        live_clis.fetch(cache, provider)
        after = outcomes(provider, live_clis.argv_of(cache, provider))
    finally:
        live_clis.PINNED[provider] = pin
    different = differences(before, after)
    print(f"{provider}: {pin.version} -> {version}: {len(different)} of {len(after)} certifications differ", flush=True)
    return [f"{provider} {version}: {line}" for line in different]


def main() -> None:
    """All, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True)
    providers = sorted(set(live_clis.PINNED) - {live_clis.NODE})
    parser.add_argument("--only", action="append", choices=providers, help="these (default: all)")
    options = parser.parse_args()
    different: list[str] = []
    untried = 0
    try:
        live_clis.fetch(options.cache, live_clis.NODE)
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"Node.js could not be fetched: {error}")
    for provider in options.only or providers:
        try:
            different += compare(options.cache, provider)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            untried += 1
            print(f"{provider}: could not be tried: {error}", flush=True)
    print("\n".join(["", *different] if different else ["", "nothing differs"]))
    sys.exit(2 if untried else 1 if different else 0)


if __name__ == "__main__":
    main()
