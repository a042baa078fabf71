"""Several steps awaited at once: `ctx.join_all` and its like do what `asyncio.gather` does, without a task for each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, agent, task
from flovyn.testing import check

PATIENCE_S = 30.0

Together = Callable[..., Awaitable[list[Any]]]


class Lost(Exception):
    """What a task of these tests fails with."""


@task
async def after(seconds: float, value: int) -> int:
    await asyncio.sleep(seconds)
    return value


@task(retries=0)
async def fails_after(seconds: float, value: int) -> int:
    await asyncio.sleep(seconds)
    raise Lost(value)


def shown(value: Any) -> Any:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    return [shown(each) for each in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


async def outcome_of(waited: Awaitable[Any]) -> Any:
    try:
        return shown(await waited)
    except flovyn.FlovynError as error:
        return ["raised", shown(error)]


async def waits(together: Together, settled: Together, seed: int) -> list[Any]:
    """Wait for steps that end, fail and have ended before, some of them twice, by either of these."""
    rng, found = random.Random(seed), list[Any]()
    steps: list[Any] = []
    for value in range(12):
        ends = fails_after if rng.random() < 0.2 else after
        steps.append(ends(rng.choice([0.0, 0.01, 0.02]), value))
    for _ in range(4):
        some = [rng.choice(steps) for _ in range(rng.randint(1, 6))]
        way = settled if rng.random() < 0.5 else together
        found.append(await outcome_of(way(*some)))
    found.append(await outcome_of(settled(*steps)))
    return found


@agent
async def joins(ctx: AgentContext, seed: int) -> list[Any]:
    return await waits(ctx.join_all, ctx.join_all_settled, seed)


@agent
async def gathers(ctx: AgentContext, seed: int) -> list[Any]:
    async def settled(*steps: Any) -> list[Any]:
        return await asyncio.gather(*steps, return_exceptions=True)

    return await waits(lambda *steps: asyncio.gather(*steps), settled, seed)  # pyright: ignore[reportArgumentType]


async def test_a_join_gives_what_gather_gives(url: str) -> None:
    async with flovyn.connect(url) as client, client.worker(agents=[joins, gathers], tasks=[after, fails_after]):
        for seed in range(20):
            one, other = [
                await (await client.start(which, seed)).result(timeout=PATIENCE_S) for which in (joins, gathers)
            ]
            # Which of several failures comes first is a matter of time.
            assert [of_one[:1] if of_one[:1] == ["raised"] else of_one for of_one in one] == [
                of_one[:1] if of_one[:1] == ["raised"] else of_one for of_one in other
            ], seed


@agent
async def settles(ctx: AgentContext, seed: int) -> list[Any]:
    return await waits(ctx.join_all_settled, ctx.join_all_settled, seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_join_survives_a_crash_at_every_commit(seed: int) -> None:
    assert check(settles, seed).runs > 5


async def test_a_join_makes_no_task(url: str) -> None:
    seen: list[int] = []

    @agent
    async def waiting(ctx: AgentContext) -> list[int]:
        before = len(asyncio.all_tasks())
        steps = [after(0.05, value) for value in range(50)]
        looked = asyncio.get_running_loop().call_later(0.02, lambda: seen.append(len(asyncio.all_tasks()) - before))
        found = await ctx.join_all(steps)
        looked.cancel()
        return found

    async with flovyn.connect(url) as client, client.worker(agents=[waiting], tasks=[after]):
        assert await (await client.start(waiting)).result(timeout=PATIENCE_S) == list(range(50))
    # Each task runs in a task of the loop; what awaits them is the agent.
    assert seen and seen[0] <= 55


async def test_a_join_that_is_given_up_gives_up_its_steps(url: str) -> None:
    @agent
    async def hurried(ctx: AgentContext) -> list[Any]:
        slow = [ctx.wait_for_signal("never", timeout=600.0), ctx.wait_for_signal("nor this", timeout=600.0)]
        quick = after(0.0, 7)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ctx.join_all(quick, *slow), 0.05)
        with pytest.raises(flovyn.InvalidTransition):
            await slow[0]
        return await ctx.join_all(quick, after(0.0, 8))

    async with flovyn.connect(url) as client, client.worker(agents=[hurried], tasks=[after]):
        assert await (await client.start(hurried)).result(timeout=PATIENCE_S) == [7, 8]


async def test_a_join_is_told_that_its_run_is_to_stop(url: str) -> None:
    noted: list[str] = []

    @agent
    async def joined(ctx: AgentContext) -> str:
        try:
            await ctx.join_all(ctx.wait_for_signal("one"), ctx.wait_for_signal("two"))
        except flovyn.Cancelled:
            noted.append("told")
            raise
        return "not told"

    async with flovyn.connect(url) as client, client.worker(agents=[joined]):
        run = await client.start(joined)
        while (await run.describe()).status != "WAITING":
            await asyncio.sleep(0.01)
        await run.cancel()
        with pytest.raises(flovyn.AgentCancelled):
            await run.result(timeout=PATIENCE_S)
    assert noted == ["told"]
