"""Stored values that Python cannot take, such as text that is none: each costs what it belongs to and no more."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import flovyn
from flovyn import AgentContext, agent, task

NO_TEXT = "a stored value is no JSON text"


def spoil(url: str, table: str, column: str) -> None:
    """Write bytes that are no text over the value of a column that is ``"bad"``."""
    connection = sqlite3.connect(url.removeprefix("sqlite:"))
    update = f"UPDATE {table} SET {column} = CAST(x'22ff22' AS TEXT) WHERE {column} = ?"
    assert connection.execute(update, ('"bad"',)).rowcount == 1
    connection.commit()
    connection.close()


@task
async def echo(text: str) -> str:
    return text


@task(queue="other")
async def elsewhere(text: str) -> str:
    return text


def told(result: Any) -> Any:
    if isinstance(result, flovyn.TaskFailed):
        return [result.type, NO_TEXT in str(result)]
    return [type(result).__name__, NO_TEXT in str(result)] if isinstance(result, Exception) else result


@agent
async def asks(ctx: AgentContext, words: list[str]) -> list[Any]:
    steps = [elsewhere(word) for word in words]
    return [told(result) for result in await asyncio.gather(*steps, return_exceptions=True)]


@agent
async def keeps(ctx: AgentContext, words: list[str]) -> list[Any]:
    results = await asyncio.gather(*[echo(word) for word in words], return_exceptions=True)
    await ctx.wait_for_signal("go")
    return [told(result) for result in results]


@agent
async def gives(ctx: AgentContext, text: str) -> str:
    return text


WORDS = ["one", "bad", "two"]


async def test_an_input_that_cannot_be_shown_fails_its_task_and_the_worker_does_the_others(file_url: str) -> None:
    async with flovyn.connect(file_url) as client, client.worker(agents=[asks]):
        run = await client.start(asks, WORDS, id="asks")
        while len(await run.tasks()) < 3:
            await asyncio.sleep(0.01)
    spoil(file_url, "task_execution", "input")
    async with flovyn.connect(file_url) as client, client.worker(agents=[asks]):
        async with client.worker(tasks=[elsewhere], queue="other"):
            handle = await client.handle("asks")
            assert await handle.result(timeout=20) == ["one", ["NotSerializable", True], "two"]


async def test_a_result_that_cannot_be_shown_is_the_error_of_its_step(file_url: str) -> None:
    async with flovyn.connect(file_url) as client, client.worker(agents=[keeps]):
        run = await client.start(keeps, WORDS, id="keeps")
        while await run.status() != "WAITING":
            await asyncio.sleep(0.01)
    spoil(file_url, "task_execution", "output")
    async with flovyn.connect(file_url) as client, client.worker(agents=[keeps]):
        handle = await client.handle("keeps")
        await handle.signal("go", 1)
        assert await handle.result(timeout=20) == ["one", ["NotSerializable", True], "two"]


async def test_what_cannot_be_shown_fails_the_call_that_asks_for_it_and_no_other(file_url: str) -> None:
    async with flovyn.connect(file_url) as client, client.worker(agents=[gives]):
        bad, good = await client.start(gives, "bad"), await client.start(gives, "good")
        assert [await bad.result(), await good.result()] == ["bad", "good"]
        spoil(file_url, "agent_execution", "output")
        asked = [run.result(timeout=20) for run in (bad, good, bad, good)]
        results = await asyncio.gather(*asked, return_exceptions=True)
    assert [told(result) for result in results] == [["NotSerializable", True], "good"] * 2
