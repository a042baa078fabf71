"""Real processes, really killed: no finished step runs twice, nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SCALE

PROGRAM = """
import asyncio, os, sys
import flovyn
from dataclasses import dataclass
from flovyn import AgentContext, agent, task

LOG = sys.argv[2]

def note(line):
    with open(LOG, "a") as log:
        log.write(line + "\\n")

@task
async def step(number: int) -> int:
    note(f"start {number}")
    await asyncio.sleep(0.002)
    return number * number

@task
def blocking(number: int) -> int:
    note(f"start {number}")
    return number * number

@agent
async def linear(ctx: AgentContext, steps: int) -> list[int]:
    results = []
    for number in range(0, steps, 4):
        results.append(await step(number))
        note(f"done {number}")
        results.append(await blocking(number + 1))
        note(f"done {number + 1}")
        ctx.append_entry("assistant", f"{number}")
        pair = await asyncio.gather(step(number + 2), step(number + 3))
        note(f"done {number + 2}")
        note(f"done {number + 3}")
        results.extend(pair)
    return results

@dataclass
class Progress:
    number: int = 0
    total: int = 0

@agent(state=Progress)
async def looping(ctx: AgentContext[Progress], steps: int) -> int:
    while ctx.state.number < steps:
        number = ctx.state.number
        ctx.state.total += await step(number)
        ctx.append_entry("assistant", str(number))
        ctx.state.number += 1
        await ctx.checkpoint()
        note(f"done {number}")
    assert len(ctx.load_messages()) == steps
    return ctx.state.total

kind, steps = {"linear": linear, "looping": looping}[sys.argv[3]], int(sys.argv[4])
print(flovyn.run(kind, steps, id="run", url=sys.argv[1]), flush=True)
"""

STEPS = 40


@pytest.mark.parametrize("kind", ["linear", "looping"])
@pytest.mark.parametrize("seed", range(3 * SCALE))
def test_a_killed_run_goes_on(
    child: Callable[..., subprocess.Popen[str]], tmp_path: Path, file_url: str, kind: str, seed: int
) -> None:
    chance = random.Random(seed)
    log = tmp_path / "log"
    for _ in range(60):
        process = child(PROGRAM, file_url, str(log), kind, str(STEPS))
        # Kills that let nothing new happen quarantine the run after a while, as they should.
        before = log.read_text().count("start") if log.exists() else 0
        limit = time.monotonic() + 20
        goal = before + chance.randrange(1, 9)
        while process.poll() is None and time.monotonic() < limit:
            if log.exists() and log.read_text().count("start") >= goal:
                os.kill(process.pid, signal.SIGKILL)
                break
            time.sleep(0.001)
        output, complaints = process.communicate(timeout=20)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, complaints
    else:
        pytest.fail("never came to its end")
    squares = [number * number for number in range(STEPS)]
    assert output.strip() == str(squares if kind == "linear" else sum(squares))
    finished: set[str] = set()
    for line in log.read_text().splitlines():
        what, number = line.split()
        if what == "done":
            finished.add(number)
        else:
            assert number not in finished, f"step {number} had finished and ran again"


def test_the_interpreter_ends_although_nothing_was_closed(
    child: Callable[..., subprocess.Popen[str]], file_url: str
) -> None:
    source = """
import asyncio, sys, time, flovyn
from flovyn import agent, task

@task
def stuck():
    time.sleep(60)

@agent
async def waits(ctx):
    await stuck()

async def main():
    client = await flovyn.connect(sys.argv[1])
    await client.worker(agents=[waits]).start()
    handle = await client.start(waits, id="w")
    await asyncio.sleep(0.3)
    print(await handle.status(), flush=True)

asyncio.run(main())
"""
    began = time.monotonic()
    process = child(source, file_url)
    output, complaints = process.communicate(timeout=30)
    assert (process.returncode, output) == (0, "RUNNING\n"), complaints
    assert time.monotonic() - began < 15
    assert "Traceback" not in complaints, complaints


def test_an_unclosed_loop_records_nothing_of_its_teardown(
    child: Callable[..., subprocess.Popen[str]], file_url: str
) -> None:
    source = """
import asyncio, sys, flovyn
from flovyn import agent, task

@task
async def long():
    await asyncio.sleep(0.5 if len(sys.argv) > 2 else 60)
    return "done"

@agent
async def branches(ctx):
    return await asyncio.gather(long(), long())

async def main():
    if len(sys.argv) > 2:
        print(await flovyn.run_async(branches, id="b", url=sys.argv[1]))
        return
    client = await flovyn.connect(sys.argv[1])
    await client.worker(agents=[branches]).start()
    await client.start(branches, id="b")
    await asyncio.sleep(0.3)
    raise SystemExit(3)

asyncio.run(main())
"""
    process = child(source, file_url)
    _, complaints = process.communicate(timeout=30)
    assert process.returncode == 3, complaints
    process = child(source, file_url, "again")
    output, complaints = process.communicate(timeout=30)
    assert output == "['done', 'done']\n", complaints


def test_ctrl_c_is_clean(child: Callable[..., subprocess.Popen[str]], file_url: str) -> None:
    source = """
import sys, flovyn
from flovyn import agent

@agent
async def waits(ctx):
    print("waiting", flush=True)
    return await ctx.wait_for_signal("go")

try:
    flovyn.run(waits, id="w", url=sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = child(source, file_url)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, complaints = process.communicate(timeout=20)
    assert (process.returncode, output) == (0, "interrupted\n"), complaints
    assert "Traceback" not in complaints, complaints


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_process_is_told(child: Callable[..., subprocess.Popen[str]], file_url: str) -> None:
    source = """
import asyncio, os, sys, flovyn
from flovyn import agent

@agent
async def tiny(ctx):
    return 1

async def main():
    client = await flovyn.connect(sys.argv[1])
    if os.fork() == 0:
        try:
            await client.start(tiny)
        except flovyn.ForkedProcess:
            os._exit(7)
        os._exit(1)
    _, status = os.wait()
    print(os.waitstatus_to_exitcode(status), flush=True)
    await client.close()

asyncio.run(main())
"""
    process = child(source, file_url)
    output, complaints = process.communicate(timeout=20)
    assert output == "7\n", complaints
