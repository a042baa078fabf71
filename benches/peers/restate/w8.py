"""W8 on Restate: one parent handler calls many child handlers and awaits all; then one whose children take a while.

What the waiting parent costs is measured in the service, which holds its children too.
Usage: w8.py CHILDREN FAMILIES
"""

from __future__ import annotations

import asyncio
import sys
import time

import httpx

from engine import Restate, restate
from harness.measure import Span, emit, percentile, rss_mb

WARM_UP = 20
SETTLE_S, HELD_S = 1.0, 10.0
PATIENCE_S = 600.0
#: More are not all called while the first are held.
HELD_AT_MOST = 1_000


async def _waiting(peer: Restate, client: httpx.AsyncClient, children: int) -> dict[str, float]:
    await asyncio.sleep(SETTLE_S)
    idle_mb = rss_mb(of=peer.service)
    asked = asyncio.create_task(client.post("/Family/waiting_parent", json=[children, HELD_S]))
    await asyncio.sleep(HELD_S - SETTLE_S)
    waiting_mb = rss_mb(of=peer.service) - idle_mb
    assert (await asked).raise_for_status().json() == children
    return {"waiting_mb": waiting_mb, "kb_per_child": waiting_mb * 1024 / children}


async def main(peer: Restate, children: int, families: int) -> None:
    async with peer.client() as client:
        started, spawned = [], []

        async def family(of: int) -> int:
            sent = time.time()
            answer = await client.post("/Family/parent", json=of, timeout=PATIENCE_S)
            result, line, first = answer.raise_for_status().json()
            started.append(line - sent)
            spawned.append(first - line)
            return result

        for _ in range(WARM_UP):
            await family(5)
        started.clear()
        spawned.clear()
        span, cpu = Span(), peer.cpu_s()
        results = [await family(children) for _ in range(families)]
        wall, used = span.wall_s, peer.cpu_s() - cpu
        born = families * children
        alone = {"start_p50_ms": percentile(started, 0.5) * 1e3, "spawn_p50_ms": percentile(spawned, 0.5) * 1e3}
        peak_mb = rss_mb(peak=True, of=peer.service)
        waiting = await _waiting(peer, client, children) if 1 < children <= HELD_AT_MOST else {}
        emit(
            children_per_s=born / wall,
            us_per_child=wall / born * 1e6,
            cpu_us=used / born * 1e6,
            rss_peak_mb=peak_mb,
            wrong=sum(result != sum(range(children)) for result in results),
            **peer.figures(),
            **(alone if children == 1 else waiting),
        )


if __name__ == "__main__":
    with restate() as up:
        asyncio.run(main(up, int(sys.argv[1]), int(sys.argv[2])))
