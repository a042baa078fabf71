"""W1 on DBOS: one workflow, one small step after the other, through its async or its blocking API.

Usage: w1.py STEPS async|blocking
"""

from __future__ import annotations

import asyncio
import sys
import time

from dbos import DBOS

from engine import launch
from harness.content import STEP_RESULT
from harness.measure import Span, directory, emit, percentile, stored_bytes

WARM_UP = 20
step_times: list[float] = []


@DBOS.step()
async def tiny(number: int) -> dict[str, object]:
    return STEP_RESULT


@DBOS.step()
def tiny_blocking(number: int) -> dict[str, object]:
    return STEP_RESULT


@DBOS.workflow()
async def sequential(steps: int) -> None:
    for number in range(steps):
        start = time.perf_counter()
        await tiny(number)
        step_times.append(time.perf_counter() - start)


@DBOS.workflow()
def sequential_blocking(steps: int) -> None:
    for number in range(steps):
        start = time.perf_counter()
        tiny_blocking(number)
        step_times.append(time.perf_counter() - start)


async def main(steps: int, api: str) -> None:
    async def run(count: int) -> None:
        if api == "async":
            await sequential(count)
        else:
            await asyncio.to_thread(sequential_blocking, count)

    await run(WARM_UP)
    step_times.clear()
    span = Span()
    await run(steps)
    emit(
        p50_us=percentile(step_times, 0.5) * 1e6,
        p99_us=percentile(step_times, 0.99) * 1e6,
        steps_per_s=steps / span.wall_s,
        cpu_us=span.cpu_s / steps * 1e6,
        stored_bytes=stored_bytes(directory()),
    )
    DBOS.destroy()


if __name__ == "__main__":
    launch()
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
