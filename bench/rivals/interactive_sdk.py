"""claude-interactive-sdk: the terminal program in tmux, a Stop hook and the transcript."""

from __future__ import annotations

import asyncio

import _turns


async def main() -> None:
    import claude_interactive_sdk as sdk

    options = sdk.ClaudeAgentOptions(cli_path=_turns.CLI, cwd=_turns.CWD, permission_mode="bypassPermissions")
    async with sdk.ClaudeInteractiveClient(options=options) as client:

        async def ask(prompt: str) -> str:
            await client.query(prompt)
            answer = ""
            async for message in client.receive_response():
                if isinstance(message, sdk.ResultMessage):
                    answer = message.result or ""
            return answer

        _turns.ready("claude-interactive-sdk")
        await _turns.serve_async(ask)


if __name__ == "__main__":
    _turns.begin()
    asyncio.run(main())
