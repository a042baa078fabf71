"""The scenarios' agent in Python: runs a program of ops.

interpreter.py URL ID PROGRAM [KILL_AT]: dies in its n-th step.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from typing import Any

import flovyn
from flovyn import AgentContext, agent, task

Program = dict[str, Any]

_kill_at = int(sys.argv[4]) if len(sys.argv) > 4 else 0
_steps = itertools.count(1)


class Refused(Exception):
    """What the failing task raises."""


def _count() -> None:
    if next(_steps) == _kill_at:
        os.kill(os.getpid(), signal.SIGKILL)


@task
async def double(x: int) -> int:
    _count()
    return x * 2


@task
async def echo(value: Any) -> Any:
    _count()
    return value


@task(no_retry=(Refused,))
async def fails(why: str) -> None:
    _count()
    raise Refused(why)


async def step(ctx: AgentContext[Any], op: list[Any], found: dict[str, Any]) -> None:  # noqa: PLR0912 - one branch an op
    """Do one op."""
    match op:
        case ["task", value, name]:
            found[name] = await double(value)
        case ["echo", value, name]:
            found[name] = await echo(value)
        case ["keyed", value, key, name]:
            found[name] = await double.options(key=key)(value)
        case ["fails", why, name]:
            try:
                await fails(why)
            except flovyn.TaskFailed as error:
                found[name] = [error.type, error.message]
        case ["all", values, name]:
            found[name] = await asyncio.gather(*map(double, values))
        case ["entry", role, content]:
            ctx.append_entry(role, content)
        case ["signal", word, name]:
            found[name] = await ctx.wait_for_signal(word)
        case ["has", word, name]:
            found[name] = await ctx.has_signal(word)
        case ["drain", word, name]:
            found[name] = await ctx.drain_signals(word)
        case ["sleep", seconds]:
            await ctx.sleep(seconds)
        case ["once", word, value, name]:
            found[name] = await ctx.once(word, double, value)
        case ["usage", model, before, after]:
            ctx.record_usage(model, before, after)
        case ["random", name]:
            found[name] = [ctx.random(), str(ctx.random_uuid())]
        case _:
            raise ValueError(f"unknown op {op}")


@agent(version="1")
async def linear(ctx: AgentContext, program: Program) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for op in program["ops"]:
        await step(ctx, op, found)
    return found


@agent(version="1", state=dict)
async def looping(ctx: AgentContext[dict[str, Any]], program: Program) -> dict[str, Any]:
    while (at := ctx.state.get("at", 0)) < len(program["ops"]):
        found = dict(ctx.state.get("found", {}))
        await step(ctx, program["ops"][at], found)
        await ctx.checkpoint({"at": at + 1, "found": found})
    return ctx.state.get("found", {})


if __name__ == "__main__":
    url, id, text = sys.argv[1:4]
    program: Program = json.loads(text)
    agents = {"linear": linear, "looping": looping}
    print(json.dumps(flovyn.run(agents[program["agent"]], program, id=id, url=url)))
