"""When a failed task is tried again: its policy's pauses, what its errors ask for, and whose word is final."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, Retry, agent, task

HOUR = Retry(delay=3600.0, max_delay=3600.0)
"""Pauses that no test waits for: what ends within its time limit was not paused by these."""


class Busy(Exception):
    """As a service answers that is asked too often."""

    def __init__(self, retry_after: Any) -> None:
        super().__init__("too many requests")
        self.retry_after = retry_after


async def pauses(url: str, kind: Any) -> list[float]:
    """Run an agent and return the pauses between the attempts of its tasks, in seconds."""
    async with flovyn.connect(url) as client, client.worker(agents=[kind]):
        handle = await client.start(kind)
        await handle.result(timeout=60)
        told = [event async for event in handle.stream() if isinstance(event, flovyn.events.Lifecycle)]
        return [event.data["pause"] / 1e6 for event in told if event.name == "task_retry"]


@pytest.mark.parametrize("queue", [None, "default"])
async def test_pauses_follow_the_policy(anywhere: str, queue: str | None) -> None:
    attempts: list[int] = []

    @task(retries=4, retry=Retry(delay=0.001, factor=3.0, max_delay=0.01, jitter=0.0), queue=queue)
    async def flaky() -> int:
        attempts.append(len(attempts) + 1)
        if len(attempts) < 5:
            raise OSError("not yet")
        return len(attempts)

    @agent
    async def caller(ctx: AgentContext) -> int:
        return await flaky()

    assert await pauses(anywhere, caller) == [0.001, 0.003, 0.009, 0.01]
    assert attempts == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("queue", [None, "default"])
async def test_an_error_names_its_own_pause(anywhere: str, queue: str | None) -> None:
    asked: list[Any] = [0.002, timedelta(milliseconds=3), "0.004"]
    errors: list[BaseException] = [flovyn.RetryAfter(0.001), *(Busy(each) for each in asked)]

    @task(retries=9, retry=HOUR, queue=queue)
    async def limited() -> str:
        if errors:
            raise errors.pop(0)
        return "let in"

    @agent
    async def caller(ctx: AgentContext) -> str:
        return await limited()

    assert await pauses(anywhere, caller) == [0.001, 0.002, 0.003, 0.004]


async def test_a_pause_that_is_none_is_the_policys(url: str) -> None:
    errors: list[BaseException] = [Busy(None), Busy("soon"), Busy(float("nan")), Busy(float("inf")), Busy([])]

    @task(retries=9, retry=Retry(delay=0.001, factor=1.0, jitter=0.0))
    async def limited() -> None:
        if errors:
            raise errors.pop(0)

    @agent
    async def caller(ctx: AgentContext) -> None:
        await limited()

    assert await pauses(url, caller) == [0.001] * 5


async def test_retry_after_gives_no_attempt(url: str) -> None:
    @task
    async def limited() -> None:
        raise flovyn.RetryAfter(0.001, "later")

    @agent
    async def caller(ctx: AgentContext) -> str:
        with pytest.raises(flovyn.TaskFailed) as caught:
            await limited()
        return f"{caught.value.type} {caught.value.attempts}: {caught.value.message}"

    assert await flovyn.run_async(caller, url=url, timeout=30) == "RetryAfter 1: later"


@pytest.mark.parametrize("queue", [None, "default"])
async def test_a_predicate_decides_where_the_attempt_failed(anywhere: str, queue: str | None) -> None:
    asked: list[str] = []

    def passing(error: BaseException) -> bool:
        asked.append(str(error))
        return error.args[0] == "passing"

    @task(retries=9, retry=Retry(delay=0.0), retry_if=passing, queue=queue)
    async def broken() -> None:
        raise ValueError("passing" if len(asked) < 2 else "lasting")

    @agent
    async def caller(ctx: AgentContext) -> int:
        with pytest.raises(flovyn.TaskFailed, match="lasting") as caught:
            await broken()
        return caught.value.attempts

    async with flovyn.connect(anywhere) as client, client.worker(agents=[caller]):
        handle = await client.start(caller)
        assert await handle.result(timeout=60) == 3
    assert asked == ["passing", "passing", "lasting"]


async def test_a_predicate_that_raises_says_no(url: str, caplog: pytest.LogCaptureFixture) -> None:
    @task(retries=9, retry_if=lambda error: 1 / 0)
    async def broken() -> None:
        raise ValueError("why")

    @agent
    async def caller(ctx: AgentContext) -> int:
        with pytest.raises(flovyn.TaskFailed, match="why") as caught:
            await broken()
        return caught.value.attempts

    with caplog.at_level(logging.WARNING, logger="flovyn"):
        assert await flovyn.run_async(caller, url=url, timeout=30) == 1
    assert "retry_if raised ZeroDivisionError when it was asked about ValueError" in caplog.text


async def test_calls_may_have_pauses_of_their_own(url: str) -> None:
    failed: list[int] = []

    @task(retries=1, retry=HOUR, retry_if=lambda error: isinstance(error, OSError))
    async def flaky(n: int) -> int:
        if n not in failed:
            failed.append(n)
            raise OSError("not yet")
        return n

    @agent
    async def caller(ctx: AgentContext) -> int:
        return await flaky.options(retry=Retry(delay=0.001, jitter=0.0))(1)

    assert await pauses(url, caller) == [0.001]


@pytest.mark.parametrize(
    ("retry", "what"),
    [
        (Retry(delay=-1.0), "delay=-1"),
        (Retry(max_delay=float("nan")), "max_delay=NaN"),
        (Retry(factor=0.5), "factor=0.5"),
        (Retry(jitter=1.5), "jitter=1.5"),
        ({"delay": 1.0}, "flovyn.Retry"),
    ],
)
def test_what_is_no_policy_is_refused(retry: Any, what: str) -> None:
    with pytest.raises(flovyn.InvalidArgument, match=what):

        @task(retries=1, retry=retry)
        async def flaky() -> None: ...
