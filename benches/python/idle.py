"""S9 on Flovyn: what a server costs before any work, and what it and a worker cost that have nothing to do.

Usage: idle.py SECONDS
"""

from __future__ import annotations

import asyncio
import sys

import flovyn

from harness.measure import Span, cpu_of, emit, rss_mb, servers, url

SETTLE_S = 1.0


@flovyn.agent
async def unused(ctx: flovyn.AgentContext, number: int) -> int:
    return number


async def main(seconds: float) -> None:
    await asyncio.sleep(SETTLE_S)
    start_mb = sum(rss_mb(of=pid) for pid in servers())
    async with flovyn.connect(url()) as client, client.worker(agents=[unused]):
        await asyncio.sleep(SETTLE_S)
        span, before = Span(), sum(cpu_of(pid) for pid in servers())
        await asyncio.sleep(seconds)
        wall, own = span.wall_s, span.cpu_s
        spent = sum(cpu_of(pid) for pid in servers()) - before
        emit(
            server_start_mb=start_mb,
            server_idle_percent=spent / wall * 100,
            idle_cpu_percent=own / wall * 100,
        )


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
