"""Many sessions at once from asyncio: each has a pane of its own, none waits for another.

``python examples/async_many.py [COUNT]``; the CLIs are scripted ones.
"""

from __future__ import annotations

import asyncio
import sys
import time

from lastword import AsyncSession, Completion
from lastword.runtime.testing import rehearsed_async_runtime

DEADLINE_S = 60.0


async def one(session: AsyncSession, number: int) -> Completion:
    """One turn, which takes half a second in its CLI."""
    done = await session.run(f"[[sleep:0.5]][[say:answer {number}]]", deadline_s=DEADLINE_S)
    await session.close()
    return done


async def main(count: int) -> int:
    """Open them all, run them all, count the last words."""
    async with rehearsed_async_runtime() as rehearsed:
        started = time.monotonic()
        opening = (rehearsed.runtime.session(rehearsed.provider, cwd=rehearsed.cwd) for _ in range(count))
        sessions = await asyncio.gather(*opening)
        done = await asyncio.gather(*(one(session, number) for number, session in enumerate(sessions)))
        took_s = time.monotonic() - started
    right = sum(turn.answer == f"answer {number}" for number, turn in enumerate(done))
    print(f"{right} of {count} turns completed with their own answer, {took_s:.2f} s in all")
    return 0 if right == count else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)))
