"""A check of a parent is one of the runs below it, too."""

import asyncio
import random

import flovyn
import pytest
from flovyn import AgentContext, Waiting, agent, task
from flovyn.testing import Difference, check

seen: list[int] = []


@task
async def double(x: int) -> int:
    return x * 2


@task(side_effects="at_most_once")
async def paid(x: int) -> int:
    return x + 1


@agent
async def child(ctx: AgentContext, x: int) -> int:
    ctx.append_entry("user", f"asked {x}")
    await ctx.signal_parent("begun", x)
    twice = await double(x)
    await ctx.sleep(3600)
    return await paid(twice)


@agent
async def parent(ctx: AgentContext, count: int) -> list[int]:
    children = [ctx.spawn_agent(child, x) for x in range(count)]
    return list(await asyncio.gather(*children))


@agent
async def middle(ctx: AgentContext, x: int) -> int:
    return sum(await ctx.spawn_agent(parent, x))


@agent
async def top(ctx: AgentContext) -> int:
    return await ctx.spawn_agent(middle, 2)


@agent
async def moody(ctx: AgentContext) -> str:
    seen.append(1)
    ctx.append_entry("user", f"life {len(seen)}")
    await double(1)
    return "always the same"


@agent
async def of_the_moody(ctx: AgentContext) -> str:
    return await ctx.spawn_agent(moody)


@agent
async def deaf(ctx: AgentContext) -> str:
    return await ctx.wait_for_signal("nobody sends it")


@agent
async def of_the_deaf(ctx: AgentContext) -> str:
    return await ctx.spawn_agent(deaf)


@agent
async def impatient(ctx: AgentContext) -> str:
    left = ctx.spawn_agent(deaf)
    await asyncio.sleep(0)
    await ctx.cancel_child(left, "hard")
    return "went on"


@agent
async def lottery(ctx: AgentContext) -> str:
    await double(1)
    number = random.SystemRandom().randint(0, 10**12)
    return str(await ctx.spawn_agent(child, number) is None)


def test_families_end_the_same_whatever_happens() -> None:
    report = check(parent, 3)
    assert report.result == [1, 3, 5]
    assert report.commits > 12, "those of the children count"
    assert check(top).result == 4


def test_a_child_that_a_parent_stops_may_have_come_as_far_as_it_likes() -> None:
    assert check(impatient).result == "went on"


def test_a_child_that_is_not_the_same_again_is_told() -> None:
    seen.clear()
    with pytest.raises(Difference, match=r"the child moody\(None\) left"):
        check(of_the_moody)


def test_another_child_than_before_is_told() -> None:
    with pytest.raises(Difference, match=r"lottery|child|op "):
        check(lottery)


def test_a_child_that_waits_for_nobody_is_told() -> None:
    with pytest.raises(Waiting, match="its child 'deaf' waits for signal 'nobody sends it'"):
        check(of_the_deaf)


def test_a_paused_child_is_told() -> None:
    @agent
    async def steps(ctx: AgentContext) -> None:
        for _ in range(3):
            await ctx.step()

    @agent
    async def of_steps(ctx: AgentContext) -> None:
        await ctx.spawn_agent(steps, max_steps=1)

    with pytest.raises(Difference, match="its child 'steps' was paused: step_limit"):
        check(of_steps)


def test_a_failing_child_is_compared() -> None:
    @agent
    async def fails(ctx: AgentContext) -> None:
        raise ValueError("no otters here")

    @agent
    async def catches(ctx: AgentContext) -> str:
        try:
            await ctx.spawn_agent(fails)
        except flovyn.ChildFailed as error:
            return error.type
        return "nothing"

    assert check(catches).result == "ValueError"


@agent
async def sleeper(ctx: AgentContext, seconds: int) -> int:
    await ctx.signal_parent("asleep", seconds)
    await ctx.sleep(seconds)
    return seconds


@agent
async def in_the_order_of_ends(ctx: AgentContext, lengths: list[int]) -> list[int]:
    pending, ends = [ctx.spawn_agent(sleeper, seconds) for seconds in lengths], []
    while pending:
        first = await ctx.select_child(pending)
        pending.remove(first)
        ends.append(await ctx.wait_for_child(first))
        ctx.append_entry("assistant", f"{ends[-1]} is up")
    return ends


@agent
async def first_alone(ctx: AgentContext) -> int:
    children = [ctx.spawn_agent(sleeper, 7_200), ctx.spawn_agent(sleeper, 60)]
    first = await ctx.select_child(children)
    assert first is children[1]
    await ctx.cancel_child(children[0], "hard")
    with pytest.raises(flovyn.ChildCancelled):
        await children[0]
    return await first


def test_the_first_child_is_the_same_whatever_happens() -> None:
    report = check(in_the_order_of_ends, [3_000, 10, 600])
    assert report.result == [10, 600, 3_000]
    assert report.commits > 12, "those of the children count"
    assert check(first_alone).result == 60
