"""S6 on Flovyn: how long a started run waits until its agent's first line runs, one run at a time.

Usage: dispatch.py STARTS
"""

from __future__ import annotations

import asyncio
import sys
import time

import flovyn

from harness.measure import emit, percentile, url

WARM_UP = 20
entered: dict[int, float] = {}


@flovyn.agent
async def hello(ctx: flovyn.AgentContext, number: int) -> int:
    entered[number] = time.perf_counter()
    return number


async def main(starts: int) -> None:
    async with flovyn.connect(url()) as client, client.worker(agents=[hello]):

        async def run(number: int) -> float:
            sent = time.perf_counter()
            handle = await client.start(hello, number, id=f"hello-{number}")
            await handle.result()
            return entered[number] - sent

        for number in range(starts, starts + WARM_UP):
            await run(number)
        waits = [await run(number) for number in range(starts)]
        emit(dispatch_p50_ms=percentile(waits, 0.5) * 1e3, dispatch_p99_ms=percentile(waits, 0.99) * 1e3)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
