"""W1 on LangGraph: one graph, one small superstep after the other; or `@task` calls in its functional API.

`graph` is durable before the next step runs. `task` is not, even with durability="sync": its writes are handed to a
thread and not awaited.
Usage: w1.py STEPS graph|task
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from typing import Any

from langgraph.func import entrypoint, task

from engine import Loop, looping, saver, thread
from harness.content import STEP_RESULT
from harness.measure import Span, directory, emit, percentile, stored_bytes

WARM_UP = 20
begun_at: list[float] = []
task_times: list[float] = []


def step(state: Loop) -> dict[str, object]:
    begun_at.append(time.perf_counter())
    return {"number": state["number"] + 1, "last": STEP_RESULT}


@task
def tiny(number: int) -> dict[str, object]:
    return STEP_RESULT


def functional(checkpointer: Any) -> Any:
    @entrypoint(checkpointer=checkpointer)
    def sequential(steps: int) -> int:
        for number in range(steps):
            start = time.perf_counter()
            tiny(number).result()
            task_times.append(time.perf_counter() - start)
        return steps

    return sequential


def main(steps: int, api: str) -> None:
    checkpointer = saver()
    graph = looping(step, checkpointer) if api == "graph" else functional(checkpointer)

    def run(count: int, name: str) -> None:
        graph.invoke({"number": 0, "steps": count} if api == "graph" else count, thread(name), durability="sync")

    run(WARM_UP, "warm-up")
    begun_at.clear()
    task_times.clear()
    span = Span()
    run(steps, "measured")
    times = task_times or [after - before for before, after in pairwise(begun_at)]
    emit(
        p50_us=percentile(times, 0.5) * 1e6,
        p99_us=percentile(times, 0.99) * 1e6,
        steps_per_s=steps / span.wall_s,
        cpu_us=span.cpu_s / steps * 1e6,
        stored_bytes=stored_bytes(directory()),
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
