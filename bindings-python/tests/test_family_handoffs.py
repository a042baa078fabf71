"""Runs that are given to another agent: how the code ends, where the conversation and the messages go."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, SyncAgentContext, agent

log: list[str] = []


def said(messages: list[flovyn.Message]) -> list[Any]:
    return [message.content for message in messages]


@agent
async def desk(ctx: AgentContext, about: str) -> Any:
    before = said(await ctx.messages())
    steer = await ctx.wait_for_signal("steer")
    ctx.append_entry("assistant", f"{about}: {steer}")
    return {"before": before, "about": about, "steer": steer}


@agent
async def front(ctx: AgentContext) -> None:
    ctx.append_entry("user", "my invoice is wrong")
    try:
        await ctx.handoff_to_agent(desk, "invoice")
        log.append("went on")
    except BaseException as error:
        log.append(f"{type(error).__name__} {isinstance(error, Exception)}")
        raise
    finally:
        log.append(f"finally {ctx.is_suspending}")


async def test_a_run_is_given_away(anywhere: str) -> None:
    log.clear()
    async with flovyn.connect(anywhere) as client:
        async with client.worker([front]):
            handle = await client.start(front)
            while (facts := await handle.describe()).handed_to is None or not log:
                await asyncio.sleep(0.01)
            assert (facts.status, facts.wait_reason) == ("WAITING", "handed_off")
            assert log == ["HandedOff False", "finally True"]
        # Another process knows the successor by the code of the agent that has started it. The run is its address.
        await handle.signal("steer", "gently")
        async with client.worker([front]):
            result = await handle.result(timeout=60)
        assert result == {"before": ["my invoice is wrong"], "about": "invoice", "steer": "gently"}
        assert said(await handle.messages()) == ["my invoice is wrong", "invoice: gently"]
        child = await client.handle(facts.handed_to)
        assert (await child.describe()).parent == str(handle.id)
        events = [event async for event in handle.stream()]
        spoken = [(event.content, event.run) for event in events if event.type == "entry"]
        assert spoken == [("my invoice is wrong", handle.id), ("invoice: gently", child.id)]
        ends = [event for event in events if event.type == "lifecycle" and event.is_terminal]
        assert ends == events[-1:] and ends[0].run == handle.id
        middle = next(event for event in events if event.run == child.id)
        assert [event async for event in handle.stream(middle.id)] == events[events.index(middle) + 1 :]
        assert log == ["HandedOff False", "finally True"], "its code is not entered again"


async def test_a_branch_gives_the_run_away_and_what_was_sent_before_is_not_lost(anywhere: str) -> None:
    @agent
    async def gathers(ctx: AgentContext) -> None:
        await ctx.wait_for_signal("go")
        await asyncio.gather(ctx.handoff_to_agent(desk, "both", conversation=False), ctx.sleep(3_600))

    async with flovyn.connect(anywhere) as client, client.worker([gathers]):
        handle = await client.start(gathers)
        await handle.signal("steer", "early")
        await handle.signal("go", None)
        assert await handle.result(timeout=60) == {"before": [], "about": "both", "steer": "early"}


async def test_a_stop_reaches_the_successor(anywhere: str) -> None:
    @agent
    async def careful(ctx: AgentContext) -> str:
        try:
            await ctx.sleep(3_600)
        except flovyn.Cancelled:
            return "half"
        return "all"

    @agent
    async def gives(ctx: AgentContext) -> None:
        await ctx.handoff_to_agent(careful)

    async with flovyn.connect(anywhere) as client, client.worker([gives]):
        handle = await client.start(gives)
        while (facts := await handle.describe()).handed_to is None:
            await asyncio.sleep(0.01)
        child = await client.handle(facts.handed_to)
        while (await child.describe()).status != "WAITING":
            await asyncio.sleep(0.01)
        await handle.cancel()
        with pytest.raises(flovyn.AgentCancelled):
            await handle.result(timeout=60)
        assert await handle.output() == "half"


def test_an_immediate_handoff_names_its_successor() -> None:
    @agent
    async def quick(ctx: AgentContext) -> str:
        return "done"

    @agent
    def gives(ctx: SyncAgentContext) -> None:
        try:
            ctx.handoff_to_agent(quick, completion="immediate")
        finally:
            log.append("unwound")

    log.clear()
    with flovyn.connect_sync("memory:") as client, client.worker([gives]):
        handle = client.start(gives)
        to = handle.result(timeout=30)["handedTo"]
        assert client.handle(to).result(timeout=30) == "done"
        facts = handle.describe()
        assert (facts.status, str(facts.handed_to)) == ("COMPLETED", to)
        # Its code is told of the handoff once that is durable: others may know of it first.
        until = time.monotonic() + 30
        while not log and time.monotonic() < until:
            time.sleep(0.01)
    assert log == ["unwound"]


def test_a_cycle_ends_at_the_limit_of_depth() -> None:
    @agent
    async def loops(ctx: AgentContext, depth: int) -> Any:
        ctx.append_entry("user", depth)
        try:
            await ctx.handoff_to_agent(loops, depth + 1)
        except flovyn.LimitReached as error:
            return [depth, "8 runs above it" in str(error), said(await ctx.messages())]

    assert flovyn.run(loops, 0, url="memory:") == [8, True, list(range(9))]


def test_a_def_agent_gives_its_run_away() -> None:
    @agent
    def last(ctx: SyncAgentContext, about: str) -> Any:
        return [about, said(ctx.messages())]

    @agent
    def gives(ctx: SyncAgentContext) -> None:
        ctx.append_entry("user", "hello")
        ctx.handoff_to_agent(last, "sync")

    assert flovyn.run(gives, url="memory:") == ["sync", ["hello"]]


def test_a_parent_hears_the_successor_of_its_child() -> None:
    @agent
    async def asks(ctx: AgentContext) -> str:
        await ctx.signal_parent("news", 1)
        return await ctx.request_from_parent("which?", None, timeout=30)

    @agent
    async def gives(ctx: AgentContext) -> None:
        await ctx.handoff_to_agent(asks)

    @agent
    async def lead(ctx: AgentContext) -> Any:
        child = ctx.spawn_agent(gives)
        news = await ctx.wait_for_child_event(child, timeout=30)
        request = await ctx.wait_for_child_event(child, timeout=30)
        assert isinstance(news, flovyn.child_events.Signal) and isinstance(request, flovyn.child_events.Request)
        await request.respond("this one")
        return [news.payload, await child]

    assert flovyn.run(lead, url="memory:") == [1, "this one"]


def test_what_is_no_handoff_is_refused() -> None:
    @agent
    async def gives(ctx: AgentContext) -> str:
        given: Any = ctx.handoff_to_agent
        with pytest.raises(flovyn.InvalidArgument, match=r"\"later\" is no completion: choose \"wait_for_child\""):
            await given(desk, "x", completion="later")
        with pytest.raises(flovyn.InvalidArgument, match="no completion"):
            await given(desk, "x", completion=None)
        with pytest.raises(flovyn.InvalidArgument, match="handoff_to_agent has no option id; known are queue, "):
            await given(desk, "x", id="mine")
        with pytest.raises(flovyn.InvalidArgument, match="handoff_to_agent takes a function declared with @agent"):
            await given(desk.fn, "x")
        return "still here"

    assert flovyn.run(gives, url="memory:") == "still here"


def test_a_caller_is_not_held_up_by_what_the_successor_waits_for() -> None:
    @agent
    async def gives(ctx: AgentContext) -> None:
        await ctx.handoff_to_agent(desk, "later")

    assert flovyn.run(gives, url="memory:", on_wait="return") is None
