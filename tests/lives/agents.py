"""The generator's agents in Python; README.md says what a life is. One life on standard input, what came of it on the output."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
import threading
import time
from typing import Any

import flovyn
from flovyn import AgentContext, agent, task

LIFE: dict[str, Any] = json.loads(sys.stdin.readline())
PROGRAMS: dict[str, dict[str, Any]] = {one["name"]: one for one in LIFE["programs"]}
_log = os.open(LIFE["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_places = itertools.count(1)


def note(*words: Any) -> None:
    """Write down what happened; the process may end here."""
    os.write(_log, (json.dumps([LIFE["number"], *words]) + "\n").encode())
    if next(_places) == LIFE["kill_at"]:
        os.kill(os.getpid(), signal.SIGKILL)


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@task
async def work(run: str, number: int, ms: int) -> int:
    note("start", run, number)
    await asyncio.sleep(ms / 1e3)
    return number


@task
async def fails(run: str, number: int) -> int:
    note("start", run, number)
    raise ValueError(str(number))


@task
def decide(run: str, number: int, seen: list[Any]) -> None:
    note("decide", run, number, seen)


# ── what the code waits for outside of its context ───────────────────────────────────────────────────────────────────

_foreign: asyncio.Queue[tuple[float, asyncio.Event]] = asyncio.Queue()


async def serve_foreign() -> None:
    """Somebody else's task, which the agents' branches may wait for."""
    while True:
        seconds, event = await _foreign.get()
        asyncio.get_running_loop().call_later(seconds, event.set)


async def outside(how: str, seconds: float) -> None:
    """Wait for something that the engine does not see."""
    loop = asyncio.get_running_loop()
    match how:
        case "timer":
            await asyncio.sleep(seconds)
        case "spin":
            for _ in range(int(seconds * 1e3)):
                await asyncio.sleep(0)
        case "thread":
            await asyncio.to_thread(time.sleep, seconds)
        case "future":
            future: asyncio.Future[None] = loop.create_future()

            def end() -> None:
                if not future.done():
                    future.set_result(None)

            threading.Timer(seconds, lambda: loop.call_soon_threadsafe(end)).start()
            await future
        case "event":
            event = asyncio.Event()
            loop.call_later(seconds, event.set)
            await event.wait()
        case _:
            event = asyncio.Event()
            _foreign.put_nowait((seconds, event))
            await event.wait()


# ── the agent ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Run:
    """One life of one program."""

    def __init__(self, ctx: AgentContext[Any], program: dict[str, Any]) -> None:
        self.ctx = ctx
        self.name: str = program["name"]
        self.program = program
        self.seen: list[Any] = []

    async def main(self) -> list[Any]:
        background = [
            asyncio.create_task(self.do(node)) for node in self.program["background"]
        ]
        for node in self.program["body"]:
            await self.do(node)
        for branch in background:
            await branch
        return self.seen

    async def do(self, node: list[Any]) -> None:
        """Do one node."""
        match node:
            case ["step", number, ms]:
                self.seen.append(await work(self.name, number, ms))
            case ["fail", number]:
                try:
                    await fails(self.name, number)
                except flovyn.TaskFailed as error:
                    self.seen.append(f"failed {error.message}")
            case ["decide", number]:
                await work(self.name, -number, 0)
                await decide(self.name, number, list(self.seen))
            case ["sleep", us]:
                await self.ctx.sleep(us / 1e6)
            case ["signal", name]:
                self.seen.append(await self.ctx.wait_for_signal(name))
            case ["never", number]:
                await self.ctx.wait_for_signal(f"never {number}")
            case ["outside", how, ms]:
                await outside(how, ms / 1e3)
            case ["seq", nodes]:
                for one in nodes:
                    await self.do(one)
            case ["all", variant, nodes]:
                await self.all(variant, nodes)
            case ["race", nodes]:
                await self.race(nodes)
            case ["pool", workers, nodes]:
                await self.pool(workers, nodes)
            case ["timeout", ms, body, number]:
                try:
                    if number % 2:
                        await asyncio.wait_for(self.do(body), ms / 1e3)
                    else:
                        async with asyncio.timeout(ms / 1e3):
                            await self.do(body)
                except TimeoutError:
                    pass
                self.seen.append(await work(self.name, number, 0))
            case ["limit", us, body]:
                try:
                    async with self.ctx.timeout(us / 1e6):
                        await self.do(body)
                except TimeoutError:
                    pass
            case ["nest", depth, body]:
                await self.nest(depth, body)
            case _:
                raise ValueError(f"unknown node {node}")

    async def nest(self, depth: int, body: list[Any]) -> None:
        """Put branches into branches."""
        if depth == 0:
            await self.do(body)
        elif depth % 3:
            await asyncio.gather(self.nest(depth - 1, body))
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.nest(depth - 1, body))

    async def all(self, variant: int, nodes: list[Any]) -> None:
        """Do all at once."""
        match variant % 6:
            case 0:
                await asyncio.gather(*map(self.do, nodes))
            case 1:
                async with asyncio.TaskGroup() as group:
                    for node in nodes:
                        group.create_task(self.do(node))
            case 2:
                await asyncio.wait(
                    [asyncio.ensure_future(self.do(node)) for node in nodes]
                )
            case 3:
                for done in asyncio.as_completed([self.do(node) for node in nodes]):
                    await done
            case 4:
                await asyncio.gather(*map(self.do, nodes), return_exceptions=True)
            case _:
                tasks = [asyncio.Task(self.do(node)) for node in nodes]
                for one in tasks:
                    await asyncio.shield(one)

    async def race(self, nodes: list[Any]) -> None:
        """Go on with the first and give the others up."""
        tasks = [asyncio.create_task(self.do(node)) for node in nodes]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in tasks:
                one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def pool(self, workers: int, nodes: list[Any]) -> None:
        """Let some workers do what is in a queue."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        for node in (*nodes, *[None] * workers):
            queue.put_nowait(node)

        async def worker() -> None:
            while (node := await queue.get()) is not None:
                await self.do(node)

        await asyncio.gather(*(worker() for _ in range(workers)))


