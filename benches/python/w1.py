"""W1 on Flovyn: one agent, one small durable step after the other.

Usage: w1.py STEPS
"""

from __future__ import annotations

import asyncio
import sys
import time

import flovyn

from harness.content import STEP_RESULT
from harness.measure import Span, directory, emit, percentile, stored_bytes, url

WARM_UP = 20
step_times: list[float] = []


@flovyn.task
async def tiny(number: int) -> dict[str, object]:
    return STEP_RESULT


@flovyn.agent
async def sequential(ctx: flovyn.AgentContext, steps: int) -> int:
    for number in range(steps):
        start = time.perf_counter()
        await tiny(number)
        step_times.append(time.perf_counter() - start)
    return steps


async def main(steps: int) -> None:
    async with flovyn.connect(url()) as client, client.worker(agents=[sequential], tasks=[tiny]):
        await (await client.start(sequential, WARM_UP, id="warm-up")).result()
        step_times.clear()
        span = Span()
        await (await client.start(sequential, steps, id="measured")).result()
        emit(
            p50_us=percentile(step_times, 0.5) * 1e6,
            p99_us=percentile(step_times, 0.99) * 1e6,
            steps_per_s=steps / span.wall_s,
            cpu_us=span.cpu_s / steps * 1e6,
            stored_bytes=stored_bytes(directory()),
        )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
