"""lastword itself, as a host would use it: ``python ours.py CLI CWD structured|tmux [power|process]``. Committed before
it is told.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import _turns

TURN_S = 120.0


def main(transport: str, durability: Any = "power") -> None:
    from lastword import Runtime

    state = Path(_turns.CWD).parent / "state"
    executables = {"claude-code": [_turns.CLI]}
    with Runtime.open(state, env=os.environ, executables=executables, durability=durability) as runtime:
        session = runtime.session(
            "claude-code", cwd=_turns.CWD, transport=transport, permission_mode="bypassPermissions"
        )

        def ask(prompt: str) -> str:
            return session.run(prompt, deadline_s=TURN_S).answer or ""

        _turns.ready("lastword")
        _turns.serve(ask)
        session.close()


if __name__ == "__main__":
    _turns.begin()
    main(*sys.argv[3:])
