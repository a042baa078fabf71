"""Several event loops in one process, each in a thread of its own, with a client and agents of its own."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

import flovyn
from flovyn import AgentContext, agent


@agent
async def hops(ctx: AgentContext, n: int) -> int:
    done = 0
    for hop in range(n):
        done += await ctx.run(f"hop {hop}", lambda: 1)
    return done


async def serve() -> list[int]:
    async with flovyn.connect("memory:") as client, client.worker(agents=[hops]):
        handles = [await client.start(hops, 20) for _ in range(30)]
        return [await handle.result(timeout=30) for handle in handles]


def test_agents_of_several_loops_do_not_meet() -> None:
    # Threads take turns often, so that each is interrupted wherever it can be.
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(3) as threads:
            served = [threads.submit(asyncio.run, serve()) for _ in range(3)]
            assert [one.result() for one in served] == [[20] * 30] * 3
    finally:
        sys.setswitchinterval(usual)
