"""Inline steps (``ctx.run``) with retries, time limits and keys: their tries are made where the step is called."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, Retry, TaskContext, agent
from flovyn.blocking import SyncAgentContext
from flovyn.task import holds_values
from flovyn.testing import harness

SOON = Retry(delay=0.001)


async def test_a_closure_is_tried_again_where_it_is(url: str) -> None:
    """Two runs have a step of one name each, with a closure of its own: no try takes the other's."""
    failed: dict[str, int] = {}

    @agent
    async def caller(ctx: AgentContext, name: str) -> str:
        tries: list[int] = []

        async def flaky(of: TaskContext) -> str:
            tries.append(of.attempt)
            if len(tries) < 4:
                raise OSError("not yet")
            failed[name] = len(tries)
            return f"{name} {tries}"

        return await ctx.run("flaky", flaky, retries=3, retry=SOON)

    async with flovyn.connect(url) as client, client.worker(agents=[caller]), client.worker(agents=[caller]):
        handles = [await client.start(caller, name) for name in "abcdefgh"]
        assert [await handle.result(timeout=30) for handle in handles] == [
            f"{name} [1, 2, 3, 4]" for name in "abcdefgh"
        ]
        assert [(task.kind, task.status, task.attempt) for task in await handles[0].tasks()] == [
            ("flaky", "COMPLETED", 1)
        ]


async def test_all_tries_may_fail(url: str) -> None:
    tries: list[int] = []

    @agent
    async def caller(ctx: AgentContext) -> dict[str, Any]:
        def broken(x: int) -> None:
            tries.append(x)
            raise OSError("never")

        with pytest.raises(flovyn.TaskFailed) as caught:
            await ctx.run("broken", broken, 7, retries=2, retry=SOON)
        assert isinstance(caught.value.__cause__, OSError)
        return {"attempts": caught.value.attempts, "type": caught.value.type}

    assert await flovyn.run_async(caller, url=url, timeout=30) == {"attempts": 3, "type": "OSError"}
    assert tries == [7, 7, 7]


async def test_what_may_not_be_tried_again_is_not(url: str) -> None:
    tries: list[int] = []

    @agent
    async def caller(ctx: AgentContext) -> int:
        async def broken() -> None:
            tries.append(1)
            raise flovyn.NonRetryable("no use")

        with pytest.raises(flovyn.TaskFailed) as caught:
            await ctx.run("broken", broken, retries=9, retry=SOON)
        return caught.value.attempts

    assert await flovyn.run_async(caller, url=url, timeout=30) == 1
    assert tries == [1]


async def test_a_try_past_its_time_is_cancelled_and_made_again(url: str) -> None:
    cancelled: list[int] = []

    @agent
    async def caller(ctx: AgentContext) -> list[int]:
        async def slow(of: TaskContext) -> int:
            if of.attempt < 3:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    cancelled.append(of.attempt)
                    raise
            return of.attempt

        async def hangs() -> None:
            await asyncio.sleep(3600)

        with pytest.raises(flovyn.TaskTimeout) as once:
            await ctx.run("hangs", hangs, timeout=0.05)
        with pytest.raises(flovyn.TaskTimeout) as often:
            await ctx.run("hangs", hangs, timeout=0.02, retries=2, retry=SOON)
        third = await ctx.run("slow", slow, timeout=0.5, retries=5, retry=SOON)
        return [once.value.attempts, often.value.attempts, third]

    assert await flovyn.run_async(caller, url=url, timeout=60) == [1, 3, 3]
    assert cancelled == [1, 2]


async def test_an_error_names_the_pause_before_the_next_try(url: str) -> None:
    tries: list[int] = []

    @agent
    async def caller(ctx: AgentContext) -> int:
        async def limited() -> int:
            tries.append(1)
            if len(tries) < 3:
                raise flovyn.RetryAfter(0.001)
            return len(tries)

        return await ctx.run("limited", limited, retries=9, retry=Retry(delay=3600.0, max_delay=3600.0))

    assert await flovyn.run_async(caller, url=url, timeout=30) == 3


