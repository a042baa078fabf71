"""W4 on LangGraph: one node whose output is large, incompressible text; durability="sync".

Usage: w4.py MIB
"""

from __future__ import annotations

import sys
import time
from typing import TypedDict

from langgraph.graph import START, StateGraph

from engine import saver, thread
from harness.content import noise_text
from harness.measure import directory, emit, reset_peak, rss_mb, settled_bytes


class State(TypedDict):
    output: str


def main(mebibytes: int) -> None:
    size = mebibytes << 20
    output = noise_text(size)
    returned: list[float] = []

    def large(state: State) -> State:
        returned.append(time.perf_counter())
        return {"output": output}

    graph = StateGraph(State)
    graph.add_node("large", large)
    graph.add_edge(START, "large")
    compiled = graph.compile(checkpointer=saver())
    reset_peak()
    before = rss_mb()
    compiled.invoke({"output": ""}, thread("payload"), durability="sync")
    step_s = time.perf_counter() - returned[0]
    grown, peak = rss_mb(peak=True) - before, rss_mb(peak=True)
    start = time.perf_counter()
    same = compiled.get_state(thread("payload")).values["output"] == output
    read_s = time.perf_counter() - start
    emit(step_ms=step_s * 1e3, read_ms=read_s * 1e3, rss_growth_mb=grown, rss_peak_mb=peak, wrong=int(not same))
    emit(stored_ratio=settled_bytes(directory()) / size)


if __name__ == "__main__":
    main(int(sys.argv[1]))