@agent(version=LIFE["version"])
async def generated(ctx: AgentContext[Any], name: str) -> list[Any]:
    return await Run(ctx, PROGRAMS[name]).main()


# ── a life ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def steer(client: flovyn.Client, program: dict[str, Any]) -> dict[str, Any]:
    """Start a run, send what it is sent, and wait for its end."""
    name = program["name"]
    handle = await client.start(generated, name, id=name)
    for number, (ms, signal_name, value) in enumerate(program["signals"]):
        await asyncio.sleep(ms / 1e3)
        try:
            await handle.signal(signal_name, value, idempotency_key=str(number))
        except flovyn.ExecutionClosed:
            break
    if program["cancel"] is not None and LIFE["number"] > 1:
        await asyncio.sleep(program["cancel"] / 1e3)
        await handle.cancel(timeout=5)
    told: dict[str, Any] = {"name": name}
    try:
        told["result"] = await handle.result(timeout=LIFE["timeout"])
    except flovyn.AgentCancelled:
        told["cancelled"] = True
    except flovyn.FlovynError as error:
        told["error"] = f"{type(error).__name__}: {error}"
    return told


async def main() -> None:
    """Live until all have ended, or until the process is killed."""
    if LIFE["kill_ms"] is not None:
        threading.Timer(
            LIFE["kill_ms"] / 1e3, os.kill, (os.getpid(), signal.SIGKILL)
        ).start()
    serving = asyncio.create_task(serve_foreign())
    async with flovyn.connect(LIFE["url"]) as client:
        options = (
            {} if LIFE["max_parked"] is None else {"max_parked": LIFE["max_parked"]}
        )
        async with client.worker(
            agents=[generated], tasks=[work, fails, decide], **options
        ):
            for told in asyncio.as_completed(
                [steer(client, program) for program in PROGRAMS.values()]
            ):
                print(json.dumps(await told), flush=True)
    serving.cancel()


if __name__ == "__main__":
    asyncio.run(main())
