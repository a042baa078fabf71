"""What bounds a worker: ``max_tasks`` holds for inline steps and claimed tasks together."""

from __future__ import annotations

import asyncio

import flovyn
import pytest
from flovyn import AgentContext, Retry, agent, task


class Counted:
    """Functions that count how many of them run at once."""

    def __init__(self) -> None:
        self.open = 0
        self.most = 0

    async def run(self, n: int) -> int:
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0.01)
        self.open -= 1
        return n


@pytest.mark.parametrize(("most", "seen"), [(1, 1), (3, 3), (None, 36)])
async def test_a_worker_runs_so_many_attempts_at_once(url: str, most: int | None, seen: int) -> None:
    counted = Counted()

    @task
    async def inline(n: int) -> int:
        return await counted.run(n)

    @task(queue="default")
    async def queued(n: int) -> int:
        return await counted.run(n)

    @agent
    async def fan(ctx: AgentContext, n: int) -> int:
        steps = [ctx.run("step", counted.run, n), inline(n), queued(n)]
        return sum(await asyncio.gather(*steps))

    async with flovyn.connect(url) as client, client.worker(agents=[fan], tasks=[queued], max_tasks=most):
        handles = [await client.start(fan, n) for n in range(12)]
        assert [await handle.result(timeout=60) for handle in handles] == [3 * n for n in range(12)]
    if most is None:
        # Nothing bounds inline steps where nothing is said.
        assert counted.most > 3
    else:
        assert counted.most == seen
    assert counted.open == 0


async def test_a_pause_gives_its_place_back(url: str) -> None:
    """A step that pauses before its next try holds nothing: with one place another one runs."""
    begun = asyncio.Event()
    tries: list[str] = []

    @agent
    async def caller(ctx: AgentContext) -> list[str]:
        async def fails() -> None:
            tries.append("fails")
            begun.set()
            raise OSError("never")

        async def works() -> str:
            await begun.wait()
            return "works"

        paused = ctx.run("fails", fails, retries=9, retry=Retry(delay=3600.0, max_delay=3600.0))
        done, rest = await asyncio.wait(
            [asyncio.ensure_future(paused), asyncio.ensure_future(ctx.run("works", works))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        for each in rest:
            each.cancel()
        return [each.result() or "" for each in done]

    async with flovyn.connect(url) as client, client.worker(agents=[caller], max_tasks=1):
        handle = await client.start(caller)
        assert await handle.result(timeout=30) == ["works"]
    assert tries == ["fails"]


async def test_what_waits_for_a_place_is_forgotten_with_its_run(url: str) -> None:
    release = asyncio.Event()
    ran: list[str] = []

    @agent
    async def caller(ctx: AgentContext, name: str) -> str:
        async def step() -> str:
            ran.append(name)
            if name == "first":
                await release.wait()
            return name

        return await ctx.run("step", step)

    async with flovyn.connect(url) as client, client.worker(agents=[caller], max_tasks=1):
        first = await client.start(caller, "first")
        while not ran:
            await asyncio.sleep(0.005)
        waiting = await client.start(caller, "second")
        while not await waiting.tasks():
            await asyncio.sleep(0.005)
        await waiting.cancel()
        with pytest.raises(flovyn.AgentCancelled):
            await waiting.result(timeout=30)
        third = await client.start(caller, "third")
        release.set()
        assert await first.result(timeout=30) == "first"
        assert await third.result(timeout=30) == "third"
    assert ran == ["first", "third"]


async def test_no_tasks_are_claimed_by_a_worker_of_none(url: str) -> None:
    @task(queue="default")
    async def queued() -> None: ...

    @agent
    async def caller(ctx: AgentContext) -> str:
        said = await ctx.run("step", lambda: "inline")
        queued()
        await ctx.flush()
        await ctx.wait_for_signal("end", timeout=3600)
        return said

    async with flovyn.connect(url) as client, client.worker(agents=[caller], tasks=[queued], max_tasks=0):
        handle = await client.start(caller)
        while await handle.status() != "WAITING":
            await asyncio.sleep(0.005)
        assert [(each.kind, each.status) for each in await handle.tasks()] == [
            ("step", "COMPLETED"),
            ("queued", "PENDING"),
        ]
        await handle.signal("end")
        assert await handle.result(timeout=30) == "inline"
