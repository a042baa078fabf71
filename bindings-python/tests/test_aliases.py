"""Functions that were renamed serve what was recorded under the names that they had before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, agent, task


async def until(handle: Any, status: str) -> None:
    while await handle.status() != status:
        await asyncio.sleep(0.005)


@pytest.fixture
async def client(url: str) -> AsyncIterator[flovyn.Client]:
    async with flovyn.connect(url) as opened:
        yield opened


async def test_a_run_goes_on_with_what_its_functions_are_called_now(client: flovyn.Client) -> None:
    done: list[str] = []

    def declare(kind: str, fetching: str, *, aliases: bool) -> Any:
        @task(kind=fetching, aliases=("fetch",) if aliases else ())
        async def fetch(n: int) -> int:
            done.append(f"{fetching} {n}")
            return n

        @agent(kind=kind, aliases=("reader",) if aliases else ())
        async def reader(ctx: AgentContext, n: int) -> list[int]:
            first = [await fetch(1), await fetch(1), await fetch(2)]
            go = await ctx.wait_for_signal("go")
            return [*first, await fetch(1), go]

        return reader

    before, after = declare("reader", "fetch", aliases=False), declare("scholar", "fetch_page", aliases=True)
    async with client.worker(agents=[before]):
        handle = await client.start(before, 1, id="r")
        await until(handle, "WAITING")
    async with client.worker(agents=[after]):
        await handle.signal("go", 7)
        assert await handle.result(timeout=30) == [1, 1, 2, 1, 7]
        assert done == ["fetch 1", "fetch 1", "fetch 2", "fetch_page 1"]
        # The same id is the same run, under either name.
        assert await (await client.start(after, 1, id="r")).result(timeout=30) == [1, 1, 2, 1, 7]
        assert await (await client.handle("r", after)).result(timeout=30) == [1, 1, 2, 1, 7]
        with pytest.raises(flovyn.ExecutionExists):
            await client.start(after, 2, id="r")
        assert [run.kind async for run in client.runs()] == ["reader"]


async def test_a_task_that_waits_in_its_queue_is_served_under_its_old_name(client: flovyn.Client) -> None:
    @task(kind="old", queue="default")
    async def old(n: int) -> int:
        raise NotImplementedError

    @agent
    async def caller(ctx: AgentContext, n: int) -> int:
        return await ctx.schedule_task("old", n)

    @task(aliases=["old"])
    async def renamed(n: int) -> int:
        return n * 10

    handle = await client.start(caller, 4)
    async with client.worker(agents=[caller], tasks=[renamed]):
        assert await handle.result(timeout=30) == 40


async def test_calls_of_both_names_keep_their_order(client: flovyn.Client) -> None:
    """A run that was recorded partly under each name: each call finds its own result."""
    results = iter(range(100))

    def declare(kind: str, more: int, *, aliases: bool) -> Any:
        @task(kind=kind, aliases=("draw",) if aliases else ())
        async def draw() -> int:
            return next(results)

        @agent(kind="drawer", version="1")
        async def drawer(ctx: AgentContext) -> list[int]:
            drawn = [await draw(), await draw()]
            for n in range(more):
                await ctx.wait_for_signal(f"more-{n}")
                drawn.append(await draw())
            await ctx.wait_for_signal("end")
            return drawn

        return drawer

    versions = [declare("draw", 1, aliases=False), declare("pick", 1, aliases=True)]
    async with client.worker(agents=[versions[0]]):
        handle = await client.start("drawer")
        await until(handle, "WAITING")
    for served in (versions[1], versions[1]):
        async with client.worker(agents=[served]):
            await handle.signal("more-0")
            while len(await handle.tasks()) < 3:
                await asyncio.sleep(0.005)
            await until(handle, "WAITING")
    async with client.worker(agents=[versions[1]]):
        await handle.signal("end")
        assert await handle.result(timeout=30) == [0, 1, 2]
    assert [each.kind for each in await handle.tasks()] == ["draw", "draw", "pick"]


async def test_one_name_is_of_one_function(client: flovyn.Client) -> None:
    @task
    async def fetch() -> None: ...

    @task(aliases=("fetch",))
    async def fetch_page() -> None: ...

    @agent(aliases=("x",))
    async def first(ctx: AgentContext) -> None: ...

    @agent(aliases=("x",))
    async def second(ctx: AgentContext) -> None: ...

    with pytest.raises(flovyn.InvalidArgument, match="two different functions have the name 'fetch'"):
        client.worker(tasks=[fetch, fetch_page])
    with pytest.raises(flovyn.InvalidArgument, match="two different functions have the name 'x'"):
        client.worker(agents=[first, second])
    with pytest.raises(flovyn.InvalidArgument, match="aliases='fetch'"):
        task(aliases="fetch")(fetch.fn)
