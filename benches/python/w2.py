"""W2 on Flovyn: many agents at once, each a few small durable steps.

Usage: w2.py AGENTS STEPS
"""

from __future__ import annotations

import asyncio
import sys
import time

import flovyn

from harness.content import STEP_RESULT
from harness.measure import Span, emit, percentile, rss_mb, url

step_times: list[float] = []


@flovyn.task
async def tiny(number: int) -> dict[str, object]:
    return STEP_RESULT


@flovyn.agent
async def few_steps(ctx: flovyn.AgentContext, steps: int) -> int:
    for number in range(steps):
        start = time.perf_counter()
        await tiny(number)
        step_times.append(time.perf_counter() - start)
    return steps


async def main(agents: int, steps: int) -> None:
    async with (
        flovyn.connect(url()) as client,
        client.worker(agents=[few_steps], tasks=[tiny], max_agents=agents, max_tasks=agents),
    ):

        async def run(name: str) -> int:
            return await (await client.start(few_steps, steps, id=name)).result()

        await run("warm-up")
        step_times.clear()
        span = Span()
        results = await asyncio.gather(*(run(f"agent-{number}") for number in range(agents)))
        emit(
            steps_per_s=agents * steps / span.wall_s,
            step_p50_ms=percentile(step_times, 0.5) * 1e3,
            step_p99_ms=percentile(step_times, 0.99) * 1e3,
            cpu_s=span.cpu_s,
            rss_peak_mb=rss_mb(peak=True),
            wrong=sum(result != steps for result in results),
        )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
