"""Random concurrent agents, crashed at every commit: they end the same, and no finished step runs again.

The programs' results do not depend on which branch comes first; the order in which tasks end is different in every run.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

import pytest
from conftest import SCALE
from flovyn import AgentContext, TaskFailed, agent, task
from flovyn.testing import check_async

Program = list[Any]


@task
async def work(name: str) -> str:
    for _ in range(random.randrange(4)):
        await asyncio.sleep(random.choice((0, 0, 0.0005)))
    return name.upper()


@task
def block(name: str) -> str:
    return name.upper()


@task(retries=1)
async def fail(name: str) -> str:
    raise LookupError(name)


@task
async def hang() -> None:
    await asyncio.sleep(60)


def make(chance: random.Random, depth: int, name: str) -> Program:
    """Make a program: a tree of sequences, joins and single ops."""
    if depth == 0 or chance.random() < 0.25:
        return [chance.choice(("work", "work", "block", "fail", "sleep", "given up")), name]
    kinds = ["sequence", "gather", "as_completed", "wait", "pool", "tasks", "settled"]
    if sys.version_info >= (3, 11):
        kinds.append("group")
    parts = [make(chance, depth - 1, f"{name}.{number}") for number in range(chance.randrange(1, 4))]
    return [chance.choice(kinds), *parts]


async def perform(ctx: AgentContext, program: Program) -> Any:
    kind, *parts = program
    if kind in ("work", "block", "fail"):
        step = {"work": work, "block": block, "fail": fail}[kind](parts[0])
        try:
            return await step
        except TaskFailed as error:
            # Not the number of attempts: one that is lost with its process is counted in it.
            return f"{error.type}: {error.message}"
    if kind == "sleep":
        return await ctx.sleep(60)
    if kind == "given up":
        try:
            return await asyncio.wait_for(hang(), 0.005)
        except asyncio.TimeoutError:
            return "given up"
    if kind == "sequence":
        return [await perform(ctx, part) for part in parts]
    branches = [perform(ctx, part) for part in parts]
    if kind == "gather":
        return list(await asyncio.gather(*branches))
    if kind == "settled":
        return list(await asyncio.gather(*branches, return_exceptions=True))
    if kind == "as_completed":
        return sorted([str(await each) for each in asyncio.as_completed(branches)])
    tasks = [asyncio.create_task(branch) for branch in branches] if kind != "group" else []
    if kind == "wait":
        pending: set[asyncio.Task[Any]] = set(tasks)
        while pending:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        return [each.result() for each in tasks]
    if kind == "tasks":
        return [await each for each in reversed(tasks)]
    if kind == "pool":
        limit = asyncio.Semaphore(2)

        async def within(each: asyncio.Task[Any]) -> Any:
            async with limit:
                return await each

        return list(await asyncio.gather(*map(within, tasks)))
    async with asyncio.TaskGroup() as group:
        started = [group.create_task(branch) for branch in branches]
    return [each.result() for each in started]


@agent
async def performer(ctx: AgentContext, program: Program) -> Any:
    ctx.append_entry("user", program)
    result = await perform(ctx, program)
    ctx.append_entry("assistant", result)
    return [result, await work("end")]


@pytest.mark.parametrize("seed", range(8 * SCALE))
async def test_random_agents_survive_everything(seed: int) -> None:
    chance = random.Random(seed)
    await check_async(performer, make(chance, 3, "p"), max_commits=6, timeout=30)
