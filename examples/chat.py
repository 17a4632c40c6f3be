"""A chat with any provider in a pane: ``python examples/chat.py PROVIDER``. An empty line ends it."""

import sys

from lastword import Runtime

with Runtime.open() as runtime:
    session = runtime.session(sys.argv[1], cwd=".")
    while text := input("> "):
        done = session.run(text)
        print(done.answer if done.status == "completed" else f"{done.status}: {done.error}")
