"""The test tools themselves: they pass what is right and find what is wrong."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import random
import re
import sys
import time
import uuid
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
    with pytest.raises(Difference, match="CassetteMiss"):
        await check_async(linear, "birds", tasks=replay(path, [fetch]))


# ── what is wrong with a test is said ───────────────────────────────────────────────────────────────────────────────


class Unlucky(Exception):
    pass


@agent
async def failing(ctx: AgentContext) -> None:
    await fetch("x")
    raise Unlucky("as always")


def test_an_agent_that_fails_is_red() -> None:
    with pytest.raises(Difference, match=r"Unlucky: as always.*raises='Unlucky'[^$]*test_testing.py"):
        check(failing)


@pytest.mark.parametrize("raises", [Unlucky, "Unlucky", True, Exception])
def test_unless_that_is_expected(raises: Any) -> None:
    assert check(failing, raises=raises).runs > 2
    with pytest.raises(Difference, match="expected to raise"):
        check(linear, "otters", raises=raises)


def test_another_error_than_the_expected_one_is_red() -> None:
    with pytest.raises(Difference, match="not KeyError"):
        check(failing, raises=KeyError)


def test_a_stand_in_for_nobody_is_an_error() -> None:
    with pytest.raises(flovyn.InvalidArgument, match=r"no task 'fecth'.*is 'fetch' meant"):
        check(linear, "t", tasks={"fecth": lambda url: "fake"})
    with pytest.raises(flovyn.InvalidArgument, match="no task 'fecth'"):
        harness([linear], fakes={"fecth": lambda url: "fake"})
    with pytest.raises(flovyn.InvalidArgument, match="not <function"):
        check(linear, "t", tasks={fetch.fn: lambda url: "fake"})
    with pytest.raises(flovyn.InvalidArgument, match="is called instead"):
        check(linear, "t", tasks={fetch: "fake"})  # type: ignore[dict-item]
    with pytest.raises(flovyn.InvalidArgument, match=r"'stuck'.*does not call; it called: fetch, flaky"):
        check(linear, "t", tasks={stuck: lambda: None})


async def test_a_stand_in_for_a_kind_that_the_code_names_is_none() -> None:
    elsewhere = "task_of_another_program"

    @agent
    async def remote(ctx: AgentContext) -> list[Any]:
        return [await ctx.schedule_task(elsewhere, 1), await ctx.run("named", lambda: 0)]

    fakes: Any = {elsewhere: lambda input: input + 1, "named": lambda: 5}
    async with harness([remote], fakes=fakes) as h:
        assert await (await h.start(remote)).result(5) == [2, 5]


def test_a_cassette_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(flovyn.NonRetryable, match=r"no cassette .*tape\.json"):
        replay(tmp_path / "tape.json", [fetch])
    (tmp_path / "tape.json").write_text("not a cassette")
    with pytest.raises(flovyn.InvalidArgument, match=r"tape\.json is no cassette"):
        replay(tmp_path / "tape.json", [fetch])


async def test_a_miss_is_not_tried_again(tmp_path: Path) -> None:
    record(tmp_path / "tape.json", [flaky])

    @agent
    async def asks(ctx: AgentContext) -> int:
        return await flaky(3)

    async with harness([asks], fakes=replay(tmp_path / "tape.json", [flaky])) as h:
        with pytest.raises(flovyn.AgentFailed, match=r"CassetteMiss.*record it again"):
            await (await h.start(asks)).result(5)


@agent
async def patient(ctx: AgentContext, turns: int) -> list[str]:
    words = []
    for _ in range(turns):
        words.append(await ctx.wait_for_signal("word"))
        ctx.append_entry("user", words[-1])
        await ctx.sleep(60)
    return words


@pytest.mark.parametrize("by", ["start", "client", "handle", "fork"])
async def test_a_handle_from_before_a_crash_goes_on_after_it(by: str) -> None:
    async with harness([patient]) as h:
        handle = await h.start(patient, 2, id="p")
        if by == "client":
            handle = await h.client.start(patient, 2, id="p")
        elif by == "handle":
            handle = await h.client.handle("p", patient)
        elif by == "fork":
            handle = await handle.fork(id="q")
        waiting = asyncio.ensure_future(handle.result())
        seen: list[str] = []

        async def watch() -> None:
            async for event in handle.stream():
                seen.append(event.content if event.type == "entry" else event.type)

        async def watch_sent() -> bytes:
            return b"".join([sent async for sent in handle.sse()])

        watching, sent = asyncio.ensure_future(watch()), asyncio.ensure_future(watch_sent())
        for word in ("one", "two"):
            await h.settle()
            await h.crash()
            await handle.signal("word", word)
            await h.crash()
            await h.advance(61)
        assert await asyncio.wait_for(waiting, 5) == ["one", "two"]
        assert await handle.status() == "COMPLETED" and await handle.result(5) == ["one", "two"]
        await asyncio.wait_for(watching, 5)
        assert [text for text in seen if text in ("one", "two")] == ["one", "two"]
        assert (await asyncio.wait_for(sent, 5)).count(b"event: entry") == 2


async def test_a_wait_at_a_handle_can_be_given_up() -> None:
    async with harness([patient]) as h:
        handle = await h.start(patient, 1)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(handle.result(), 0.1)
        await h.crash()
        with pytest.raises(flovyn.Timeout):
            await handle.result(0.1)


def differing(name: str) -> Any:
    """An agent that is not the same in every process, and the place of its fault."""
    seeded = random.Random(5)

    @agent
    async def clock(ctx: AgentContext) -> float:
        seeded.random(), seeded.randint(1, 6)
        await fetch("a")
        return time.time()

    @agent
    async def now(ctx: AgentContext) -> str:
        await fetch("a")
        return datetime.datetime.now().isoformat()

    @agent
    async def chance(ctx: AgentContext) -> None:
        await fetch(f"a{random.randint(1, 10**9)}")
        await fetch("b")

    @agent
    async def named(ctx: AgentContext) -> None:
        ctx.append_entry("user", str(uuid.uuid4()))
        await fetch("b")

    @agent
    def blocking(ctx: flovyn.SyncAgentContext) -> float:
        fetch("b").result()
        return random.random()

    return {each.kind: each for each in (clock, now, chance, named, blocking)}[name]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("clock", r"time\.time\(\)"),
        ("now", r"datetime\.now\(\)"),
        ("chance", r"random\.randint\(\)"),
        ("named", r"uuid\.uuid4\(\)"),
        ("blocking", r"random\.random\(\)"),
    ],
)
def test_a_difference_says_why(name: str, call: str) -> None:
    faulty = differing(name)
    with pytest.raises(Difference) as raised:
        check(faulty)
    found = re.findall(r"(\w+\.\w+\(\)) at (\w+\.py):(\d+), so use ctx\.\w+\(\)", str(raised.value))
    assert len(found) == 1 and re.fullmatch(call, found[0][0]) and found[0][1] == "test_testing.py", raised.value
    line = Path(__file__).read_text().splitlines()[int(found[0][2]) - 1]
    assert re.search(call.replace(r"\)", ""), line)
    assert sys.getprofile() is None


def test_a_difference_without_a_call_says_where_to_look() -> None:
    entered = [0]

    @agent
    async def counting(ctx: AgentContext) -> int:
        entered[0] += 1
        await fetch("x")
        return entered[0]

    with pytest.raises(Difference, match=r"no clock and no chance .*globals"):
        check(counting)
