"""W5 on Flovyn, evicted agents: what they cost a process that holds none of them in memory.

`begin` starts the agents and dies as by kill -9. `resume` is a new process: it compares its memory while it serves
an empty database with its memory while it serves the waiting crowd, then signals all of them.
Usage: w5_evicted.py AGENTS begin|resume
"""

from __future__ import annotations

import asyncio
import sys

import flovyn

from harness.measure import Span, die, directory, emit, percentile, rss_mb
from waiting import handles, resumed, signal_burst, signal_paced, start, waiter

SETTLE_S = 1.0
IDLE_S = 3.0


async def begin(agents: int) -> None:
    async with flovyn.connect(f"sqlite:{directory() / 'flovyn.db'}") as client, client.worker(agents=[waiter]):
        await start(client, range(agents))
        die()


async def resume(agents: int) -> None:
    async with flovyn.connect(f"sqlite:{directory() / 'empty.db'}") as client, client.worker(agents=[waiter]):
        await asyncio.sleep(SETTLE_S)
        empty_mb = rss_mb()
    async with flovyn.connect(f"sqlite:{directory() / 'flovyn.db'}") as client, client.worker(agents=[waiter]):
        await asyncio.sleep(SETTLE_S)
        crowd_mb, span = rss_mb(), Span()
        await asyncio.sleep(IDLE_S)
        idle_cpu = span.cpu_s / span.wall_s
        paced = range(min(agents // 5, 200))
        crowd = await handles(client, range(agents))
        latencies = await signal_paced(crowd[: paced.stop], paced)
        await signal_burst(crowd[paced.stop :], range(paced.stop, agents))
        emit(
            evicted_rss_mb=crowd_mb,
            kb_per_evicted=(crowd_mb - empty_mb) * 1024 / agents,
            evicted_idle_cpu_percent=idle_cpu * 100,
            evicted_p50_ms=percentile(latencies, 0.5) * 1e3,
            wrong=agents - len(resumed),
        )


if __name__ == "__main__":
    asyncio.run({"begin": begin, "resume": resume}[sys.argv[2]](int(sys.argv[1])))
