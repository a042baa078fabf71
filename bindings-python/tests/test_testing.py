"""The test tools themselves: they pass what is right and find what is wrong."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, TaskContext, agent, task
from flovyn.testing import Difference, check, check_async, harness, record, replay


@task
async def fetch(url: str) -> str:
    return f"page {url}"


@task(retries=2)
async def flaky(ctx: TaskContext, n: int) -> int:
    if ctx.attempt == 1:
        raise ConnectionError("first")
    return n


@task
async def stuck() -> None:
    await asyncio.sleep(60)


@dataclasses.dataclass
class Progress:
    turn: int = 0


@agent
async def linear(ctx: AgentContext, topic: str) -> dict[str, Any]:
    ctx.append_entry("user", topic)
    page = await fetch(topic)
    ctx.append_entry("assistant", page)
    await ctx.sleep(3600)
    return {"page": page, "flaky": await flaky(3)}


@agent
async def concurrent(ctx: AgentContext) -> Any:
    first = await asyncio.gather(fetch("a"), asyncio.gather(fetch("b"), fetch("c")), fetch("a"))
    try:
        await asyncio.wait_for(stuck(), 0.02)
    except asyncio.TimeoutError:
        first.append("timed out")
    chosen = await ctx.select(ctx.sleep(5), ctx.wait_for_signal("also never"))
    return [first, list(chosen)]


@agent(state=Progress)
async def looping(ctx: AgentContext[Progress], turns: int) -> list[Any]:
    plan = await ctx.once("plan", fetch, "plan")
    while ctx.state.turn < turns:
        word = await ctx.wait_for_signal("word")
        ctx.append_entry("user", word)
        ctx.append_entry("assistant", await fetch(word))
        ctx.state.turn += 1
        await ctx.checkpoint()
    return [plan, [message.content for message in ctx.load_messages()]]


def test_a_linear_agent_survives_everything() -> None:
    report = check(linear, "otters")
    assert report.result == {"page": "page otters", "flaky": 3}
    assert report.runs > 6 and report.entries == [
        ("user", "message", "otters"),
        ("assistant", "message", "page otters"),
    ]


async def test_a_concurrent_agent_survives_everything() -> None:
    report = await check_async(concurrent)
    assert report.result == [["page a", ["page b", "page c"], "page a", "timed out"], [0, None]]


def test_an_agent_with_state_survives_everything() -> None:
    report = check(looping, 2, signals=[("word", "x"), ("word", "y")])
    assert report.result == ["page plan", ["x", "page x", "y", "page y"]]


def test_fakes_stand_in_for_tasks() -> None:
    report = check(linear, "t", tasks={fetch: lambda url: f"fake {url}", "flaky": lambda ctx, n: n + 1})
    assert report.result == {"page": "fake t", "flaky": 4}


def test_what_depends_on_the_process_is_found() -> None:
    entered = 0

    @agent
    async def forgetful(ctx: AgentContext) -> int:
        nonlocal entered
        entered += 1
        await ctx.wait_for_signal("go", timeout=5) if entered < 0 else await fetch("x")
        await ctx.sleep(1)
        return entered

    with pytest.raises(Difference, match="outcome"):
        check(forgetful)


def test_a_missing_signal_is_named() -> None:
    @agent
    async def waits(ctx: AgentContext) -> Any:
        return await ctx.wait_for_signal("word")

    with pytest.raises(flovyn.Waiting, match="word"):
        check(waits)


async def test_the_harness_moves_time_and_crashes() -> None:
    @agent
    async def sleeper(ctx: AgentContext) -> float:
        before = ctx.current_time()
        for _ in range(3):
            await ctx.sleep(1000)
        return (ctx.current_time() - before).total_seconds()

    async with harness([sleeper]) as h:
        handle = await h.start(sleeper, id="s")
        await h.advance(1500)
        assert await handle.status() == "WAITING"
        await h.crash()
        await h.advance(1499)
        handle = await h.client.handle("s")
        assert await handle.status() == "WAITING"
        await h.advance(2)
        assert 3000 <= await handle.result(timeout=5) < 3010


async def test_cassettes(tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    async with harness([linear], fakes=record(path, [fetch])) as h:
        handle = await h.start(linear, "otters")
        await h.advance(4000)
        assert (await handle.result(timeout=5))["page"] == "page otters"
    report = await check_async(linear, "otters", tasks=replay(path, [fetch]))
    assert report.result["page"] == "page otters"
    missed = await check_async(linear, "birds", tasks=replay(path, [fetch]))
    assert "CassetteMiss" in str(missed.result)
