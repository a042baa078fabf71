"""What the runs of a family tell each other: messages, requests, and what a parent hears of a child."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, Child, SyncAgentContext, agent, task
from flovyn.child_events import Cancelled, ChildEvent, Completed, Failed, Request, Signal


@dataclass
class Report:
    """What a researcher returns."""

    topic: str
    pages: int


@task
async def look(topic: str) -> int:
    return len(topic)


@agent
async def researcher(ctx: AgentContext, topic: str) -> Report:
    await ctx.signal_parent("progress", {"topic": topic})
    model = await ctx.request_from_parent("model", topic, timeout=60)
    return Report(topic, await look(topic) + model)


@agent
async def stays(ctx: AgentContext) -> str:
    await ctx.signal_parent("ready")
    try:
        return await ctx.wait_for_signal("go")
    except flovyn.Cancelled:
        return "half"


async def hear(ctx: AgentContext[Any], child: Child[Any] | str) -> list[ChildEvent]:
    """Hear a child to its end."""
    heard: list[ChildEvent] = []
    while True:
        event = await ctx.wait_for_child_event(child)
        heard.append(event)
        if isinstance(event, Request):
            await event.respond(len(event.payload))
        if isinstance(event, (Completed, Failed, Cancelled)):
            return heard


def test_a_parent_hears_and_answers_its_children(anywhere: str) -> None:
    heard: list[list[ChildEvent]] = []

    @agent
    async def lead(ctx: AgentContext, topics: list[str]) -> list[int]:
        children = [ctx.spawn_agent(researcher, topic) for topic in topics]
        heard[:] = await asyncio.gather(*(hear(ctx, child) for child in children))
        return [(await child).pages for child in children]

    assert flovyn.run(lead, ["otters", "seals"], url=anywhere) == [12, 10]
    first = [
        Signal("progress", {"topic": "otters"}),
        Request("model", "otters", "", "", lambda _: NotImplemented),
        Completed(Report("otters", 12)),
    ]
    assert heard[0] == first
    assert heard[1][-1] == Completed(Report("seals", 10))


def test_a_child_that_is_heard_is_not_said_to_be_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    @agent
    async def lead(ctx: AgentContext) -> Any:
        heard, _ = ctx.spawn_agent(stays), ctx.spawn_agent(stays, on_parent_end="detach")
        await ctx.wait_for_child_event(heard)
        await ctx.cancel_child(heard)
        ends = await hear(ctx, heard)
        ctx.spawn_agent(stays)  # forgotten
        await look("otters")
        return ends[-1] == Cancelled("half")

    assert flovyn.run(lead, url="memory:") is True
    forgotten = [record for record in caplog.records if "never awaited" in record.getMessage()]
    assert len(forgotten) == 1 and "child 'stays'" in forgotten[0].getMessage()


def test_a_blocking_agent_hears_and_steers(url: str) -> None:
    @agent
    def child(ctx: SyncAgentContext) -> list[Any]:
        ctx.signal_parent("progress", 1)
        answer = ctx.request_from_parent("model", "otters")
        return [answer, ctx.wait_for_signal("guidance")]

    @agent
    def lead(ctx: SyncAgentContext) -> list[Any]:
        below = ctx.spawn_agent(child)
        told = ctx.wait_for_child_event(below)
        asked = ctx.wait_for_child_event(below, timeout=60)
        assert isinstance(asked, Request)
        asked.respond([asked.payload, "answered"]).result()
        ctx.signal_child(below, "guidance", "deeper")
        end = ctx.wait_for_child_event(below)
        stopped = ctx.spawn_agent(stays)
        assert ctx.wait_for_child_event(stopped) == Signal("ready", None)
        ctx.cancel_child(stopped, timeout=30)
        return [
            told == Signal("progress", 1),
            end == Completed(below.result()),
            below.result(),
            ctx.wait_for_child_event(stopped) == Cancelled("half"),
        ]

    assert flovyn.run(lead, url=url) == [True, True, [["otters", "answered"], "deeper"], True]


def test_a_failed_child_is_heard(url: str) -> None:
    @agent
    async def breaks(ctx: AgentContext) -> None:
        raise LookupError("no otters")

    @agent
    async def lead(ctx: AgentContext) -> list[Any]:
        child = ctx.spawn_agent(breaks)
        event = await ctx.wait_for_child_event(child)
        assert isinstance(event, Failed)
        with pytest.raises(flovyn.ChildFailed) as raised:
            await child
        same = await ctx.wait_for_child_event(str(child.id))
        return [str(event.error), str(raised.value), event.error.type, isinstance(same, Failed)]

    told = 'child "breaks" failed: LookupError: no otters'
    assert flovyn.run(lead, url=url) == [told, told, "LookupError", True]


def test_what_does_not_come_in_time_says_what(url: str) -> None:
    @agent
    async def silent(ctx: AgentContext) -> str:
        with pytest.raises(flovyn.SignalTimeout) as late:
            await ctx.request_from_parent("model", 1, timeout=0.05)
        await ctx.signal_parent("late", str(late.value))
        return await ctx.wait_for_signal("never")

    @agent
    async def lead(ctx: AgentContext) -> list[Any]:
        child = ctx.spawn_agent(silent)
        asked = await ctx.wait_for_child_event(child)
        late = await ctx.wait_for_child_event(child)
        with pytest.raises(flovyn.SignalTimeout) as nothing:
            await ctx.wait_for_child_event(child, timeout=0.05)
        assert isinstance(asked, Request) and isinstance(late, Signal)
        # An answer that comes too late does no harm.
        await asked.respond(1)
        with pytest.raises(flovyn.AlreadyExists, match="was answered before"):
            await asked.respond(2)
        return [late.payload, str(nothing.value)]

    assert flovyn.run(lead, url=url) == [
        "no answer to the request 'model' came in time",
        "nothing came of child 'silent' in time",
    ]


def test_a_message_that_cannot_be_delivered_is_refused(url: str) -> None:
    @agent
    async def lead(ctx: AgentContext) -> list[str]:
        told: list[str] = []
        child = ctx.spawn_agent(look_agent, "otters")
        await child
        stranger = "00000000-0000-0000-0000-000000000007"
        for refused in (
            lambda: ctx.signal_parent("up", 1),
            lambda: ctx.request_from_parent("up", 1),
            lambda: ctx.signal_child(child, "late", 1),
            lambda: ctx.signal_child(stranger, "hello", 1),
            lambda: ctx.signal_child("otters", "hello", 1),
            lambda: ctx.signal_child(object(), "hello", 1),  # pyright: ignore[reportArgumentType]
            lambda: ctx.signal_child(child, f"flovyn.event.{child.id}", 1),
            lambda: ctx.signal_child(child, "go", 1, delivery="soon"),  # pyright: ignore[reportArgumentType]
            lambda: ctx.signal_child(child, "go", object()),
            lambda: ctx.cancel_child(child, "softly"),  # pyright: ignore[reportArgumentType]
            lambda: ctx.wait_for_child_event("otters"),
        ):
            try:
                await refused()
            except flovyn.FlovynError as error:
                told.append(error.code)
        await ctx.cancel_child(child, "hard")
        return [*told, str(await look("went on"))]

    invalid = ["InvalidArgument"] * 4
    expected = ["NoParent", "NoParent", "ExecutionClosed", "ExecutionNotFound", *invalid, "NotSerializable"]
    assert flovyn.run(lead, url=url) == [*expected, *invalid[:2], "7"]


@agent
async def look_agent(ctx: AgentContext, topic: str) -> int:
    return await look(topic)


def test_news_outlive_a_checkpoint(url: str) -> None:
    @agent(state=list)
    async def lead(ctx: AgentContext[list[Any]]) -> list[Any]:
        while len(ctx.state) < 3:
            child = ctx.spawn_agent(chatty, id="chatty")
            event = await ctx.wait_for_child_event(child)
            ctx.state.append(event.payload if isinstance(event, Signal) else "end")
            await ctx.checkpoint()
        return ctx.state

    @agent
    async def chatty(ctx: AgentContext) -> None:
        ctx.signal_parent("one", 1)
        await ctx.signal_parent("two", 2)

    assert flovyn.run(lead, url=url) == [1, 2, "end"]


def test_a_request_is_answered_after_a_checkpoint(url: str) -> None:
    @agent(state=dict)
    async def lead(ctx: AgentContext[dict[str, Any]]) -> Any:
        if not ctx.state:
            event = await ctx.wait_for_child_event(ctx.spawn_agent(asks, id="asks"))
            assert isinstance(event, Request)
            ctx.state["asked"] = [event.child, event.id]
            await ctx.checkpoint()
        child = ctx.spawn_agent(asks, id="asks")
        await ctx.respond(*ctx.state["asked"], "late")
        return await child

    @agent
    async def asks(ctx: AgentContext) -> Any:
        return await ctx.request_from_parent("how?")

    assert flovyn.run(lead, url=url) == "late"


def test_a_wait_for_news_can_be_given_up(url: str) -> None:
    @agent
    async def lead(ctx: AgentContext) -> list[Any]:
        child = ctx.spawn_agent(stays)
        ready = await ctx.wait_for_child_event(child)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ctx.wait_for_child_event(child), 0.05)
        await ctx.signal_child(child, "go", "gone")
        event = await ctx.wait_for_child_event(child)
        return [ready == Signal("ready", None), event == Completed("gone"), await child]

    assert flovyn.run(lead, url=url) == [True, True, "gone"]
