"""Attempts that nobody waits for any more are stopped, those that came from the queue too; what a retry still knows."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, TaskContext, agent, task, threads
from flovyn.blocking import SyncAgentContext

person: contextvars.ContextVar[str] = contextvars.ContextVar("person", default="nobody")


class Attempts:
    """What attempts of tasks told."""

    def __init__(self) -> None:
        self.at_once = 0
        self.running = 0
        self.begun: list[Any] = []
        self.ended = asyncio.Event()
        self.told = threading.Event()
        self.release = threading.Event()

    async def hang(self, what: Any) -> None:
        self.running += 1
        self.at_once = max(self.at_once, self.running)
        self.begun.append(what)
        try:
            await asyncio.sleep(3600)
        finally:
            self.running -= 1
            self.ended.set()

    async def until_begun(self, count: int = 1) -> None:
        while len(self.begun) < count:
            await asyncio.sleep(0.005)


@pytest.fixture
def attempts() -> Any:
    made = Attempts()
    yield made
    made.release.set()


# ── time limits ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("queue", [None, "default"])
async def test_an_attempt_that_takes_too_long_does_not_run_beside_the_next(queue: str | None, attempts: Any) -> None:
    @task(retries=2, timeout=0.2, queue=queue)
    async def slow(ctx: TaskContext) -> None:
        await attempts.hang(ctx.attempt)

    @agent
    async def calls(ctx: AgentContext) -> None:
        await slow()

    with pytest.raises(flovyn.AgentFailed, match="TaskTimeout"):
        await flovyn.run_async(calls, url="memory:", timeout=30)
    assert attempts.begun == [1, 2, 3]
    assert attempts.at_once == 1
    assert attempts.running == 0


async def test_a_def_task_of_the_queue_sees_that_its_time_is_over(attempts: Any) -> None:
    @task(timeout=0.2, queue="default")
    def slow(ctx: TaskContext) -> None:
        while not ctx.is_cancelled and not attempts.release.wait(0.005):
            pass
        if ctx.is_cancelled:
            attempts.told.set()

    @agent
    async def calls(ctx: AgentContext) -> None:
        await slow()

    async with flovyn.connect("memory:") as client, client.worker([calls]):
        with pytest.raises(flovyn.AgentFailed, match="TaskTimeout"):
            await (await client.start(calls)).result(30)
        assert await asyncio.to_thread(attempts.told.wait, 5)


async def test_the_next_attempt_stops_one_whose_limit_only_the_store_knew(attempts: Any) -> None:
    @task(retries=1, timeout=0.5, queue="gpu")
    async def render(ctx: TaskContext) -> str:
        if ctx.attempt == 1:
            await attempts.hang(1)
        await asyncio.wait_for(attempts.ended.wait(), 30)
        # Its end must not be taken for this one's.
        await asyncio.sleep(0.05)
        return "second"

    @agent
    async def calls(ctx: AgentContext) -> str:
        return await render()

    async with flovyn.connect("memory:") as client, client.worker([calls]):
        worker = client.worker(tasks=[render], queue="gpu")
        async with worker:
            assert await (await client.start(calls)).result(30) == "second"
            assert not worker._attempts


# ── ends of waiting ──────────────────────────────────────────────────────────────────────────────────────────────────


def waiting(attempts: Attempts, kind: str) -> Any:
    @task(queue="default")
    async def queued(ctx: TaskContext) -> None:
        await attempts.hang(ctx.attempt)

    if kind == "async":

        @agent
        async def waits(ctx: AgentContext) -> None:
            await queued()

        return waits
    if kind == "branch":

        @agent
        async def gathers(ctx: AgentContext) -> None:
            await asyncio.gather(queued(), ctx.wait_for_signal("x"))

        return gathers

    @agent
    def blocks(ctx: SyncAgentContext) -> None:
        queued().result()

    return blocks


@pytest.mark.parametrize("kind", ["async", "branch", "def"])
async def test_the_end_of_a_run_stops_its_queued_attempts(kind: str, attempts: Any) -> None:
    of = waiting(attempts, kind)
    async with flovyn.connect("memory:") as client, client.worker([of]):
        handle = await client.start(of)
        await attempts.until_begun()
        await handle.cancel()
        with pytest.raises(flovyn.AgentCancelled):
            await handle.result(30)
        await asyncio.wait_for(attempts.ended.wait(), 5)


async def test_a_queued_attempt_that_is_given_up_is_stopped(attempts: Any) -> None:
    @task(queue="default")
    async def queued(ctx: TaskContext) -> None:
        await attempts.hang(ctx.attempt)

    @agent
    async def gives_up(ctx: AgentContext) -> str:
        step = asyncio.ensure_future(queued())
        await attempts.until_begun()
        step.cancel()
        await asyncio.wait_for(attempts.ended.wait(), 5)
        return "stopped"

    assert await flovyn.run_async(gives_up, url="memory:", timeout=30) == "stopped"


async def test_a_detached_task_goes_on_without_whoever_waited(attempts: Any) -> None:
    done = asyncio.Event()

    @task
    async def apart() -> str:
        attempts.begun.append(1)
        await done.wait()
        return "done"

    @agent
    async def leaves(ctx: AgentContext) -> str:
        step = apart.options(detached=True)()
        waits = asyncio.ensure_future(step)
        await attempts.until_begun()
        waits.cancel()
        done.set()
        return await ctx.attach(step.ref)

    assert await flovyn.run_async(leaves, url="memory:", timeout=30) == "done"


# ── what a retry knows ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_retry_runs_in_the_context_of_its_call(blocking: bool) -> None:
    seen: list[tuple[int, str]] = []

    def note(attempt: int) -> str:
        seen.append((attempt, person.get()))
        person.set("changed by a task")
        if attempt < 3:
            raise ValueError("again")
        return person.get()

    @task(retries=2)
    async def asked(ctx: TaskContext) -> str:
        return note(ctx.attempt)

    @task(retries=2)
    def asked_in_thread(ctx: TaskContext) -> str:
        return note(ctx.attempt)

    @agent
    async def asks(ctx: AgentContext) -> str:
        person.set("ada")
        await (asked_in_thread if blocking else asked)()
        return person.get()

    assert await flovyn.run_async(asks, url="memory:", timeout=30) == "ada"
    assert seen == [(1, "ada"), (2, "ada"), (3, "ada")]


# ── threads ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_thread_that_runs_on_is_said_once(
    attempts: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "PATIENCE_S", 0)

    @task(retries=1, timeout=0.1)
    def deaf() -> None:
        attempts.release.wait()

    @agent
    async def calls(ctx: AgentContext) -> None:
        await deaf()

    with caplog.at_level(logging.WARNING, "flovyn"):
        with pytest.raises(flovyn.AgentFailed, match="TaskTimeout"):
            await flovyn.run_async(calls, url="memory:", timeout=30)
    assert [record.message for record in caplog.records if "deaf" in record.message] == [
        "test_a_thread_that_runs_on_is_said_once.<locals>.deaf was told to stop, but its thread runs on: nothing can "
        "end it from outside; let it look at ctx.is_cancelled of its TaskContext"
    ]


async def test_what_was_cancelled_before_a_thread_was_free_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Callable[[], None]] = []
    monkeypatch.setattr(threads, "submit", jobs.append)
    ran: list[int] = []
    waits = asyncio.ensure_future(threads.in_thread(contextvars.copy_context(), ran.append, (1,), {}))
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.wait([waits])
    for job in jobs:
        job()
    assert (len(jobs), ran) == (1, [])
