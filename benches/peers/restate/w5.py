"""S5 on Restate: a crowd of workflows that wait for a promise, which another handler resolves.

A fifth of them (200 at most) is signalled one at a time, the rest back to back.
Usage: w5.py AGENTS
"""

from __future__ import annotations

import asyncio
import sys
import time

import httpx

from engine import Restate, restate
from harness.measure import Span, cpu_of, emit, percentile, rss_mb

IDLE_S = 3.0


async def _signal(client: httpx.AsyncClient, number: int) -> float:
    sent = time.time()
    (await client.post(f"/Waiter/waiter-{number}/go", json=number)).raise_for_status()
    return sent


async def _resumed(client: httpx.AsyncClient, number: int) -> float:
    answer = await client.get(f"/restate/workflow/Waiter/waiter-{number}/attach")
    return float(answer.raise_for_status().json())


async def main(peer: Restate, agents: int) -> None:
    async with peer.client() as client:
        await asyncio.sleep(1)
        idle_mb, span = rss_mb(of=peer.service), Span()
        await asyncio.gather(
            *(client.post(f"/Waiter/waiter-{number}/run/send", json=number) for number in range(agents))
        )
        start_s = span.wall_s
        await asyncio.sleep(IDLE_S)
        waiting_mb, span, cpu = rss_mb(of=peer.service), Span(), cpu_of(peer.service)
        await asyncio.sleep(IDLE_S)
        idle_cpu = (cpu_of(peer.service) - cpu) / span.wall_s

        paced = []
        for number in range(min(agents // 5, 200)):
            sent = await _signal(client, number)
            paced.append(await _resumed(client, number) - sent)
        rest = range(len(paced), agents)
        span = Span()
        sent_at = {number: await _signal(client, number) for number in rest}
        resumed = await asyncio.gather(*(_resumed(client, number) for number in rest))
        burst = [at - sent_at[number] for number, at in zip(rest, resumed, strict=True)]
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
            **peer.figures(),
        )


if __name__ == "__main__":
    with restate() as up:
        asyncio.run(main(up, int(sys.argv[1])))