async def test_a_stop_ends_the_pauses(url: str) -> None:
    tries: list[int] = []

    @agent
    async def caller(ctx: AgentContext) -> None:
        async def broken() -> None:
            tries.append(1)
            raise OSError("never")

        await ctx.run("broken", broken, retries=9, retry=Retry(delay=3600.0, max_delay=3600.0))

    async with flovyn.connect(url) as client, client.worker(agents=[caller]):
        handle = await client.start(caller)
        while not tries:
            await asyncio.sleep(0.005)
        await handle.cancel()
        with pytest.raises(flovyn.AgentCancelled):
            await handle.result(timeout=30)
    assert tries == [1]


async def test_a_worker_that_ends_leaves_the_tries_to_the_next(url: str) -> None:
    tries: list[str] = []
    name = "first"

    @agent
    async def caller(ctx: AgentContext) -> str:
        async def flaky() -> str:
            tries.append(name)
            if name == "first":
                raise OSError("not here")
            return name

        return await ctx.run("flaky", flaky, retries=9, retry=Retry(delay=3600.0, max_delay=3600.0))

    async with flovyn.connect(url) as client:
        async with client.worker(agents=[caller]):
            handle = await client.start(caller)
            while not tries:
                await asyncio.sleep(0.005)
        name = "second"
        async with client.worker(agents=[caller]):
            assert await handle.result(timeout=30) == "second"
    assert tries == ["first", "second"]


async def test_options_are_the_functions_where_it_has_them(url: str) -> None:
    @agent
    async def caller(ctx: AgentContext) -> list[Any]:
        def own(x: int, *, timeout: float, retries: int = 0) -> list[Any]:
            return [x, timeout, retries]

        def all_of(**given: Any) -> list[Any]:
            return [given]

        return [
            await ctx.run("own", own, 1, timeout=5.0, retries=2),
            await ctx.run("all", all_of, timeout=5.0, key="k"),
        ]

    assert await flovyn.run_async(caller, url=url, timeout=30) == [[1, 5.0, 2], [{"timeout": 5.0, "key": "k"}]]


async def test_a_key_names_a_call_among_others(url: str) -> None:
    """The order of calls has changed; a key finds each its own."""
    made: list[int] = []
    order = [1, 2, 3]

    @agent
    async def caller(ctx: AgentContext) -> dict[str, int]:
        async def make(n: int) -> int:
            made.append(n)
            return n

        steps = {n: ctx.run("make", lambda n=n: make(n), key=str(n)) for n in order}
        found = {str(n): await step for n, step in steps.items()}
        await ctx.wait_for_signal("go")
        return found

    async with flovyn.connect(url) as client:
        async with client.worker(agents=[caller]):
            handle = await client.start(caller)
            while await handle.status() != "WAITING":
                await asyncio.sleep(0.005)
        order.reverse()
        async with client.worker(agents=[caller]):
            await handle.signal("go")
            assert await handle.result(timeout=30) == {"1": 1, "2": 2, "3": 3}
    assert made == [1, 2, 3]


def test_def_agents_have_them_too(url: str) -> None:
    tries: list[int] = []

    @agent
    def caller(ctx: SyncAgentContext) -> int:
        def flaky() -> int:
            tries.append(1)
            if len(tries) < 3:
                raise OSError("not yet")
            return len(tries)

        return ctx.run("flaky", flaky, retries=2, retry=SOON, timeout=30.0, key="k")

    assert flovyn.run(caller, url=url, timeout=30) == 3


async def test_what_is_no_option_is_refused(url: str) -> None:
    @agent
    async def caller(ctx: AgentContext) -> None:
        async def fine() -> None: ...

        await ctx.run("fine", fine, retries=1, retry=Retry(factor=0.0))

    with pytest.raises(flovyn.AgentFailed, match="factor=0"):
        await flovyn.run_async(caller, url=url, timeout=30)


async def test_a_task_that_a_run_declares_is_tried_again_as_that_runs_own(url: str) -> None:
    """Each run declares a task of one kind, which holds what is its own: no attempt takes the other's."""

    @agent
    async def caller(ctx: AgentContext, name: str) -> str:
        tries: list[int] = []

        @flovyn.task(retries=3, retry=SOON)
        async def flaky(of: TaskContext, x: int) -> str:
            tries.append(of.attempt)
            if len(tries) < 4:
                raise OSError("not yet")
            return f"{name} {tries} {x}"

        return await flaky(7)

    async with flovyn.connect(url) as client, client.worker(agents=[caller]), client.worker(agents=[caller]):
        handles = [await client.start(caller, name) for name in "abcdefgh"]
        assert [await handle.result(timeout=30) for handle in handles] == [
            f"{name} [1, 2, 3, 4] 7" for name in "abcdefgh"
        ]


