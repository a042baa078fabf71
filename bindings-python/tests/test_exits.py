"""`sys.exit()` in a branch: asyncio raises it out of its loop, and the worker shall not end with one agent's branch."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import flovyn
import pytest
from flovyn import AgentContext, agent, task


@task
async def one() -> int:
    await asyncio.sleep(0)
    return 1


async def leaves() -> None:
    await asyncio.sleep(0)
    sys.exit("nothing to do")


async def leaves_at_once() -> None:
    sys.exit("nothing to do")


async def leaves_after_a_step() -> None:
    await one()
    sys.exit("nothing to do")


async def leaves_when_cancelled() -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        sys.exit("nothing to do")


async def in_gather() -> None:
    await asyncio.gather(one(), leaves())


async def in_nested_gathers() -> None:
    await asyncio.gather(one(), asyncio.gather(one(), in_gather()))


async def in_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(leaves_after_a_step())
        group.create_task(asyncio.sleep(60))


async def in_anyio_group() -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(leaves)
        await anyio.sleep(60)


async def in_task() -> None:
    await asyncio.create_task(leaves_at_once())


async def in_wait_for() -> None:
    await asyncio.wait_for(leaves_after_a_step(), 20)


async def in_cancelled() -> None:
    branch = asyncio.create_task(leaves_when_cancelled())
    await asyncio.sleep(0)
    branch.cancel()
    await branch


async def in_thread() -> None:
    await asyncio.gather(one(), asyncio.to_thread(sys.exit, "nothing to do"))


PLACES: dict[str, Callable[[], Awaitable[None]]] = {
    "gather": in_gather,
    "nested": in_nested_gathers,
    "anyio": in_anyio_group,
    "task": in_task,
    "wait_for": in_wait_for,
    "cancelled": in_cancelled,
    "thread": in_thread,
}
if sys.version_info >= (3, 11):
    PLACES["group"] = in_group


@agent
async def exits(ctx: AgentContext, where: str) -> None:
    await PLACES[where]()


async def branches_of_task(where: str) -> str:
    try:
        await {"gather": in_task_s_gather, "task": in_task}[where]()
    except SystemExit as error:
        return f"caught {error}"
    return "nothing"


async def in_task_s_gather() -> None:
    await asyncio.gather(asyncio.sleep(0), leaves())


@task
async def exits_inline(where: str) -> str:
    return await branches_of_task(where)


@task(queue="default")
async def exits_in_queue(where: str) -> None:
    await {"gather": in_task_s_gather, "task": in_task}[where]()


@agent
async def calls_tasks(ctx: AgentContext, where: str) -> list[Any]:
    caught = await exits_inline(where)
    try:
        await exits_in_queue(where)
    except flovyn.TaskFailed as failed:
        return [caught, failed.type, failed.message]
    return [caught]


@agent
async def catches(ctx: AgentContext) -> list[Any]:
    heard: list[Any] = []
    heard.extend(await asyncio.gather(one(), leaves(), return_exceptions=True))
    try:
        await asyncio.gather(one(), leaves())
    except SystemExit as error:
        heard.append(error)
    heard.append(await one())
    return [str(one) for one in heard]


@agent
async def two(ctx: AgentContext) -> int:
    return sum(await asyncio.gather(one(), one()))


@pytest.mark.parametrize("where", PLACES)
async def test_sys_exit_in_a_branch_fails_its_run_not_the_worker(where: str) -> None:
    async with flovyn.connect("memory:") as client, client.worker(agents=[exits, two]):
        run = await client.start(exits, where)
        # Groups of anyio raise a group.
        failed = "BaseExceptionGroup: unhandled errors" if where == "anyio" else "SystemExit: nothing to do"
        with pytest.raises(flovyn.AgentFailed, match=failed):
            await run.result(timeout=30)
        assert await (await client.start(two)).result(timeout=30) == 2


async def test_an_agent_may_catch_what_a_branch_exits_with() -> None:
    told = await flovyn.run_async(catches, url="memory:", timeout=30)
    assert told == ["1", "nothing to do", "nothing to do", "1"]


@pytest.mark.parametrize("where", ["gather", "task"])
async def test_sys_exit_in_a_branch_of_a_task_is_the_task_s(where: str) -> None:
    told = await flovyn.run_async(calls_tasks, where, url="memory:", timeout=30)
    assert told == ["caught nothing to do", "SystemExit", "nothing to do"]


ENDING = """
import asyncio, os, signal, sys, flovyn
from flovyn import agent

def leave(*_):
    sys.exit(3)

async def ends():
    await asyncio.sleep(0)
    if sys.argv[1] == "interrupt":
        raise KeyboardInterrupt
    os.kill(os.getpid(), signal.SIGTERM)
    return [n for n in range(1_000_000)]

@agent
async def waits(ctx):
    await asyncio.gather(asyncio.sleep(60), ends())

async def main():
    if sys.argv[1] == "foreign":
        async with flovyn.connect("memory:") as client, client.worker(agents=[waits]):
            # Not of an agent: the process's own code ends the process.
            await asyncio.gather(asyncio.sleep(60), asyncio.to_thread(sys.exit, 3))
    await flovyn.run_async(waits, url="memory:", timeout=20)

if sys.argv[1] == "handler":
    signal.signal(signal.SIGTERM, leave)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(4)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM")
@pytest.mark.parametrize(("how", "code"), [("interrupt", 4), ("handler", 3), ("foreign", 3)])
def test_what_ends_the_process_ends_it_from_a_branch_too(
    child: Callable[..., subprocess.Popen[str]], how: str, code: int
) -> None:
    process = child(ENDING, how)
    _, complaints = process.communicate(timeout=30)
    assert process.returncode == code, complaints
