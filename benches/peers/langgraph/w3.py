"""W3 on LangGraph: one invocation per turn, the conversation in the graph's state.

`full` uses `add_messages`, the default; `delta` its DeltaChannel (beta). `grow` runs T turns, prints, and dies as by
kill -9; `recover` is a new process that loads the state and runs one turn (nothing resumes by itself).
Usage: w3.py TURNS full|delta grow|recover
"""

from __future__ import annotations

import time

began = time.perf_counter()
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages

imported = time.perf_counter()
import sys
from typing import Annotated, Any, TypedDict

from engine import saver, thread
from harness.content import ANSWER_BYTES, TOOL_BYTES, TURN_BYTES, USER_BYTES, prose
from harness.measure import (
    Span,
    die,
    directory,
    emit,
    growth,
    rss_mb,
    settled_bytes,
    spawned_at,
    stored_bytes,
)


class Full(TypedDict):
    messages: Annotated[list[Any], add_messages]


class Delta(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


marks: dict[str, float] = {}


def assistant(state: Any) -> dict[str, list[Any]]:
    marks.setdefault("entered", time.time())
    at = len(state["messages"])
    call = {"name": "tool", "args": {}, "id": f"call-{at}"}
    return {"messages": [AIMessage(content=prose(ANSWER_BYTES, at), id=f"message-{at}", tool_calls=[call])]}


def tool(state: Any) -> dict[str, list[Any]]:
    at = len(state["messages"])
    reply = ToolMessage(content=prose(TOOL_BYTES, at), id=f"message-{at}", tool_call_id=f"call-{at - 1}")
    return {"messages": [reply]}


def conversation(channel: str) -> Any:
    graph = StateGraph(Full if channel == "full" else Delta)
    graph.add_node("assistant", assistant)
    graph.add_node("tool", tool)
    graph.add_edge(START, "assistant")
    graph.add_edge("assistant", "tool")
    return graph.compile(checkpointer=saver())


def _turn(graph: Any, turn: int) -> None:
    user = HumanMessage(content=prose(USER_BYTES, -turn), id=f"user-{turn}")
    graph.invoke({"messages": [user]}, thread("chat"), durability="sync")


def grow(turns: int, channel: str) -> None:
    graph = conversation(channel)
    empty = settled_bytes(directory())
    span, turn_times = Span(), []
    for turn in range(turns):
        start = time.perf_counter()
        _turn(graph, turn)
        turn_times.append(time.perf_counter() - start)
    total = span.wall_s
    settled = settled_bytes(directory()) - empty
    emit(
        total_s=total,
        **growth(turn_times),
        file_bytes=stored_bytes(directory()),
        stored_ratio=settled / (turns * TURN_BYTES),
        rss_peak_mb=rss_mb(peak=True),
    )
    die()


def recover(turns: int, channel: str) -> None:
    graph = conversation(channel)
    start = time.perf_counter()
    messages = graph.get_state(thread("chat")).values["messages"]
    loaded = time.perf_counter() - start
    invoked = time.time()
    _turn(graph, turns)
    emit(
        recover_import_ms=(imported - began) * 1e3,
        recover_ms=(marks["entered"] - invoked) * 1e3,
        recover_step_ms=(marks["entered"] - spawned_at()) * 1e3,
        load_ms=loaded * 1e3,
        recover_rss_mb=rss_mb(peak=True),
        wrong=len(messages) - turns * 3,
    )


if __name__ == "__main__":
    {"grow": grow, "recover": recover}[sys.argv[3]](int(sys.argv[1]), sys.argv[2])
