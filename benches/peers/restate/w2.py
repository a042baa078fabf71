"""S2 on Restate: many invocations at once, each a few small steps.

Usage: w2.py AGENTS STEPS
"""

from __future__ import annotations

import asyncio
import sys

from engine import Restate, restate
from harness.measure import Span, emit, percentile, rss_mb


async def main(peer: Restate, agents: int, steps: int) -> None:
    async with peer.client() as client:
        (await client.post("/Steps/sequential", json=steps)).raise_for_status()
        span, cpu = Span(), peer.cpu_s()
        answers = await asyncio.gather(
            *(client.post("/Steps/sequential", json=steps) for _ in range(agents)), return_exceptions=True
        )
        wall = span.wall_s
        times = [answer.json() for answer in answers if not isinstance(answer, BaseException) and answer.is_success]
        every = [each for one in times for each in one]
        emit(
            steps_per_s=agents * steps / wall,
            step_p50_ms=percentile(every, 0.5) * 1e3,
            step_p99_ms=percentile(every, 0.99) * 1e3,
            cpu_s=peer.cpu_s() - cpu,
            rss_peak_mb=rss_mb(peak=True, of=peer.service),
            wrong=agents - sum(len(one) == steps for one in times),
            **peer.figures(),
        )


if __name__ == "__main__":
    with restate() as up:
        asyncio.run(main(up, int(sys.argv[1]), int(sys.argv[2])))
