"""W5 on DBOS: a crowd of workflows that wait for a message.

Ten of them are messaged one at a time (its poll of 1 s makes more too slow), the rest back to back.
Usage: w5.py AGENTS
"""

from __future__ import annotations

import asyncio
import sys
import time

from dbos import DBOS, SetWorkflowID

from engine import launch
from harness.measure import Span, die, emit, percentile, rss_mb

PACED = 10
IDLE_S = 3.0
LIMIT_S = 300.0
resumed: dict[int, float] = {}


@DBOS.workflow()
async def waiter(number: int) -> None:
    await DBOS.recv_async("go", timeout_seconds=3600)
    resumed[number] = time.perf_counter()


async def _send(number: int) -> float:
    sent = time.perf_counter()
    await DBOS.send_async(f"waiter-{number}", {"number": number}, "go")
    return sent


async def _until_resumed(count: int) -> None:
    deadline = time.perf_counter() + LIMIT_S
    while len(resumed) < count and time.perf_counter() < deadline:
        await asyncio.sleep(0.001)


async def main(agents: int) -> None:
    idle_mb, span = rss_mb(), Span()
    for number in range(agents):
        with SetWorkflowID(f"waiter-{number}"):
            await DBOS.start_workflow_async(waiter, number)
    start_s = span.wall_s
    await asyncio.sleep(IDLE_S)
    waiting_mb, span = rss_mb(), Span()
    await asyncio.sleep(IDLE_S)
    idle_cpu = span.cpu_s / span.wall_s

    paced = []
    for number in range(PACED):
        sent = await _send(number)
        await _until_resumed(number + 1)
        paced.append(resumed[number] - sent)
    span = Span()
    sent_at = {number: await _send(number) for number in range(PACED, agents)}
    await _until_resumed(agents)
    burst = [resumed[number] - sent for number, sent in sent_at.items() if number in resumed]
    emit(
        start_s=start_s,
        paced_p50_ms=percentile(paced, 0.5) * 1e3,
        paced_p99_ms=percentile(paced, 0.99) * 1e3,
        burst_p50_ms=percentile(burst, 0.5) * 1e3,
        burst_p99_ms=percentile(burst, 0.99) * 1e3,
        burst_per_s=len(burst) / span.wall_s,
        rss_mb=waiting_mb,
        kb_per_agent=(waiting_mb - idle_mb) * 1024 / agents,
        idle_cpu_percent=idle_cpu * 100,
        wrong=agents - len(resumed),
    )
    die()


if __name__ == "__main__":
    launch()
    asyncio.run(main(int(sys.argv[1])))
