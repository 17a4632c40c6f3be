"""oauth-cli-coder: the terminal program in tmux; a turn ends when the screen has been the same for some looks."""

from __future__ import annotations

import _turns


def main() -> None:
    from oauth_cli_coder import ClaudeProvider

    provider = ClaudeProvider(cwd=_turns.CWD)
    try:
        _turns.ready("oauth-cli-coder")
        _turns.serve(provider.ask)
    finally:
        provider.close()


if __name__ == "__main__":
    _turns.begin()
    main()
