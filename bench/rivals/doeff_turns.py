"""doeff-agents: the terminal program in tmux, the loop of its README: a look each second until it is blocked again."""

from __future__ import annotations

import json
import time
from pathlib import Path

import _turns

LOOK_S = 1.0


def main() -> None:
    from doeff_agents import AgentType, LaunchConfig, SessionStatus, monitor_session, send_message, session_scope
    from doeff_agents.session import capture_output

    settings = Path.home() / ".claude.json"  # it starts nothing without this entry; the CLI has a key
    known = json.loads(settings.read_text())
    settings.write_text(json.dumps({**known, "oauthAccount": {}}))

    config = LaunchConfig(agent_type=AgentType.CLAUDE, work_dir=Path(_turns.CWD))
    with session_scope("bench", config) as session:

        def ask(prompt: str) -> str:
            send_message(session, prompt)
            worked = False
            while True:
                time.sleep(LOOK_S)
                monitor_session(session)
                if session.is_terminal:
                    raise RuntimeError(f"the session is {session.status}")
                worked = worked or session.status == SessionStatus.RUNNING
                if worked and session.status == SessionStatus.BLOCKED:
                    return str(capture_output(session))

        _turns.ready("doeff-agents")
        _turns.serve(ask)


if __name__ == "__main__":
    _turns.begin()
    main()
