"""One of three workers that serve the same agent, each in its language: this one in Python.

python worker.py URL [STEPS]: with STEPS it is killed once it has done so many.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from typing import Any

import flovyn
from flovyn import AgentContext, agent, task

done = itertools.count()
last: int | None = None


@task
async def step(number: int) -> list[Any]:
    if next(done) == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return [number, "Python"]


@agent(version="1")
async def relay(ctx: AgentContext, steps: int) -> list[Any]:
    return [await step(number) for number in range(steps)]


@agent(version="1")
async def team(ctx: AgentContext, text: str) -> dict[str, Any]:
    # Nobody here serves these: workers in TypeScript and in Rust do.
    loud, letters = ctx.schedule_task("shout", text), ctx.schedule_task("count_letters", text)
    return {"loud": await loud, "letters": await letters}


async def main(url: str) -> None:
    async with flovyn.connect(url) as client:
        await client.worker(agents=[relay, team], tasks=[step]).run()


if __name__ == "__main__":
    last = int(sys.argv[2]) if len(sys.argv) > 2 else None
    asyncio.run(main(sys.argv[1]))
