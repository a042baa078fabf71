"""S1 on Restate: one invocation, one small step after the other.

Usage: w1.py STEPS
"""

from __future__ import annotations

import asyncio
import sys

from engine import Restate, restate
from harness.measure import Span, emit, percentile

WARM_UP = 20


async def main(peer: Restate, steps: int) -> None:
    async with peer.client() as client:

        async def run(count: int) -> list[float]:
            answer = await client.post("/Steps/sequential", json=count)
            return list(answer.raise_for_status().json())

        await run(WARM_UP)
        span, cpu = Span(), peer.cpu_s()
        times = await run(steps)
        emit(
            p50_us=percentile(times, 0.5) * 1e6,
            p99_us=percentile(times, 0.99) * 1e6,
            steps_per_s=steps / span.wall_s,
            cpu_us=(peer.cpu_s() - cpu) / steps * 1e6,
            **peer.figures(),
        )


if __name__ == "__main__":
    with restate() as up:
        asyncio.run(main(up, int(sys.argv[1])))
