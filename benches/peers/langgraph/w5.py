"""W5 on LangGraph: a crowd of interrupted graphs.

There is no signal: `interrupt` ends the run, and whoever has the answer invokes the graph again in this process. So
this is always one at a time, and memory is caches rather than waiting agents.
Usage: w5.py AGENTS
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from engine import async_saver, thread
from harness.measure import Span, emit, percentile, rss_mb

BATCH = 100
IDLE_S = 3.0
resumed: dict[int, float] = {}


class State(TypedDict):
    number: int


async def wait(state: State) -> State:
    interrupt("go")
    resumed[state["number"]] = time.perf_counter()
    return state


async def main(agents: int) -> None:
    builder = StateGraph(State)
    builder.add_node("wait", wait)
    builder.add_edge(START, "wait")
    graph = builder.compile(checkpointer=await async_saver())

    idle_mb, span = rss_mb(), Span()
    for first in range(0, agents, BATCH):
        batch = range(first, min(first + BATCH, agents))
        starts = (graph.ainvoke({"number": n}, thread(f"waiter-{n}"), durability="sync") for n in batch)
        await asyncio.gather(*starts)
    start_s, waiting_mb = span.wall_s, rss_mb()
    span = Span()
    await asyncio.sleep(IDLE_S)
    idle_cpu = span.cpu_s / span.wall_s

    latencies = []
    for number in range(agents):
        sent = time.perf_counter()
        await graph.ainvoke(Command(resume=1), thread(f"waiter-{number}"), durability="sync")
        latencies.append(resumed[number] - sent)
    emit(
        start_s=start_s,
        paced_p50_ms=percentile(latencies, 0.5) * 1e3,
        paced_p99_ms=percentile(latencies, 0.99) * 1e3,
        rss_mb=waiting_mb,
        kb_per_agent=(waiting_mb - idle_mb) * 1024 / agents,
        idle_cpu_percent=idle_cpu * 100,
        wrong=agents - len(resumed),
    )
    os._exit(0)  # the checkpointer's thread would keep the process


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
