"""W8 on DBOS: what a parent workflow and the children that it awaits cost the process, which holds them all.

Usage: w8_waiting.py CHILDREN
"""

from __future__ import annotations

import asyncio
import gc
import sys

from dbos import DBOS

from engine import launch
from harness.measure import Span, die, emit, rss_mb

WARM_UP = 3
SETTLE_S = 1.0
arrived: set[int] = set()
may_end = asyncio.Event()


@DBOS.workflow()
async def child(number: int) -> int:
    arrived.add(number)
    await may_end.wait()
    return number


@DBOS.workflow()
async def parent(children: int) -> int:
    handles = [await DBOS.start_workflow_async(child, number) for number in range(children)]
    return sum([await handle.get_result() for handle in handles])


async def main(children: int) -> None:
    may_end.set()
    for _ in range(WARM_UP):
        await parent(5)
    may_end.clear()
    arrived.clear()
    await asyncio.sleep(SETTLE_S)
    gc.collect()
    idle_mb = rss_mb()
    handle = await DBOS.start_workflow_async(parent, children)
    while len(arrived) < children:
        await asyncio.sleep(0.01)
    await asyncio.sleep(SETTLE_S)
    gc.collect()
    waiting_mb, span = rss_mb() - idle_mb, Span()
    may_end.set()
    assert await handle.get_result() == sum(range(children))
    emit(waiting_mb=waiting_mb, kb_per_child=waiting_mb * 1024 / children, join_s=span.wall_s)
    die()


if __name__ == "__main__":
    launch()
    asyncio.run(main(int(sys.argv[1])))
