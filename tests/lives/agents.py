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
from collections import deque
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import anyio
import crashes
import flovyn
from flovyn import AgentContext, TaskContext, agent, task

LIFE: dict[str, Any] = json.loads(sys.stdin.readline())
PROGRAMS: dict[str, dict[str, Any]] = {one["name"]: one for one in LIFE["programs"]}
_log = os.open(LIFE["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_places = itertools.count(1)
_began = time.monotonic()


def note(*words: Any, life: int = LIFE["number"]) -> None:
    """Write down what happened; the process may end here.

    All lines are as long, and no page ends within one: a kill can tear a write where its next page begins.
    """
    os.write(_log, json.dumps([life, *words]).ljust(255).encode() + b"\n")
    if next(_places) == LIFE["kill_at"]:
        os.kill(os.getpid(), signal.SIGKILL)


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────────

CALLERS: dict[UUID, Run] = {}
"""Who has called a task in this process: a fork's inputs are those of its parent, so they do not tell."""


@task
async def work(ctx: TaskContext, run: str, number: int, ms: int) -> int:
    CALLERS[ctx.task_id].note("start", number)
    await asyncio.sleep(ms / 1e3)
    return number


@task
async def fails(ctx: TaskContext, run: str, number: int) -> int:
    CALLERS[ctx.task_id].note("start", number)
    raise ValueError(str(number))


@task
def decide(ctx: TaskContext, run: str, number: int, seen: list[Any]) -> None:
    CALLERS[ctx.task_id].note("decide", number, seen)


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
        case "executor":
            await loop.run_in_executor(None, time.sleep, seconds)
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
        self.key = str(ctx.key)
        self.name: str = program["name"]
        self.program = program
        self.life = LIVES.get(self.key, LIFE["number"])
        self.seen: list[Any] = []
        self.decided: dict[str, list[Any]] = {}
        self.story: deque[str] = deque(maxlen=60)
        """What it did last, for who has to explain why it does not end."""
        RUNS[self.key] = self

    def note(self, *words: Any) -> None:
        """Write down what happened to it."""
        what, *rest = words
        note(what, self.key, *rest, life=self.life)

    def tell(self, what: str, node: list[Any]) -> None:
        """Remember what it does."""
        self.story.append(
            f"{(time.monotonic() - _began) * 1e3:.0f} ms {what} {json.dumps(node)[:90]}"
        )

    async def main(self) -> dict[str, Any]:
        background = [
            asyncio.create_task(self.do(node)) for node in self.program["background"]
        ]
        for node in self.program["body"]:
            await self.do(node)
        for branch in background:
            await branch
        return {"seen": self.seen, "decided": self.decided}

    async def call(self, step: flovyn.Step[Any]) -> Any:
        """Wait for a task and know whose it is."""
        CALLERS[step.id] = self
        return await step

    async def work(self, number: int, ms: int = 0) -> int:
        return await self.call(work(self.name, number, ms))

    async def do(self, node: list[Any]) -> None:
        """Do one node."""
        self.tell("begins", node)
        try:
            await self.one(node)
        except BaseException as error:
            self.tell(f"left by {error!r:.60}:", node)
            raise
        self.tell("ends", node)

    async def one(self, node: list[Any]) -> None:
        match node:
            case ["step", number, ms]:
                self.seen.append(await self.work(number, ms))
            case ["fail", number]:
                try:
                    await self.call(fails(self.name, number))
                except flovyn.TaskFailed as error:
                    self.seen.append(f"failed {error.message}")
            case ["decide", number]:
                await self.work(-number)
                seen = self.decided[str(number)] = list(self.seen)
                await self.call(decide(self.name, number, seen))
            case ["run", number]:
                self.seen.append(
                    await self.ctx.run(f"run {number}", self.inline, number)
                )
            case ["once", number]:
                self.seen.append(
                    await self.ctx.once(f"once {number}", self.work, number)
                )
            case ["entry", number]:
                self.ctx.append_entry("user", number)
            case ["drain", name]:
                self.seen.append(await self.ctx.drain_signals(name))
            case ["within", us, number]:
                try:
                    await self.ctx.wait_for_signal(f"never {number}", timeout=us / 1e6)
                except flovyn.SignalTimeout:
                    self.seen.append(f"late {number}")
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
                await self.all(variant % 14, nodes)
            case ["race", variant, nodes]:
                await self.race(variant % 6, nodes)
            case ["pool", variant, workers, nodes]:
                await self.pool(variant % 5, workers, nodes)
            case ["timeout", ms, body, number]:
                await self.timeout(number % 6, ms / 1e3, body)
                self.seen.append(await self.work(number))
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

    def inline(self, number: int) -> int:
        """Be a function that is no task."""
        self.note("start", number)
        return number

    async def timeout(self, variant: int, seconds: float, body: list[Any]) -> None:
        """Give a node so much time of the host's."""
        try:
            match variant:
                case 0:
                    async with asyncio.timeout(seconds):
                        await self.do(body)
                case 1:
                    await asyncio.wait_for(self.do(body), seconds)
                case 2:
                    with anyio.move_on_after(seconds):
                        await self.do(body)
                case 3:
                    with anyio.fail_after(seconds):
                        await self.do(body)
                case 4:
                    now = asyncio.get_running_loop().time()
                    async with asyncio.timeout_at(now + seconds):
                        await self.do(body)
                case _:
                    doing = asyncio.ensure_future(self.do(body))
                    _, late = await asyncio.wait([doing], timeout=seconds)
                    for one in late:
                        one.cancel()
                        await asyncio.wait([one])
        except TimeoutError:
            pass

    async def nest(self, depth: int, body: list[Any]) -> None:
        """Put branches into branches."""
        if depth == 0:
            await self.do(body)
        elif depth % 4 == 1:
            async with anyio.create_task_group() as group:
                group.start_soon(self.nest, depth - 1, body)
        elif depth % 4:
            await asyncio.gather(self.nest(depth - 1, body))
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.nest(depth - 1, body))

    async def all(self, variant: int, nodes: list[Any]) -> None:
        """Do all at once."""
        match variant:
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
                tasks = [asyncio.ensure_future(self.do(node)) for node in nodes]
                for done in asyncio.as_completed(tasks):
                    await done
            case 4:
                await asyncio.gather(*map(self.do, nodes), return_exceptions=True)
            case 5:
                async with anyio.create_task_group() as group:
                    for node in nodes:
                        group.start_soon(self.do, node)
            case 6:
                await self.ctx.join_all([self.do(node) for node in nodes])
            case 7:
                for one in await self.ctx.join_all_settled(*map(self.do, nodes)):
                    if isinstance(one, BaseException):
                        raise one
            case 8:
                tasks = [asyncio.ensure_future(self.do(node)) for node in nodes]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            case 9:
                left = {asyncio.create_task(self.do(node)) for node in nodes}
                while left:
                    _, left = await asyncio.wait(
                        left, return_when=asyncio.FIRST_COMPLETED
                    )
            case 10:
                async for _ in self.ended(nodes):
                    pass
            case 11:
                gate = asyncio.Semaphore(2)

                async def gated(node: list[Any]) -> None:
                    async with gate:
                        await self.do(node)

                await asyncio.gather(*map(gated, nodes))
            case 12:
                barrier = asyncio.Barrier(len(nodes))

                async def meeting(node: list[Any]) -> None:
                    await self.do(node)
                    await barrier.wait()

                await asyncio.gather(*map(meeting, nodes))
            case _:
                tasks = [asyncio.Task(self.do(node)) for node in nodes]
                for one in tasks:
                    await asyncio.shield(one)

    async def ended(self, nodes: list[Any]) -> AsyncIterator[int]:
        """Do all at once and tell which has ended, as a stream of what comes does."""
        ends: asyncio.Queue[int] = asyncio.Queue()

        async def one(at: int) -> None:
            await self.do(nodes[at])
            await ends.put(at)

        async with asyncio.TaskGroup() as group:
            for at in range(len(nodes)):
                group.create_task(one(at))
            for _ in nodes:
                yield await ends.get()

    async def race(self, variant: int, nodes: list[Any]) -> None:
        """Go on with the first and give the others up."""
        match variant:
            case 1:
                await self.ctx.select(*map(self.do, nodes))
                return
            case 2:
                async with anyio.create_task_group() as group:

                    async def racer(node: list[Any]) -> None:
                        await self.do(node)
                        group.cancel_scope.cancel()

                    for node in nodes:
                        group.start_soon(racer, node)
                return
            case _:
                pass
        tasks = [asyncio.create_task(self.do(node)) for node in nodes]
        try:
            match variant:
                case 3:
                    for first in asyncio.as_completed(tasks):
                        await first
                        break
                case 4:
                    first = asyncio.get_running_loop().create_future()
                    for one in tasks:
                        one.add_done_callback(
                            lambda _: first.done() or first.set_result(None)
                        )
                    await first
                case 5:
                    over = asyncio.Event()
                    for one in tasks:
                        one.add_done_callback(lambda _: over.set())
                    await over.wait()
                case _:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in tasks:
                one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def pool(self, variant: int, workers: int, nodes: list[Any]) -> None:
        """Let some workers do what is in a queue."""
        if variant == 0:
            send, receive = anyio.create_memory_object_stream[list[Any]](len(nodes))

            async def reader() -> None:
                async with receive.clone() as mine:
                    async for node in mine:
                        await self.do(node)

            async with anyio.create_task_group() as group, receive:
                for _ in range(workers):
                    group.start_soon(reader)
                async with send:
                    for node in nodes:
                        await send.send(node)
            return
        if variant == 1:
            left = iter(nodes)

            async def taker() -> None:
                for node in left:
                    await self.do(node)

            await self.ctx.join_all(*(taker() for _ in range(workers)))
            return
        queue: asyncio.Queue[Any] = asyncio.Queue()
        if variant == 2:
            for node in nodes:
                queue.put_nowait(node)

            async def serve() -> None:
                while True:
                    await self.do(await queue.get())
                    queue.task_done()

            async with asyncio.TaskGroup() as group:
                serving = [group.create_task(serve()) for _ in range(workers)]
                await queue.join()
                for one in serving:
                    one.cancel()
            return
        for node in (*nodes, *[None] * workers):
            queue.put_nowait(node)

        async def worker() -> None:
            while (node := await queue.get()) is not None:
                await self.do(node)

        await asyncio.gather(*(worker() for _ in range(workers)))


RUNS: dict[str, Run] = {}
"""The latest copy of each run."""
LIVES: dict[str, int] = {}
"""The life of a run that dies within this process; that of others is the process's."""


@agent(version=LIFE["version"])
async def generated(ctx: AgentContext[Any], name: str) -> dict[str, Any]:
    return await Run(ctx, PROGRAMS[name]).main()


# ── a life ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def send(handle: flovyn.Handle[Any], signals: list[Any]) -> None:
    """Send a run what it is sent."""
    for number, (ms, name, value) in enumerate(signals):
        await asyncio.sleep(ms / 1e3)
        try:
            await handle.signal(name, value, idempotency_key=str(number))
        except flovyn.ExecutionClosed:
            break


async def follow(
    handle: flovyn.Handle[Any], cancel: int | None, signals: list[Any]
) -> None:
    """Do to a run what is done to it, wait for its end and tell of it."""
    await send(handle, signals)
    if cancel is not None and LIFE["number"] > 1:
        await asyncio.sleep(cancel / 1e3)
        await handle.cancel(timeout=5)
    told: dict[str, Any] = {"name": handle.key}
    try:
        told["result"] = await handle.result(timeout=LIFE["timeout"])
    except flovyn.AgentCancelled:
        told["cancelled"] = True
    except flovyn.FlovynError as error:
        told["error"] = f"{type(error).__name__}: {error}"
        explain(str(handle.key))
    print(json.dumps(told), flush=True)


def explain(key: str) -> None:
    """Say on the error output what this process knows of a run that has not ended."""
    run = RUNS.get(key)
    lines = ["its code was not entered in this process"]
    if run is not None:
        lines = [*run.story, "its tasks wait at:"]
        for one in asyncio.all_tasks():
            frame = (
                one.get_coro().cr_frame if hasattr(one.get_coro(), "cr_frame") else None
            )
            if frame is not None and frame.f_locals.get("self") is run:
                lines.append(f"{one!r:.300}")
    for line in lines:
        print(f"[{key}] {line}", file=sys.stderr, flush=True)


async def fork(
    client: flovyn.Client, parent: flovyn.Handle[Any], how: dict[str, Any]
) -> flovyn.Handle[Any]:
    """Return the fork of a run, which an earlier life may have made."""
    key = f"{parent.key}/fork"
    try:
        return await client.handle(key)
    except flovyn.ExecutionNotFound:
        pass
    points: list[Any] = await (
        parent.entries() if how["by"] == "entry" else parent.tasks()
    )
    if points:
        point = points[how["at"] % len(points)]
        place = {"entry": point.id} if how["by"] == "entry" else {"op": point["op"]}
        try:
            return await parent.fork(**place, id=key)
        except flovyn.InvalidArgument:
            pass  # What it did for a request to stop belongs to no fork.
    return await parent.fork(id=key)


async def steer(client: flovyn.Client, program: dict[str, Any]) -> None:
    """Start a run, and its fork, and see them to their ends."""
    name, how = program["name"], program["fork"]
    handle = await client.start(generated, name, id=name)

    async def forked() -> None:
        made = await fork(client, handle, how)
        await follow(made, None, program["signals"])

    own = follow(handle, program["cancel"], program["signals"])
    if how is None or how["when"] is None:
        await own
        if how is not None:
            await forked()
    else:

        async def beside() -> None:
            await asyncio.sleep(how["when"] / 1e3)
            await forked()

        await asyncio.gather(own, beside())


async def main() -> None:
    """Live until all have ended, or until the process is killed."""
    if LIFE["kill_ms"] is not None:
        threading.Timer(
            LIFE["kill_ms"] / 1e3, os.kill, (os.getpid(), signal.SIGKILL)
        ).start()
    serving = asyncio.create_task(serve_foreign())
    parked = LIFE["max_parked"]
    options = {} if parked is None else {"max_parked": parked}
    serves: dict[str, Any] = {"agents": [generated], "tasks": [work, fails, decide]}
    if LIFE["url"] is None:
        await crashes.die_all(LIFE, serves | options, LIVES, explain)
    else:
        async with (
            flovyn.connect(LIFE["url"]) as client,
            client.worker(**serves, **options),
        ):
            await asyncio.gather(*(steer(client, one) for one in PROGRAMS.values()))
    serving.cancel()


if __name__ == "__main__":
    asyncio.run(main())
