"""An agent whose branches wait outside of its context: watched_victim.py URL SHAPE [KILL]. Prints what it decided."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time

import flovyn
from flovyn import AgentContext, agent, task

URL, SHAPE, *KILL = sys.argv[1:]


@task
async def ping(n: int) -> int:
    return n


@task
async def pay(what: str) -> None:
    print("paid", what, flush=True)


async def nested(depth: int) -> None:
    """Many turns of the loop, and no wait that anybody sees."""
    if depth:
        await asyncio.gather(nested(depth - 1))


async def grouped(depth: int) -> None:
    if depth:
        async with asyncio.TaskGroup() as group:
            group.create_task(grouped(depth - 1))


async def wait() -> None:
    """Wait as the shape says."""
    loop = asyncio.get_running_loop()
    match SHAPE:
        case "timer":
            await asyncio.sleep(0.05)
        case "gathers":
            await nested(25)
        case "groups":
            await grouped(25)
        case "thread":
            await asyncio.to_thread(time.sleep, 0.03)
        case "future":
            future: asyncio.Future[None] = loop.create_future()
            threading.Timer(0.03, lambda: loop.call_soon_threadsafe(future.set_result, None)).start()
            await future
        case "event":
            event = asyncio.Event()
            loop.call_later(0.03, event.set)
            await event.wait()
        case "queue":
            queue: asyncio.Queue[None] = asyncio.Queue()
            threading.Timer(0.03, lambda: loop.call_soon_threadsafe(queue.put_nowait, None)).start()
            await queue.get()
        case "spin":
            for _ in range(300):
                await asyncio.sleep(0)
        case "process":
            await (await asyncio.create_subprocess_exec(sys.executable, "-c", "")).wait()
        case "shield":
            await asyncio.shield(asyncio.sleep(0.03))
        case _:
            raise ValueError(SHAPE)


@agent(on_divergence="fail")
async def watched(ctx: AgentContext) -> str:
    seen: list[int] = []

    async def beat() -> None:
        for n in range(3):
            await wait()
            seen.append(await ping(n))

    # Made past the loop's own method, as some libraries do.
    background = asyncio.Task(beat()) if SHAPE == "shield" else asyncio.create_task(beat())
    said = await ctx.wait_for_signal("go")
    await pay(f"{said} after {len(seen)}")
    if KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    await background
    return f"{said} {len(seen)}"


async def main() -> None:
    async with flovyn.connect(URL) as client, client.worker(agents=[watched], tasks=[ping, pay]):
        handle = await client.start(watched, id="one")
        if KILL:
            while len([one for one in await handle.tasks() if one["status"] == "COMPLETED"]) < 3:
                await asyncio.sleep(0.01)
            await handle.signal("go", "said", idempotency_key="go")
        print("result", await handle.result(timeout=30), flush=True)


if "uvloop" in os.environ.get("LOOP", ""):
    import uvloop

    uvloop.run(main())
else:
    asyncio.run(main())
