"""W8 on Flovyn: what a parent costs the process that holds it while it awaits its children.

The children are on a queue that nobody serves, so the process holds the waiting parent alone. Once it has been looked
at, the process serves the children too, and the parent joins them.
Usage: w8_waiting.py CHILDREN
"""

from __future__ import annotations

import asyncio
import gc
import sys

import flovyn

from harness.commits import commits
from harness.measure import Span, emit, rss_mb, url

LATER = "later"
WARM_UP = 20
RUNNING = 500
SETTLE_S = 1.0
LIMIT_S = 120.0


@flovyn.agent
async def child(ctx: flovyn.AgentContext, number: int) -> int:
    return number


@flovyn.agent
async def waiting_parent(ctx: flovyn.AgentContext, children: int) -> int:
    return sum(await ctx.join_children([ctx.spawn_agent("child", n, queue=LATER) for n in range(children)]))


async def _parked(before: int) -> None:
    """Return once all children are born and the parent waits: once commits have come and no more come."""
    seen, quiet_s = before, 0.0
    while quiet_s < SETTLE_S:
        await asyncio.sleep(SETTLE_S / 4)
        now = commits()
        quiet_s = quiet_s + SETTLE_S / 4 if now == seen and now > before + 1 else 0.0
        seen = now


async def main(children: int) -> None:
    async with flovyn.connect(url()) as client, client.worker(agents=[waiting_parent]):

        async def join(*handles: flovyn.Handle) -> list[int]:
            async with client.worker(agents=[child], queue=LATER, max_agents=RUNNING):
                return [await handle.result() for handle in handles]

        await join(*[await client.start(waiting_parent, 5, id=f"waiting-warm-up-{n}") for n in range(WARM_UP)])
        await asyncio.sleep(SETTLE_S)
        gc.collect()
        idle_mb, before = rss_mb(), commits()
        handle = await client.start(waiting_parent, children, id="waiting-family")
        await asyncio.wait_for(_parked(before), LIMIT_S)
        gc.collect()
        waiting_mb, span = rss_mb() - idle_mb, Span()
        assert await join(handle) == [sum(range(children))]
        emit(waiting_mb=waiting_mb, kb_per_child=waiting_mb * 1024 / children, join_s=span.wall_s)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
