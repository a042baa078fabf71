"""Owns the handlers that Restate calls: sequential steps, and a workflow that waits for a promise.

Usage: service.py PORT
"""

from __future__ import annotations

import asyncio
import sys
import time

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config
from restate import Context, WorkflowContext, WorkflowSharedContext

from harness.content import STEP_RESULT

steps = restate.Service("Steps")
waiter = restate.Workflow("Waiter")


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


if __name__ == "__main__":
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    config.loglevel = "ERROR"
    asyncio.run(serve(restate.app(services=[steps, waiter]), config))
