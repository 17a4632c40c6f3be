"""Words of Claude Code that more than one scripted program says or knows."""

from __future__ import annotations

REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file "
    "edit, the new_string was NOT written to the file). STOP what you are doing and wait for the user to "
    "tell you how to proceed."
)
API_WORDS = {400: "unknown", 401: "authentication_failed", 403: "authentication_failed", 429: "rate_limit"}
SAFE_COMMANDS = frozenset(("echo", "sleep", "ls", "cat", "pwd", "true", "false", "date", "head", "wc", "sort"))
