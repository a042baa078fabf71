"""W8 on DBOS: one parent workflow starts many child workflows and awaits the results of all, in one process.

Usage: w8.py CHILDREN FAMILIES
"""

from __future__ import annotations

import asyncio
import sys
import time

from dbos import DBOS

from engine import launch
from harness.commits import commits
from harness.measure import Span, emit, percentile, rss_mb

WARM_UP = 3
#: When the parent's first line ran, when it asked for its first child, and when that child's first line ran.
lines: dict[str, float] = {}


@DBOS.workflow()
async def child(number: int) -> int:
    lines.setdefault("child", time.perf_counter())
    return number


@DBOS.workflow()
async def parent(children: int) -> int:
    lines["parent"] = lines["spawn"] = time.perf_counter()
    handles = [await DBOS.start_workflow_async(child, number) for number in range(children)]
    return sum([await handle.get_result() for handle in handles])


async def main(children: int, families: int) -> None:
    started, spawned = [], []

    async def family(of: int) -> int:
        lines.clear()
        sent = time.perf_counter()
        result = await (await DBOS.start_workflow_async(parent, of)).get_result()
        started.append(lines["parent"] - sent)
        spawned.append(lines["child"] - lines["spawn"])
        return result

    for _ in range(WARM_UP):
        await family(5)
    started.clear()
    spawned.clear()
    before, span = commits(), Span()
    results = [await family(children) for _ in range(families)]
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
    DBOS.destroy()


if __name__ == "__main__":
    launch()
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
