"""Values on their way through the store: a result, an argument, a signal or an input comes as it was, or is refused."""

from __future__ import annotations

import asyncio
import collections
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, agent, task
from test_values_back import Dog, Job, Puppy, Secret, Twin


@task
async def gives(which: str) -> Dog | Twin:
    return Dog("rex", 3) if which == "dog" else Twin("rex", 3)


@task
async def counts() -> Any:
    return collections.Counter("ab")


@task(queue="far")
async def walks(dog: Dog, *more: tuple[int, int]) -> list[Any]:
    return [type(dog).__name__, dog.name, [type(pair).__name__ for pair in more]]


@agent
async def asking(ctx: AgentContext[Any]) -> list[str]:
    told: list[str] = [repr(await gives("dog")), *await walks(Dog("rex"), (1, 2))]
    for step in (lambda: gives("twin"), counts, lambda: walks(Puppy("p"))):
        try:
            await step()
        except flovyn.TaskFailed as failed:
            told.append(failed.type)
        except flovyn.NotSerializable as refused:
            told.append(refused.path)
    with pytest.raises(flovyn.NotSerializable, match="masked"):
        await ctx.once("secret", lambda: Secret(key="x"))
    return told


async def test_results_and_queued_arguments_come_as_they_were_or_are_refused(url: str) -> None:
    async with (
        flovyn.connect(url) as client,
        client.worker([asking]),
        client.worker(tasks=[walks], queue="far"),
    ):
        handle = await client.start(asking)
        assert await handle.result(timeout=20) == [
            "Dog(name='rex', tricks=3)",
            "Dog",
            "rex",
            ["tuple"],
            "NotSerializable",
            "NotSerializable",
            "$.dog",
        ]


@agent
async def listening(ctx: AgentContext[Any], job: Job) -> Job:
    assert await ctx.wait_for_signal("job", Job) == Job(2)
    return Puppy("p") if job.n == 1 else job  # type: ignore[return-value]


async def test_signals_inputs_and_ends_come_as_they_were_or_are_refused(url: str) -> None:
    async with flovyn.connect(url) as client, client.worker([listening]):
        with pytest.raises(flovyn.NotSerializable):
            await client.start("listening", Secret(key="x"))
        with pytest.raises(flovyn.NotSerializable):
            await client.start(listening, Dog("rex"))
        for n in (1, 2):
            handle = await client.start(listening, Job(n))
            with pytest.raises(flovyn.NotSerializable, match="masked"):
                await handle.signal("job", Secret(key="x"))
            await handle.signal("job", Job(2))
            if n == 2:
                assert await handle.result(timeout=20) == Job(2)
                continue
            while (run := await handle.describe()).status != "PAUSED":
                await asyncio.sleep(0.01)
            assert run.failure["code"] == "NotSerializable"
