"""Agents that go on after `Suspended`: a copy that was put away stands still, and its worker ends in order."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

SOURCE = """
import asyncio, gc, logging, os, sys, flovyn
from dataclasses import dataclass
from flovyn import agent, task

how, end = sys.argv[1:]
rounds = 0

class Said(logging.Handler):
    def emit(self, record):
        os.write(1, b"said\\n")

logging.getLogger("flovyn").addHandler(Said())
logging.getLogger("flovyn").propagate = False

@task
async def work(x):
    return x

@dataclass
class State:
    n: int = 0

async def signal_(ctx):
    await ctx.wait_for_signal("s")

async def same_step(ctx):
    global step
    step = globals().get("step") or ctx.sleep(3600)
    await step

async def entry(ctx):
    ctx.append_entry("user", "x")
    ctx.record_usage("m", 1)
    await ctx.wait_for_signal("s")

async def read(ctx):
    if not await ctx.has_signal("s") and not await ctx.drain_signals("s"):
        await ctx.remaining_budget()
        await ctx.check_cancellation()
        await ctx.wait_for_signal("s")

async def branches(ctx):
    await asyncio.gather(ctx.wait_for_signal("s"), ctx.wait_for_signal("t"))

async def nested(ctx):
    await asyncio.wait_for(ctx.wait_for_signal("s"), 3600)

async def tasks(ctx):
    await work(1)
    await ctx.run("named", lambda: 1)
    await ctx.wait_for_signal("s")

async def once(ctx):
    await ctx.once("o", lambda: 1)
    await ctx.wait_for_signal("s")

async def thread(ctx):
    ctx.thread("side").append_entry("user", "x")
    await ctx.wait_for_signal("s")

def signal_def(ctx):
    ctx.wait_for_signal("s")

def entry_def(ctx):
    ctx.append_entry("user", "x")
    ctx.wait_for_signal("s")

def join_def(ctx):
    ctx.join_all(ctx.signal_step("s"), ctx.sleep_step(3600))

def round_():
    global rounds
    rounds += 1
    if rounds > 30:
        print("spins", flush=True)
        os._exit(9)

@agent
async def stubborn(ctx):
    while True:
        try:
            await globals()[how](ctx)
        except BaseException:
            round_()

@agent
def stubborn_def(ctx):
    while True:
        try:
            globals()[how](ctx)
        except BaseException:
            round_()

@agent
async def other(ctx, x):
    return await work(x)

of = stubborn_def if how.endswith("_def") else stubborn

async def main():
    async with flovyn.connect("memory:") as client:
        worker = client.worker([of, other])
        await worker.start()
        handle = await client.start(of)
        while await handle.status() != "WAITING" and how != "nested":
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        copy = next(iter(worker._activations.values()))
        if end == "sigterm":
            asyncio.get_running_loop().call_soon(lambda: print("serving", flush=True))
            await worker.run()
        elif end == "drop":
            copy.drop()
            del copy
            while worker._activations:
                await asyncio.sleep(0.01)
            assert await (await client.start(other, 5)).result(20) == 5
            await asyncio.sleep(0.05)
            gc.collect()
        elif end == "teardown":
            raise SystemExit(4)

asyncio.run(main())
print("ended", rounds < 12, flush=True)
"""

ASYNC = ["signal_", "same_step", "entry", "read", "branches", "nested", "tasks", "once", "thread"]
DEF = ["signal_def", "entry_def", "join_def"]


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=30)
    finally:
        process.kill()


@pytest.mark.parametrize("how", ASYNC + DEF)
def test_a_copy_that_was_put_away_stands_still(child: Callable[..., subprocess.Popen[str]], how: str) -> None:
    process = child(SOURCE, how, "drop")
    output, complaints = finish(process)
    assert (process.returncode, output, complaints) == (0, "said\nended True\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM")
@pytest.mark.parametrize("how", ["signal_", "entry", "branches", "nested", "signal_def"])
def test_sigterm_ends_a_worker_with_such_a_copy(child: Callable[..., subprocess.Popen[str]], how: str) -> None:
    process = child(SOURCE, how, "sigterm")
    assert process.stdout is not None
    assert process.stdout.readline() == "serving\n"
    process.send_signal(signal.SIGTERM)
    output, complaints = finish(process)
    assert process.returncode == 0, complaints
    # The thread of a `def` agent may have no time left to say it.
    assert output.replace("said\n", "") == "ended True\n"
    assert complaints == ""


@pytest.mark.parametrize("how", ["signal_", "entry", "branches", "nested", "signal_def"])
def test_a_loop_is_torn_down_around_such_a_copy(child: Callable[..., subprocess.Popen[str]], how: str) -> None:
    process = child(SOURCE, how, "teardown")
    output, complaints = finish(process)
    assert process.returncode == 4, (output, complaints)


TIDY = """
import asyncio, flovyn
from flovyn import agent

async def branch(ctx):
    for _ in range(3):
        try:
            await ctx.wait_for_signal("s")
        except BaseException:
            pass
    print("tidied", flush=True)

@agent
async def tidies(ctx):
    await asyncio.gather(*(branch(ctx) for _ in range(5)))

async def main():
    async with flovyn.connect("memory:") as client:
        async with client.worker([tidies]):
            handle = await client.start(tidies)
            while await handle.status() != "WAITING":
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)

asyncio.run(main())
"""


def test_a_few_calls_of_what_tidies_up_are_refused_in_each_branch(child: Callable[..., subprocess.Popen[str]]) -> None:
    process = child(TIDY)
    output, complaints = finish(process)
    assert (process.returncode, output) == (0, "tidied\n" * 5), complaints
