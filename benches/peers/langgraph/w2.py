"""W2 on LangGraph: many graphs at once, each a few small supersteps, durability="sync".

Usage: w2.py AGENTS STEPS
"""

from __future__ import annotations

import asyncio
import os
import sys

from engine import Loop, async_saver, looping, thread
from harness.content import STEP_RESULT
from harness.measure import Span, emit, rss_mb


async def step(state: Loop) -> dict[str, object]:
    return {"number": state["number"] + 1, "last": STEP_RESULT}


async def main(agents: int, steps: int) -> None:
    graph = looping(step, await async_saver())

    async def run(name: str) -> int:
        end = await graph.ainvoke({"number": 0, "steps": steps}, thread(name), durability="sync")
        return int(end["number"])

    await run("warm-up")
    span = Span()
    results = await asyncio.gather(*(run(f"agent-{number}") for number in range(agents)), return_exceptions=True)
    emit(
        steps_per_s=agents * steps / span.wall_s,
        cpu_s=span.cpu_s,
        rss_peak_mb=rss_mb(peak=True),
        wrong=sum(result != steps for result in results),
    )
    os._exit(0)  # the checkpointer's thread would keep the process


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
