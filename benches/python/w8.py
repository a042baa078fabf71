"""W8 on Flovyn: one parent starts many children and joins them, in one process.

A family of one is started over and over: its parent is a plain start, so how long that waits for its first line stands
beside how long its child does.
Usage: w8.py CHILDREN FAMILIES
"""

from __future__ import annotations

import asyncio
import sys
import time

import flovyn

from harness.commits import commits
from harness.measure import Span, emit, percentile, rss_mb, url

WARM_UP = 20
RUNNING = 500
#: When the parent's first line ran, when it asked for its first child, and when that child's first line ran.
lines: dict[str, float] = {}


@flovyn.agent
async def child(ctx: flovyn.AgentContext, number: int) -> int:
    lines.setdefault("child", time.perf_counter())
    return number


@flovyn.agent
async def parent(ctx: flovyn.AgentContext, children: int) -> int:
    lines["parent"] = lines["spawn"] = time.perf_counter()
    return sum(await ctx.join_children([ctx.spawn_agent(child, number) for number in range(children)]))


async def main(children: int, families: int) -> None:
    async with flovyn.connect(url()) as client, client.worker(agents=[parent, child], max_agents=RUNNING):
        started, spawned = [], []

        async def family(of: int, name: str) -> int:
            lines.clear()
            sent = time.perf_counter()
            result = await (await client.start(parent, of, id=name)).result()
            started.append(lines["parent"] - sent)
            spawned.append(lines["child"] - lines["spawn"])
            return result

        for number in range(WARM_UP):
            await family(5, f"warm-up-{number}")
        started.clear()
        spawned.clear()
        before, span = commits(), Span()
        results = [await family(children, f"family-{number}") for number in range(families)]
        wall, cpu = span.wall_s, span.cpu_s
        born = families * children
        alone = {"start_p50_ms": percentile(started, 0.5) * 1e3, "spawn_p50_ms": percentile(spawned, 0.5) * 1e3}
        emit(
            children_per_s=born / wall,
            us_per_child=wall / born * 1e6,
            cpu_us=cpu / born * 1e6,
            commits_per_child=(commits() - before) / born,
            rss_peak_mb=rss_mb(peak=True),
            wrong=sum(result != sum(range(children)) for result in results),
            **(alone if children == 1 else {}),
        )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
