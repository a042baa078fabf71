"""Owns how LangGraph is opened on SQLite, and the small graphs the workloads share.

Found with checkpoint-sqlite 3.1.2: WAL with synchronous=FULL. With `durability="sync"` a superstep costs 2 fsyncs and
is durable before the next one runs; with `"async"`, LangGraph's default, it is written behind.
"""

from __future__ import annotations

import sqlite3
from typing import Any, TypedDict

import aiosqlite
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from harness.measure import directory


class Loop(TypedDict):
    """State of the looping graph: where it is, how far it goes, the last result."""

    number: int
    steps: int
    last: dict[str, object]


def saver() -> SqliteSaver:
    """Open the blocking checkpointer."""
    opened = SqliteSaver(sqlite3.connect(directory() / "langgraph.db", check_same_thread=False))
    opened.setup()
    return opened


async def async_saver() -> AsyncSqliteSaver:
    """Open the asyncio checkpointer."""
    opened = AsyncSqliteSaver(await aiosqlite.connect(directory() / "langgraph.db"))
    await opened.setup()
    return opened


def thread(name: str) -> Any:
    """Return the run configuration that names a conversation."""
    return {"configurable": {"thread_id": name}, "recursion_limit": 1_000_000}


def looping(node: Any, checkpointer: Any) -> Any:
    """Compile a graph that runs `node` once per superstep until `number` reaches `steps`."""
    graph = StateGraph(Loop)
    graph.add_node("step", node)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda s: "step" if s["number"] < s["steps"] else END, ["step", END])
    return graph.compile(checkpointer=checkpointer)
