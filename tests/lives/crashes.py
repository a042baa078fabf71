"""Lives of the generator's agents in Python that end at commits, within one process: by the world of `flovyn.testing`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import flovyn
from flovyn.hub import Hub
from flovyn.testing.harness import TestWorld

AT_A_TIME = 6
ENDED = ("COMPLETED", "FAILED", "CANCELLED")


async def die_all(
    life: dict[str, Any],
    serves: dict[str, Any],
    lives: dict[str, int],
    explain: Callable[[str], None],
) -> None:
    """Let each program die where it says, in a world of its own, and print what came of it."""
    gate = asyncio.Semaphore(AT_A_TIME)

    async def one(program: dict[str, Any]) -> None:
        async with gate:
            told: dict[str, Any] = {"name": program["name"]}
            try:
                told["result"] = await asyncio.wait_for(
                    die(program, serves, lives), life["timeout"]
                )
            except (flovyn.FlovynError, TimeoutError) as error:
                told["error"] = f"{type(error).__name__}: {error}"
                explain(program["name"])
            print(json.dumps(told), flush=True)

    await asyncio.gather(*map(one, life["programs"]))


async def die(
    program: dict[str, Any], serves: dict[str, Any], lives: dict[str, int]
) -> Any:
    """Let a program die at some of its commits; return what came of it."""
    name, world = program["name"], TestWorld()
    for number, point in enumerate([*program["crashes"], None], 1):
        lives[name] = number
        client = world.start_process()
        if point is not None:
            client.native.crash_at(*point)
        handle = await client.start(serves["agents"][0], name, id=name)
        for at, (_, signal, value) in enumerate(program["signals"]):
            await handle.signal(signal, value, idempotency_key=str(at))
        await client.worker(**serves).start()
        if await ended(world, client, handle):
            try:
                return await handle.result(timeout=10)
            finally:
                await client.close()
        client.forget()
        await Hub.current().call(client.native.kill)
    raise RuntimeError("its last life ended by itself")


async def ended(
    world: TestWorld, client: flovyn.Client, handle: flovyn.Handle[Any]
) -> bool:
    """Wait for the end of a run, or of its life: true for the run. Time passes while it waits."""
    end = asyncio.ensure_future(Hub.current().call(client.native.crashed))
    try:
        while True:
            status = asyncio.ensure_future(handle.status())
            await asyncio.wait((status, end), return_when=asyncio.FIRST_COMPLETED)
            if end.done():
                status.cancel()
                return False
            if status.result() in ENDED:
                return True
            if status.result() == "WAITING":
                await world.jump()
            await asyncio.sleep(0.005)
    finally:
        end.cancel()
