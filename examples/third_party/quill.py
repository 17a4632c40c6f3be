"""A little CLI of somebody else's that takes one prompt, says what becomes of it in lines of JSON, and ends.

``quill.py ask --conv ID PROMPT``; ``--version``. Prompts: ``[[say:TEXT]]`` answers TEXT, ``[[sleep:S]]`` thinks first,
``[[error:…]]`` fails.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path


def say(kind: str, **fields: object) -> None:
    print(json.dumps({"kind": kind, "at": time.time(), **fields}), flush=True)


def main() -> int:
    if sys.argv[1:] == ["--version"]:
        print("quill 3.1")
        return 0
    conversation, prompt = sys.argv[-2:]
    book = Path.home() / ".quill" / conversation
    book.parent.mkdir(exist_ok=True)
    with book.open("a", encoding="utf-8") as pages:
        pages.write(prompt + "\n")
    say("begin", conversation=conversation)
    time.sleep(sum(map(float, re.findall(r"\[\[sleep:([\d.]+)\]\]", prompt))))
    if "[[error" in prompt:
        say("end", ok=False, why="the ink is dry")
        return 1
    say("end", ok=True, text="".join(re.findall(r"\[\[say:(.*?)\]\]", prompt)) or prompt)
    return 0


if __name__ == "__main__":
    sys.exit(main())
