"""W2 on DBOS: many workflows at once, each a few small steps.

Usage: w2.py AGENTS STEPS
"""

from __future__ import annotations

import asyncio
import sys
import time

from dbos import DBOS

from engine import launch
from harness.content import STEP_RESULT
from harness.measure import Span, emit, percentile, rss_mb

step_times: list[float] = []


@DBOS.step()
async def tiny(number: int) -> dict[str, object]:
    return STEP_RESULT


@DBOS.workflow()
async def few_steps(steps: int) -> int:
    for number in range(steps):
        start = time.perf_counter()
        await tiny(number)
        step_times.append(time.perf_counter() - start)
    return steps


async def main(agents: int, steps: int) -> None:
    await few_steps(5)
    step_times.clear()
    span = Span()
    results = await asyncio.gather(*(few_steps(steps) for _ in range(agents)), return_exceptions=True)
    emit(
        steps_per_s=agents * steps / span.wall_s,
        step_p50_ms=percentile(step_times, 0.5) * 1e3,
        step_p99_ms=percentile(step_times, 0.99) * 1e3,
        cpu_s=span.cpu_s,
        rss_peak_mb=rss_mb(peak=True),
        wrong=sum(result != steps for result in results),
    )
    DBOS.destroy()


if __name__ == "__main__":
    launch()
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
