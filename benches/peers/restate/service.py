"""Owns the handlers that Restate calls: sequential steps, a workflow that waits for a promise, a parent with children.

Usage: service.py PORT
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import timedelta

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config
from restate import Context, WorkflowContext, WorkflowSharedContext

from harness.content import STEP_RESULT

steps = restate.Service("Steps")
waiter = restate.Workflow("Waiter")
family = restate.Service("Family")


def tiny() -> dict[str, object]:
    return STEP_RESULT


@steps.handler()
async def sequential(ctx: Context, count: int) -> list[float]:
    """Run steps one after the other; return how long each took, in seconds."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        await ctx.run_typed("tiny", tiny)
        times.append(time.perf_counter() - start)
    return times


@waiter.main()
async def run(ctx: WorkflowContext, number: int) -> float:
    """Wait to be told to go; return when that was, on the wall clock."""
    await ctx.promise("go").value()
    return time.time()


@waiter.handler()
async def go(ctx: WorkflowSharedContext, number: int) -> int:
    """Tell the workflow to go."""
    await ctx.promise("go").resolve(number)
    return number


@family.handler()
async def child(ctx: Context, number: int) -> list[float]:
    """Return the number, and when the first line ran, on the wall clock."""
    return [number, time.time()]


@family.handler()
async def held(ctx: Context, seconds: float) -> list[float]:
    """Do nothing for a while."""
    await ctx.sleep(timedelta(seconds=seconds))
    return [0, time.time()]


@family.handler()
async def parent(ctx: Context, children: int) -> list[float]:
    """Call the children and await all; return their sum and when the first lines of parent and first child ran."""
    line = time.time()
    calls = [ctx.service_call(child, number) for number in range(children)]
    await restate.gather(*calls)
    results = [await call for call in calls]
    return [sum(number for number, _ in results), line, min(first for _, first in results)]


@family.handler()
async def waiting_parent(ctx: Context, of: list[float]) -> int:
    """Call children that are held for a while and await all; return how many these were."""
    children, seconds = of
    calls = [ctx.service_call(held, seconds) for _ in range(int(children))]
    await restate.gather(*calls)
    return len(calls)


if __name__ == "__main__":
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    config.loglevel = "ERROR"
    asyncio.run(serve(restate.app(services=[steps, waiter, family]), config))
