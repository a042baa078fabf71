"""A parent with children, for processes that are killed: ``family_victim.py URL ID LOG KILL_AT``.

Every call of a task is a line of the log; the process kills itself before the KILL_AT-th of its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import flovyn
from flovyn import AgentContext, agent, task

_log = Path(sys.argv[3]) if __name__ == "__main__" else Path(os.devnull)
_left = int(sys.argv[4]) if __name__ == "__main__" else 0


@task
async def look(topic: str) -> str:
    """Look something up."""
    global _left
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    with _log.open("a") as log:
        log.write(f"{topic}\n")
    return topic.upper()


@agent
async def researcher(ctx: AgentContext, topic: str) -> str:
    """Look at a topic twice."""
    first = await look(f"{topic} 1")
    return f"{first} + {await look(f'{topic} 2')}"


@agent
async def lead(ctx: AgentContext, topics: list[str]) -> str:
    """Have each topic researched."""
    children = [ctx.spawn_agent(researcher, topic) for topic in topics]
    found = await asyncio.gather(*children)
    last = await ctx.spawn_agent(researcher, "last")
    return ", ".join([*found, last])


if __name__ == "__main__":
    print(flovyn.run(lead, ["otters", "seals"], id=sys.argv[2], url=sys.argv[1]))
