"""``ctx.map``: a task over many items, so many at a time, the results in their order."""

from __future__ import annotations

import asyncio
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, agent, task
from flovyn.blocking import SyncAgentContext
from flovyn.testing import check_async


class Work:
    """A task that counts how many of it run at once."""

    def __init__(self, queue: str | None = None, failing: tuple[int, ...] = ()) -> None:
        self.begun: list[int] = []
        self.open = 0
        self.most = 0
        self.failing = failing

        @task(queue=queue)
        async def square(n: int) -> int:
            self.begun.append(n)
            self.open += 1
            self.most = max(self.most, self.open)
            # Later items end first.
            await asyncio.sleep(0.002 * (20 - n % 20))
            self.open -= 1
            if n in self.failing:
                raise ValueError(f"no {n}")
            return n * n

        self.task = square


@pytest.mark.parametrize("queue", [None, "default"])
async def test_items_run_side_by_side_up_to_the_limit(url: str, queue: str | None) -> None:
    work = Work(queue)

    @agent
    async def mapper(ctx: AgentContext, n: int) -> list[int]:
        return await ctx.map(work.task, range(n), limit=4)

    assert await flovyn.run_async(mapper, 25, url=url, timeout=60) == [n * n for n in range(25)]
    assert (work.most, sorted(work.begun)) == (4, list(range(25)))


def test_def_agents_map_too(url: str) -> None:
    work = Work(failing=(3,))

    @agent
    def mapper(ctx: SyncAgentContext, n: int) -> list[Any]:
        done = ctx.map(work.task, range(3), limit=2)
        some = ctx.map(work.task, range(n), limit=3, return_exceptions=True)
        return [done, [getattr(each, "message", each) for each in some]]

    assert flovyn.run(mapper, 6, url=url, timeout=60) == [[0, 1, 4], [0, 1, 4, "no 3", 16, 25]]
    assert work.most == 3


async def test_a_failure_begins_no_further_item_and_is_raised_at_the_end(url: str) -> None:
    work = Work(failing=(1, 2))

    @agent
    async def mapper(ctx: AgentContext) -> str:
        try:
            await ctx.map(work.task, range(100), limit=3)
        except flovyn.TaskFailed as failed:
            return f"{failed.message}, {work.open} open"
        return "no error"

    # 2 fails first; the first in order is raised.
    assert await flovyn.run_async(mapper, url=url, timeout=60) == "no 1, 0 open"
    assert len(work.begun) < 10


async def test_failures_may_be_returned_in_their_places(url: str) -> None:
    work = Work(failing=(0, 7))

    @agent
    async def mapper(ctx: AgentContext) -> list[Any]:
        ended = await ctx.map(work.task, range(9), limit=2, return_exceptions=True)
        return [each.type if isinstance(each, flovyn.TaskFailed) else each for each in ended]

    assert await flovyn.run_async(mapper, url=url, timeout=60) == ["ValueError", 1, 4, 9, 16, 25, 36, "ValueError", 64]


async def test_what_is_done_is_not_done_again(url: str) -> None:
    """The run is entered again at every commit; every item is run once."""
    done: list[int] = []

    @task
    async def note(n: int) -> int:
        done.append(n)
        return n

    @agent
    async def mapper(ctx: AgentContext) -> list[int]:
        first = await ctx.map(note, [5, 6, 7, 8, 9], limit=2)
        await ctx.wait_for_signal("go")
        return first + await ctx.map(note, [5, 6], limit=1)

    async with flovyn.connect(url) as client:
        async with client.worker(agents=[mapper]):
            handle = await client.start(mapper)
            while await handle.status() != "WAITING":
                await asyncio.sleep(0.005)
        await handle.signal("go")
        async with client.worker(agents=[mapper]):
            assert await handle.result(timeout=30) == [5, 6, 7, 8, 9, 5, 6]
    assert done == [5, 6, 7, 8, 9, 5, 6]


async def test_it_is_the_same_however_often_it_is_entered_again() -> None:
    @task
    async def double(n: int) -> int:
        return n * 2

    @agent
    async def mapper(ctx: AgentContext, n: int) -> list[int]:
        return await ctx.map(double, range(n), limit=3)

    await check_async(mapper, 7, tasks={double: lambda n: n * 2})


async def test_a_stop_reaches_all_that_are_open(url: str) -> None:
    cancelled: list[int] = []

    @task
    async def hang(n: int) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(n)
            raise

    @agent
    async def mapper(ctx: AgentContext) -> None:
        await ctx.map(hang, range(9), limit=3, return_exceptions=True)

    async with flovyn.connect(url) as client, client.worker(agents=[mapper]):
        handle = await client.start(mapper)
        while len(await handle.tasks()) < 3:
            await asyncio.sleep(0.005)
        await handle.cancel()
        with pytest.raises(flovyn.AgentCancelled):
            await handle.result(timeout=30)
        assert len(await handle.tasks()) == 3
    assert sorted(cancelled) == [0, 1, 2]


async def test_nothing_and_nonsense(url: str) -> None:
    work = Work()

    @agent
    async def mapper(ctx: AgentContext) -> list[Any]:
        said: list[Any] = [await ctx.map(work.task, [])]
        for given in ({"task": work.task, "limit": 0}, {"task": print}):
            try:
                await ctx.map(items=[1], **given)  # pyright: ignore[reportCallIssue, reportArgumentType]
            except flovyn.InvalidArgument as refused:
                said.append(refused.message.split(";")[0].split(",")[0])
        return said

    assert await flovyn.run_async(mapper, url=url, timeout=60) == [
        [],
        "ctx.map has limit=0",
        "ctx.map takes a function declared with @task",
    ]
