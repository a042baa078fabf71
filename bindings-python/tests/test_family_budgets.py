"""Budgets hold for a family, and a child may outlive its parent."""

from __future__ import annotations

from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, InvalidArgument, agent, task
from flovyn.child_events import BudgetExceeded, Completed


@task
async def think(tokens: int) -> int:
    return tokens


@agent
async def spender(ctx: AgentContext, turns: int) -> int:
    done = 0
    try:
        for _ in range(turns):
            ctx.record_usage("m", await think(40))
            done += 1
    except flovyn.Cancelled:
        pass
    return done


def test_a_child_at_its_limit_keeps_what_it_has(anywhere: str) -> None:
    @agent
    async def lead(ctx: AgentContext) -> list[Any]:
        child = ctx.spawn_agent(spender, 9, budget={"max_tokens": 100})
        event = await ctx.wait_for_child_event(child)
        assert isinstance(event, BudgetExceeded)
        with pytest.raises(flovyn.BudgetExceeded, match=r'child "spender" was stopped: .*"tokens":120'):
            await child
        thrifty = ctx.spawn_agent(spender, 2, budget=500)
        assert await ctx.wait_for_child_event(thrifty) == Completed(2)
        return [event.used["tokens"], event.limit, event.output]

    assert flovyn.run(lead, url=anywhere) == [120, {"maxTokens": 100}, 3]


def test_a_child_that_is_stopped_may_tidy_up(anywhere: str) -> None:
    @agent
    async def careful(ctx: AgentContext) -> list[int]:
        try:
            while True:
                ctx.record_usage("m", await think(60))
        except flovyn.Cancelled:
            return [await think(7)]

    @agent
    async def lead(ctx: AgentContext) -> list[Any]:
        event = await ctx.wait_for_child_event(ctx.spawn_agent(careful, budget=100))
        assert isinstance(event, BudgetExceeded)
        return [event.used["tokens"], event.limit, event.output]

    assert flovyn.run(lead, url=anywhere) == [120, {"maxTokens": 100}, [7]]


async def test_children_share_the_budget_of_their_parent(anywhere: str) -> None:
    @agent
    async def lead(ctx: AgentContext) -> list[Any]:
        children = [ctx.spawn_agent(spender, 50) for _ in range(3)]
        ends = await ctx.join_children_settled(children)
        with pytest.raises(flovyn.BudgetExceeded, match=r"asks for 5000 tokens"):
            await ctx.spawn_agent(spender, 1, budget=5_000)
        left = (await ctx.remaining_budget())["tokens"]["left"]
        return [[type(end).__name__ for end in ends], left < 100]

    async with flovyn.connect(anywhere) as client, client.worker(agents=[lead]):
        handle = await client.start(lead, budget={"max_tokens": 1_000})
        assert await handle.result(60) == [["BudgetExceeded"] * 3, True]
        used = [below.usage["m"]["input_tokens"] async for below in client.runs(parent=handle.id)]
        # Each of them may have recorded one call for which there was no room: nobody knew what it would use.
        assert 900 <= sum(used) <= 1_000 + 3 * 40


async def test_a_detached_child_goes_on(anywhere: str) -> None:
    @agent
    async def late(ctx: AgentContext) -> list[Any]:
        go = await ctx.wait_for_signal("go")
        with pytest.raises(flovyn.ParentGone):
            await ctx.request_from_parent("more")
        return [go]

    @agent
    async def lead(ctx: AgentContext) -> str:
        child = ctx.spawn_agent(late, on_parent_end="detach")
        await think(1)
        return str(child.id)

    async with flovyn.connect(anywhere) as client, client.worker(agents=[lead]):
        child = await client.handle(await (await client.start(lead)).result(60))
        await child.signal("go", 1)
        assert await child.result(60) == [1]


@pytest.mark.parametrize(
    ("options", "told"),
    [({"budget": {"max_tokes": 1}}, "maxTokens"), ({"on_parent_end": "stay"}, 'give "cancel" or "detach"')],
)
def test_options_of_a_child_that_say_nothing_are_refused(options: Any, told: str) -> None:
    @agent
    async def lead(ctx: AgentContext) -> str:
        with pytest.raises(InvalidArgument) as refused:
            ctx.spawn_agent(spender, 1, **options)
        return str(refused.value)

    assert told in flovyn.run(lead, url="memory:")
