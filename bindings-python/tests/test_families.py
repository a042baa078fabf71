"""Children: agents that start other agents and wait for them."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flovyn
import pytest
from family_victim import lead
from flovyn import AgentContext, SyncAgentContext, agent, task

VICTIM = Path(__file__).parent / "family_victim.py"
ENDED = "OTTERS 1 + OTTERS 2, SEALS 1 + SEALS 2, LAST 1 + LAST 2"


@task
async def double(x: int) -> int:
    return 2 * x


@agent
async def doubles(ctx: AgentContext, x: int) -> int:
    return await double(x)


@agent
async def fails(ctx: AgentContext, why: str) -> None:
    raise LookupError(why)


@agent
async def waits(ctx: AgentContext) -> Any:
    return await ctx.wait_for_signal("go")


def test_a_parent_waits_for_its_child() -> None:
    @agent
    async def parent(ctx: AgentContext, x: int) -> list[int]:
        child = ctx.spawn_agent(doubles, x)
        return [await child, await child, await double(1)]

    assert flovyn.run(parent, 21, url="memory:") == [42, 42, 2]


def test_a_child_whose_await_was_given_up_is_not_waited_for_without_end() -> None:
    @agent
    async def parent(ctx: AgentContext) -> list[str]:
        told: list[str] = []
        child = ctx.spawn_agent(waits)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(child, 0.05)
        for again in (child, ctx.select(child, ctx.sleep(60))):
            with pytest.raises(flovyn.InvalidTransition) as refused:
                await again
            told.append(str(refused.value))
        return told

    @agent
    def blocking(ctx: SyncAgentContext) -> list[str]:
        child = ctx.spawn_agent(waits)
        assert ctx.select(child, double(1)) == (1, 2)
        with pytest.raises(flovyn.InvalidTransition) as refused:
            child.result()
        return [str(refused.value)]

    for told in (flovyn.run(parent, url="memory:"), flovyn.run(blocking, url="memory:")):
        assert all("child 'waits'" in each or 'child "waits"' in each for each in told), told
        assert all("asyncio.shield" in each for each in told)


def test_a_child_can_be_looked_at_several_times() -> None:
    @agent
    async def parent(ctx: AgentContext) -> list[Any]:
        child = asyncio.ensure_future(ctx.spawn_agent(doubles, 4))
        looks = 0
        while not child.done():
            looks += 1
            await asyncio.wait({child}, timeout=0.001)
        return [looks > 0, await child]

    assert flovyn.run(parent, url="memory:") == [True, 8]


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_the_first_child_to_end_is_told_and_the_others_are_not_given_up(backend: str, tmp_path: Path) -> None:
    @agent
    async def slow(ctx: AgentContext, seconds: float) -> float:
        await ctx.sleep(seconds)
        return seconds

    @agent
    async def parent(ctx: AgentContext) -> list[Any]:
        pending: list[Any] = [ctx.spawn_agent(slow, seconds) for seconds in (0.4, 0.1)]
        pending.append(ctx.spawn_agent(fails, "no otters"))
        told: list[Any] = []
        while pending:
            first = await ctx.select_child(pending)
            pending.remove(first)
            try:
                told.append(await first)
            except flovyn.ChildFailed as error:
                told.append(error.type)
        left = ctx.spawn_agent(waits)
        assert await ctx.select_child(left, ctx.spawn_agent(slow, 0)) is not left
        for none in (ctx.select_child([]), ctx.select()):
            with pytest.raises(flovyn.InvalidArgument, match="given none"):
                await none
        return told

    @agent
    def blocking(ctx: SyncAgentContext) -> list[Any]:
        pending: list[Any] = [ctx.spawn_agent(slow, seconds) for seconds in (0.4, 0.1)]
        told: list[Any] = []
        while pending:
            first = ctx.select_child(pending)
            pending.remove(first)
            told.append(first.result())
        return [*told, *ctx.join_children(ctx.spawn_agent(slow, 0))]

    url = "memory:" if backend == "memory" else f"sqlite:{tmp_path / 'runs.db'}"
    assert sorted(map(str, flovyn.run(parent, url=url))) == ["0.1", "0.4", "LookupError"]
    assert sorted(flovyn.run(blocking, url=url)) == [0.0, 0.1, 0.4]


def test_what_is_no_child_and_no_id_is_told_at_once() -> None:
    def spawn(**options: Any) -> Any:
        return lambda ctx: ctx.spawn_agent(doubles, 1, **options)

    wrong: list[tuple[Any, str]] = [
        (spawn(id=7), "text as id, not 7"),
        (spawn(id=""), "text as id, not ''"),
        (spawn(key=b"k"), "text as key, not b'k'"),
        (spawn(id="a\0b"), "NUL"),
        (lambda ctx: ctx.select_child(double(1), ctx.spawn_agent(doubles, 1)), "select_child takes what spawn_agent"),
        (lambda ctx: ctx.wait_for_child("01a21dac"), "wait_for_child takes what spawn_agent"),
    ]

    @agent
    async def parent(ctx: AgentContext) -> int:
        for call, why in wrong:
            with pytest.raises(flovyn.InvalidArgument, match=re.escape(why)):
                await call(ctx)
        return await ctx.wait_for_child(ctx.spawn_agent(doubles, 1))

    assert flovyn.run(parent, url="memory:") == 2


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
async def test_a_child_with_an_id_is_waited_for_again(backend: str, tmp_path: Path) -> None:
    @dataclass
    class Desk:
        told: list[Any] = field(default_factory=list[Any])

    @agent(state=Desk)
    async def desk(ctx: AgentContext[Desk]) -> list[Any]:
        told = ctx.state.told
        while len(told) < 3:
            child = ctx.spawn_agent(waits, id="one")
            if not told:
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(child, 0.05)
                child = ctx.spawn_agent(waits, id="one")
                told.append(str(child.id))
            else:
                told.append(await child)
            await ctx.checkpoint()
        with pytest.raises(flovyn.ExecutionExists, match="another input"):
            await ctx.spawn_agent(doubles, 1, id="one")
        return told

    url = "memory:" if backend == "memory" else f"sqlite:{tmp_path / 'runs.db'}"
    async with flovyn.connect(url) as client, client.worker(agents=[desk]):
        handle = await client.start(desk)
        while not await handle.checkpoints():
            await asyncio.sleep(0.01)
        children = [child.id async for child in client.runs(parent=handle.id)]
        await (await client.handle(children[0])).signal("go", 7)
        assert await handle.result(timeout=30) == [children[0], 7, 7]
        assert [child.id async for child in client.runs(parent=handle.id)] == children


@pytest.mark.parametrize("blocking", [False, True])
def test_children_that_were_only_looked_at_outlive_a_checkpoint(blocking: bool, tmp_path: Path) -> None:
    @dataclass
    class Desk:
        told: list[int] = field(default_factory=list[int])

    @agent
    async def slow(ctx: AgentContext, seconds: float) -> float:
        await ctx.sleep(seconds)
        return seconds

    def pending(ctx: Any) -> dict[Any, int]:
        left = [n for n in (3, 1, 2) if n not in ctx.state.told]
        return {ctx.spawn_agent(slow, n / 10, id=str(n)): n for n in left}

    @agent(state=Desk)
    async def desk(ctx: AgentContext[Desk]) -> list[int]:
        while children := pending(ctx):
            first = await ctx.select_child(list(children))
            assert await first == children[first] / 10
            ctx.state.told.append(children[first])
            await ctx.checkpoint()
        return ctx.state.told

    @agent(state=Desk)
    def sync_desk(ctx: SyncAgentContext[Desk]) -> list[int]:
        while children := pending(ctx):
            first = ctx.select_child(list(children))
            assert first.result() == children[first] / 10
            ctx.state.told.append(children[first])
            ctx.checkpoint()
        return ctx.state.told

    url = f"sqlite:{tmp_path / 'runs.db'}"
    assert sorted(flovyn.run(sync_desk if blocking else desk, url=url, timeout=30)) == [1, 2, 3]


async def test_a_parent_that_is_tried_again_goes_on_without_the_children_it_had() -> None:
    lives: list[int] = []

    @agent
    async def parent(ctx: AgentContext) -> str:
        child = ctx.spawn_agent(waits)
        await ctx.flush()
        lives.append(1)
        if len(lives) == 1:
            raise RuntimeError("a bug")
        with pytest.raises(flovyn.ChildCancelled) as stopped:
            await child
        return str(stopped.value)

    async with flovyn.connect("memory:") as client, client.worker(agents=[parent]):
        handle = await client.start(parent)
        with pytest.raises(flovyn.AgentFailed):
            await handle.result(timeout=30)
        await handle.retry()
        assert "waits" in await handle.result(timeout=30)


@pytest.mark.parametrize("kill_at", range(1, 7))
def test_a_killed_family_goes_on_where_it_was(tmp_path: Path, kill_at: int) -> None:
    url, log = f"sqlite:{tmp_path / 'runs.db'}", tmp_path / "log"

    def life(kill_at: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(VICTIM), url, "family", str(log), str(kill_at)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    killed = life(kill_at)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = life(0)
    assert again.stdout == f"{ENDED}\n", again.stderr
    # What was under way when the process was killed may have been done and is done again; nothing else is.
    times = Counter(log.read_text().splitlines())
    assert set(times) == {f"{topic} {n}" for topic in ("otters", "seals", "last") for n in (1, 2)}
    assert sum(times.values()) <= 7
    assert life(0).stdout == f"{ENDED}\n"
    assert sum(Counter(log.read_text().splitlines()).values()) == sum(times.values())


async def test_a_worker_serves_the_children_of_its_agents() -> None:
    async with flovyn.connect("memory:") as client, client.worker(agents=[lead]):
        handle = await client.start(lead, ["otters", "seals"])
        assert await handle.result() == ENDED
        children = [run async for run in client.runs(parent=handle.id)]
        assert [run["kind"] for run in children] == ["researcher"] * 3
        assert {run["root"] for run in children} == {str(handle.id)}


async def test_a_child_that_is_handed_over_at_run_time_is_served() -> None:
    @agent
    async def parent(ctx: AgentContext, x: int) -> list[int]:
        return [await ctx.spawn_agent(one, x) for one in table()]

    def table() -> list[flovyn.Agent[int, int]]:
        return [globals()["doubles"]]

    async with flovyn.connect("memory:") as client, client.worker(agents=[parent], tasks=[double]):
        assert await (await client.start(parent, 4)).result(timeout=20) == [8]


async def test_a_shared_worker_serves_the_children_of_agents_that_come_later() -> None:
    @agent
    async def first(ctx: AgentContext) -> int:
        return await ctx.spawn_agent(doubles, 1)

    @agent
    async def second(ctx: AgentContext) -> int:
        return await ctx.spawn_agent(doubles, 2)

    async with flovyn.connect("memory:") as client:
        worker = client.worker(agents=[first])
        async with worker:
            await worker.replace([second], [])
            assert await (await client.start(second)).result(timeout=20) == 4
            assert await (await client.start(first)).result(timeout=20) == 2


async def test_a_child_by_its_kind_is_served_by_another_worker() -> None:
    @agent
    async def parent(ctx: AgentContext, x: int) -> Any:
        return await ctx.spawn_agent("doubles", x, queue="far", priority=3, metadata={"of": "otters"})

    async with flovyn.connect("memory:") as client, client.worker(agents=[parent]):
        handle = await client.start(parent, 5)
        async with client.worker(agents=[doubles], queue="far"):
            assert await handle.result(timeout=20) == 10
        (child,) = [run async for run in client.runs(parent=handle.id)]
        assert (child["queue"], child["priority"], child["metadata"]) == ("far", 3, {"of": "otters"})


def test_a_failed_child_raises_in_its_parent() -> None:
    @agent
    async def parent(ctx: AgentContext) -> list[Any]:
        try:
            await ctx.spawn_agent(fails, "no otters")
        except flovyn.ChildFailed as error:
            return [error.kind, error.type, error.message, str(error)]
        return []

    told = flovyn.run(parent, url="memory:")
    assert told == ["fails", "LookupError", "no otters", 'child "fails" failed: LookupError: no otters']


async def test_a_cancelled_child_raises_in_its_parent_which_goes_on() -> None:
    @agent
    async def parent(ctx: AgentContext) -> str:
        child = ctx.spawn_agent(waits)
        try:
            await child
        except flovyn.ChildCancelled as error:
            return f"{error} {child.id}"
        return "not cancelled"

    async with flovyn.connect("memory:") as client, client.worker(agents=[parent]):
        handle = await client.start(parent)
        while not (children := [run async for run in client.runs(parent=handle.id, status="WAITING")]):
            await asyncio.sleep(0.01)
        child = await client.handle(children[0]["id"])
        await child.cancel()
        assert await handle.result(timeout=20) == f'child "waits" was cancelled {child.id}'


async def test_children_end_with_their_parent() -> None:
    @agent
    async def parent(ctx: AgentContext) -> str:
        ctx.spawn_agent(waits)
        await ctx.wait_for_signal("leave")
        return "left"

    async with flovyn.connect("memory:") as client, client.worker(agents=[parent]):
        handle = await client.start(parent)
        while not (children := [run async for run in client.runs(parent=handle.id, status="WAITING")]):
            await asyncio.sleep(0.01)
        await handle.signal("leave", None)
        assert await handle.result(timeout=20) == "left"
        child = await client.handle(children[0]["id"])
        with pytest.raises(flovyn.AgentCancelled):
            await child.result(timeout=20)


def test_a_plain_function_has_children_too() -> None:
    @agent
    def parent(ctx: SyncAgentContext, x: int) -> list[int]:
        children = [ctx.spawn_agent(doubles, x + n) for n in range(3)]
        return [child.result() for child in children]

    assert flovyn.run(parent, 1, url="memory:") == [2, 4, 6]


def test_many_children_fan_out_and_in() -> None:
    @agent
    async def parent(ctx: AgentContext, count: int) -> int:
        return sum(await asyncio.gather(*(ctx.spawn_agent(doubles, x) for x in range(count))))

    assert flovyn.run(parent, 100, url="memory:") == 9900


def test_what_cannot_be_a_child_is_refused() -> None:
    @agent
    async def parent(ctx: AgentContext) -> list[str]:
        told: list[str] = []
        spawn: Any = ctx.spawn_agent
        for given, options in (
            (double, {}),
            (doubles, {}),
            ("doubles", {"colour": "red"}),
            (doubles, {"key": "x" * 5_000}),
        ):
            try:
                spawn(given, *([] if given is doubles and not options else [1]), **options)
            except flovyn.InvalidArgument as error:
                told.append(error.message)
        return told

    told = flovyn.run(parent, url="memory:")
    assert len(told) == 4, told
    assert "declared with @agent" in told[0]
    assert "'doubles'" in told[1] or '"doubles"' in told[1]
    assert "colour" in told[2] and "queue" in told[2]
    assert "key" in told[3]
