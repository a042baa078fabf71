"""Owns the agent of W5, which waits for one signal, and the two ways of signalling a crowd of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import flovyn

BATCH = 100
#: When each agent's code went on, by its number.
resumed: dict[int, float] = {}
#: How many agents have reached their wait.
arrived: set[int] = set()
_woken = asyncio.Event()


@flovyn.agent
async def waiter(ctx: flovyn.AgentContext, number: int) -> int:
    arrived.add(number)
    await ctx.wait_for_signal("go")
    resumed[number] = time.perf_counter()
    _woken.set()
    return number


async def start(client: flovyn.Client, numbers: range) -> None:
    """Start the agents and return when all of them wait."""
    for first in range(numbers.start, numbers.stop, BATCH):
        batch = range(first, min(first + BATCH, numbers.stop))
        await asyncio.gather(*(client.start(waiter, number, id=f"waiter-{number}") for number in batch))
    while not arrived.issuperset(numbers):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)


async def handles(client: flovyn.Client, numbers: range) -> list[flovyn.Handle]:
    """Return the handles of the agents, so that looking them up is no part of a latency."""
    return [await client.handle(f"waiter-{number}") for number in numbers]


async def _until_resumed(numbers: Sequence[int], limit_s: float = 120.0) -> None:
    deadline = time.perf_counter() + limit_s
    for number in numbers:
        while number not in resumed:
            _woken.clear()
            await asyncio.wait_for(_woken.wait(), deadline - time.perf_counter())


async def signal_paced(crowd: Sequence[flovyn.Handle], numbers: range) -> list[float]:
    """Signal one agent after the other, each when the one before has resumed; return the latencies in seconds."""
    latencies = []
    for handle, number in zip(crowd, numbers, strict=True):
        sent = time.perf_counter()
        await handle.signal("go", {"number": number})
        await _until_resumed([number])
        latencies.append(resumed[number] - sent)
    return latencies


async def signal_burst(crowd: Sequence[flovyn.Handle], numbers: range) -> list[float]:
    """Signal the agents back to back, as fast as a signal is acknowledged; return the latencies in seconds."""
    sent = {}
    for handle, number in zip(crowd, numbers, strict=True):
        sent[number] = time.perf_counter()
        await handle.signal("go", {"number": number})
    await _until_resumed(numbers)
    return [resumed[number] - sent[number] for number in numbers]