async def test_a_task_that_one_run_has_declared_and_others_call_is_everybodys(url: str) -> None:
    tries: list[int] = []

    @functools.cache
    def made() -> flovyn.Task[[], int]:
        @flovyn.task(retries=1, retry=SOON)
        async def flaky(of: TaskContext) -> int:
            tries.append(of.attempt)
            if of.attempt == 1:
                raise OSError("not yet")
            return of.attempt

        return flaky

    @agent
    async def caller(ctx: AgentContext) -> int:
        return await made()()

    async with flovyn.connect(url) as client, client.worker(agents=[caller]):
        handles = [await client.start(caller) for _ in range(3)]
        assert [await handle.result(timeout=20) for handle in handles] == [2, 2, 2] and len(tries) == 6
        # Those of other runs than the one that declared it go by the store, as any task's.
        assert sorted([task.attempt for handle in handles for task in await handle.tasks()]) in ([1, 2, 2], [2, 2, 2])


@pytest.mark.parametrize("by", ["run", "task"])
async def test_what_was_lost_with_its_process_runs_as_its_runs_own(by: str) -> None:
    begun: list[str] = []
    lives = asyncio.Event()

    @agent
    async def caller(ctx: AgentContext, name: str) -> str:
        async def says() -> str:
            begun.append(name)
            await lives.wait()
            return name

        return await ctx.run("says", says) if by == "run" else await flovyn.task(says)()

    async with harness([caller]) as h:
        handles = [await h.start(caller, name) for name in "abcd"]
        while sorted(begun) != list("abcd"):
            await asyncio.sleep(0.001)
        await h.crash()
        lives.set()
        assert [await handle.result(timeout=30) for handle in handles] == list("abcd")


async def test_a_task_of_a_run_for_a_queue_is_refused_where_its_run_is_not(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flovyn.worker.RUN_COMES_S", 0.1)

    @agent
    async def caller(ctx: AgentContext, name: str) -> str:
        @flovyn.task(queue="default")
        async def says() -> str:
            return name

        return await says()

    async with flovyn.connect(file_url) as client:
        async with client.worker(agents=[caller], max_tasks=0):
            left = await client.start(caller, "left")
            while not await left.tasks():
                await asyncio.sleep(0.001)
        async with client.worker(agents=[caller]):
            # It meets the kind in another run; the one that has called it before is not in this process.
            assert await (await client.start(caller, "other")).result(timeout=20) == "other"
            with pytest.raises(flovyn.AgentFailed, match="declared inside an agent's function"):
                await left.result(timeout=20)


def _of_module(x: int = 1) -> int:
    return x


@pytest.mark.parametrize(
    ("fn", "holds"),
    [
        (_of_module, False),
        (sum, False),
        (str, False),
        ("abc".upper, True),
        ([1].count, True),
        (functools.partial(_of_module, 2), True),
        (functools.lru_cache(_of_module), True),
        (lambda: 1, False),
        ((lambda y: lambda: y)(1), True),
        (lambda y=2: y, False),
    ],
)
def test_what_holds_values_is_known(fn: Any, holds: bool) -> None:
    def local(x: int = 1) -> int:
        return x

    assert holds_values(local) and not holds_values(lambda x: x)  # pyright: ignore[reportUnknownLambdaType]
    assert holds_values(fn) == holds


async def test_a_later_attempt_comes_to_the_queue_of_the_run(url: str) -> None:
    attempts: list[int] = []

    @flovyn.task(retries=2, retry=SOON)
    async def flaky(ctx: flovyn.TaskContext) -> int:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ConnectionError("again")
        return ctx.attempt

    @flovyn.task
    async def beside() -> str:
        return "detached"

    @flovyn.agent
    async def far(ctx: flovyn.AgentContext) -> tuple[int, str]:
        late = beside.options(detached=True)()
        return await flaky(), await late

    async with flovyn.connect(url) as client, client.worker(agents=[far], queue="far"):
        handle = await client.start(far, queue="far")
        assert await handle.result(timeout=30) == (3, "detached")
    assert attempts == [1, 2, 3]
