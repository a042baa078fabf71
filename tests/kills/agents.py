"""A process that serves the families until it is killed: agents.py URL FOLDER.

What happens is noted in FOLDER/notes by all processes, a line each: an attempt that begins, and what agents have seen.
Side effects are files in FOLDER/effects, named by their idempotency keys: whoever comes second with a key changes
nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import flovyn
from flovyn import AgentContext, TaskContext, agent, task
from flovyn.child_events import Completed, Request, Signal

folder = Path()
_log = -1


def note(*what: Any) -> None:
    """Note something in one write, so that the lines of several processes do not mix.

    All lines are as long, and no page ends within one: a kill can tear a write where its next page begins.
    """
    line = json.dumps([round(time.time(), 3), *what])
    os.write(_log, line.ljust(511).encode() + b"\n")


@task
async def effect(ctx: TaskContext, name: str, ms: int) -> str:
    """Change something outside, once for each key, however often it is tried."""
    note("try", name, str(ctx.task_id))
    await asyncio.sleep(ms / 2000)
    try:
        with (folder / "effects" / str(ctx.task_id)).open("x") as made:
            made.write(name)
    except FileExistsError:
        pass
    await asyncio.sleep(ms / 2000)
    return name


@agent
async def node(ctx: AgentContext, plan: dict[str, Any]) -> dict[str, Any]:
    """Do the steps of a plan, and return what came of each."""
    did: list[Any] = []
    for number, step in enumerate(plan["steps"]):
        found = await STEPS[step["do"]](ctx, plan, step)
        # The same in every life, since whoever waits for this run may have heard of it.
        note("saw", f"{plan['name']} {number}", found, step["name"] if step["do"] == "effect" else None)
        did.append(found)
    return {"name": plan["name"], "did": did}


def started(ctx: AgentContext, step: dict[str, Any]) -> list[flovyn.Child[Any]]:
    """Start the children of a step, on workers and on machines."""
    children: list[flovyn.Child[Any]] = []
    for child in step["children"]:
        if "machine" in child:
            given = {"userPrompt": f"{child['word']} {child['name']}", "model": "fake/scripted"}
            children.append(ctx.spawn_agent("react-agent", given, mode=flovyn.Local(child["machine"])))
        else:
            children.append(ctx.spawn_agent(node, child))
    return children


async def _effect(ctx: AgentContext, plan: dict[str, Any], step: dict[str, Any]) -> str:
    call = effect.options(queue="default") if step["queued"] else effect
    return await call(step["name"], step["ms"])


async def _nap(ctx: AgentContext, plan: dict[str, Any], step: dict[str, Any]) -> None:
    await ctx.sleep(step["ms"] / 1000)


async def _wait(ctx: AgentContext, plan: dict[str, Any], step: dict[str, Any]) -> Any:
    return await ctx.wait_for_signal("go")


async def _report(ctx: AgentContext, plan: dict[str, Any], step: dict[str, Any]) -> None:
    for number in range(step["count"]):
        await ctx.signal_parent("progress", number)


async def _ask(ctx: AgentContext, plan: dict[str, Any], step: dict[str, Any]) -> Any:
    return await ctx.request_from_parent("ask", step["name"])


async def _join(ctx: AgentContext, plan: dict[str, Any], step: dict[str, Any]) -> list[Any]:
    return await ctx.join_children(started(ctx, step))


async def _settle(ctx: AgentContext, plan: dict[str, Any], step: dict[str, Any]) -> list[Any]:
    children = started(ctx, step)
    for child, mode in zip(children, step["stop"], strict=True):
        if mode is not None:
            with suppress(flovyn.ExecutionClosed):
                await ctx.cancel_child(child, mode, timeout=5)
    ends = await ctx.join_children_settled(children)
    for end in ends:
        if isinstance(end, flovyn.Cancelled):
            raise end  # this run was asked to stop, while it waited
    return [[type(end).__name__, None] if isinstance(end, Exception) else ["Completed", end] for end in ends]


async def _select(ctx: AgentContext, plan: dict[str, Any], step: dict[str, Any]) -> list[Any]:
    children = started(ctx, step)
    pending, found = list(children), list[Any]()
    while pending:
        first = await ctx.select_child(pending)
        pending.remove(first)
        found.append([children.index(first), await first])
    return found


async def _talk(ctx: AgentContext, plan: dict[str, Any], step: dict[str, Any]) -> list[Any]:
    (child,) = started(ctx, step)
    found: list[Any] = []
    while True:
        match await ctx.wait_for_child_event(child):
            case Signal(_, payload):
                found.append(payload)
            case Request(_, payload) as request:
                found.append(payload)
                await request.respond(f"answer to {payload}")
            case Completed(output):
                return [*found, output]
            case other:
                return [*found, type(other).__name__]


async def _steer(ctx: AgentContext, plan: dict[str, Any], step: dict[str, Any]) -> Any:
    (child,) = started(ctx, step)
    await ctx.signal_child(child, "go", f"go {child.id}")
    return await child


async def _handoff(ctx: AgentContext, plan: dict[str, Any], step: dict[str, Any]) -> Any:
    await ctx.handoff_to_agent(node, step["children"][0])


STEPS: dict[str, Any] = {
    "effect": _effect,
    "nap": _nap,
    "wait": _wait,
    "report": _report,
    "ask": _ask,
    "join": _join,
    "settle": _settle,
    "select": _select,
    "talk": _talk,
    "steer": _steer,
    "handoff": _handoff,
}


async def serve(url: str) -> None:
    """Serve for good; the server may be down for the moment, or go down while the worker is made."""
    while True:
        with suppress(flovyn.StorageUnavailable):
            async with flovyn.connect(url) as client, client.worker(agents=[node], tasks=[effect]):
                await asyncio.Event().wait()
        await asyncio.sleep(0.1)


def main() -> None:
    """Serve until the end."""
    global folder, _log  # noqa: PLW0603 - of this process
    folder = Path(sys.argv[2])
    _log = os.open(folder / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    asyncio.run(serve(sys.argv[1]))


if __name__ == "__main__":
    main()
