"""Code that is loaded again in a process that lives on: ``shared`` serves its newest functions."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import flovyn
import pytest
from flovyn import Agent, AgentContext, InvalidArgument, Task, agent, task


class Loaded(NamedTuple):
    """What a module or a cell declares."""

    says: Task[[], str]
    greets: Agent[None, list[str]]
    waits: Agent[None, list[Any]]
    works: Agent[None, str]


def loaded(edition: str) -> Loaded:
    """Declare all of it, as each load does."""

    @task
    async def says() -> str:
        return edition

    @agent
    async def greets(ctx: AgentContext) -> list[str]:
        return [edition, await says()]

    @agent
    async def waits(ctx: AgentContext) -> list[Any]:
        return [edition, await ctx.wait_for_signal("go")]

    @agent
    async def works(ctx: AgentContext) -> str:
        while not await ctx.has_signal("go"):
            await says()
        return edition

    return Loaded(says, greets, waits, works)


async def test_what_is_loaded_again_is_served_and_no_run_is_left_behind(file_url: str) -> None:
    first = loaded("first")
    client = await flovyn.shared(file_url, agents=[first.greets, first.waits, first.works])
    async with client:
        assert await (await client.start(first.greets)).result(20) == ["first", "first"]
        waiting = await client.start(first.waits)
        while await waiting.status() != "WAITING":
            pass
        working = await client.start(first.works)
        while len(await working.tasks()) < 3:
            pass
        for edition in ("second", "third"):
            new = loaded(edition)
            assert await flovyn.shared(file_url, agents=[new.greets, new.waits, new.works]) is client
            assert await (await client.start("greets")).result(20) == [edition, edition]
        await waiting.signal("go", 1)
        assert await waiting.result(20) == ["third", 1]
        await working.signal("go")
        assert await working.result(20) == "first"


async def test_cells_that_run_side_by_side_are_served_by_one_worker(file_url: str) -> None:
    def named(name: str) -> Agent[None, str]:
        @agent(kind=name)
        async def one(ctx: AgentContext) -> str:
            return name

        return one

    agents = [named(name) for name in ("one", "two", "three")]
    client, *others = await asyncio.gather(*(flovyn.shared(file_url, agents=[each]) for each in agents))
    async with client:
        assert all(other is client for other in others)
        assert [await (await client.start(each)).result(20) for each in agents] == ["one", "two", "three"]
        with pytest.raises(InvalidArgument):
            await flovyn.shared(file_url, agents=[loaded("no").greets, "greets"])  # type: ignore[list-item]
    async with await flovyn.shared(file_url, agents=[loaded("anew").greets]) as again:
        assert again is not client
        assert await (await again.start("greets")).result(20) == ["anew", "anew"]


def test_a_loop_that_was_closed_holds_no_run(file_url: str) -> None:
    async def leave() -> None:
        first = loaded("first")
        client = await flovyn.shared(file_url, agents=[first.waits])
        handle = await client.start(first.waits, id="w")
        while await handle.status() != "WAITING":
            pass

    async def go_on() -> None:
        async with await flovyn.shared(file_url, agents=[loaded("second").waits]) as client:
            handle = await client.handle("w")
            await handle.signal("go", 2)
            assert await handle.result(20) == ["second", 2]

    asyncio.run(leave())
    asyncio.run(go_on())
