"""W5 on Flovyn: a crowd of waiting agents, what they cost, and how fast a signal reaches them.

A fifth of them (200 at most) is signalled one at a time, the rest back to back. All stay parked in memory; at most
500 run at once.
Usage: w5.py AGENTS
"""

from __future__ import annotations

import asyncio
import sys

import flovyn

from harness.measure import Span, emit, percentile, rss_mb, url
from waiting import handles, signal_burst, signal_paced, start, waiter

WARM_UP = 20
RUNNING = 500
IDLE_S = 3.0


async def main(agents: int) -> None:
    async with flovyn.connect(url()) as client, client.worker(agents=[waiter], max_agents=RUNNING):
        warm_up = range(agents, agents + WARM_UP)
        await start(client, warm_up)
        await signal_burst(await handles(client, warm_up), warm_up)

        idle_mb, span = rss_mb(), Span()
        await start(client, range(agents))
        start_s, waiting_mb = span.wall_s, rss_mb()
        span = Span()
        await asyncio.sleep(IDLE_S)
        idle_cpu = span.cpu_s / span.wall_s

        paced = range(min(agents // 5, 200))
        burst = range(paced.stop, agents)
        crowd = await handles(client, range(agents))
        one_at_a_time = await signal_paced(crowd[: paced.stop], paced)
        span = Span()
        back_to_back = await signal_burst(crowd[paced.stop :], burst)
        emit(
            start_s=start_s,
            paced_p50_ms=percentile(one_at_a_time, 0.5) * 1e3,
            paced_p99_ms=percentile(one_at_a_time, 0.99) * 1e3,
            burst_p50_ms=percentile(back_to_back, 0.5) * 1e3,
            burst_p99_ms=percentile(back_to_back, 0.99) * 1e3,
            burst_per_s=len(burst) / span.wall_s,
            rss_mb=waiting_mb,
            kb_per_agent=(waiting_mb - idle_mb) * 1024 / agents,
            idle_cpu_percent=idle_cpu * 100,
        )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
