"""How a process may end: without closing, by Ctrl-C, by the teardown of its loop, by fork. Kills are in test_kill."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest


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


@pytest.mark.parametrize("blocking", [False, True])
def test_a_close_that_fails_leaves_nothing_open(
    child: Callable[..., subprocess.Popen[str]], tmp_path: Path, blocking: bool
) -> None:
    (tmp_path / "files").mkdir()
    source = """
import asyncio, shutil, sys, threading, flovyn
from pathlib import Path
from flovyn import agent

@agent
async def waits(ctx):
    await ctx.wait_for_signal("never")

def vanish(url):
    shutil.rmtree(Path(url.removeprefix("sqlite:")).parent)

async def main():
    client = await flovyn.connect(sys.argv[1])
    for _ in range(2):
        await client.worker(agents=[waits]).start()
    result = asyncio.create_task((await client.start(waits, id="w")).result())
    await asyncio.sleep(0.5)
    vanish(sys.argv[1])
    for wait in (client.close(), asyncio.wait_for(result, 10)):
        try:
            await wait
        except flovyn.FlovynError as error:
            print(type(error).__name__)

def block():
    client = flovyn.connect_sync(sys.argv[1])
    client.worker(agents=[waits]).start()
    client.start(waits, id="w")
    vanish(sys.argv[1])
    try:
        client.close()
    except flovyn.FlovynError as error:
        print(type(error).__name__, [one.name for one in threading.enumerate() if one.name == "flovyn-client"])

block() if len(sys.argv) > 2 else asyncio.run(main())
"""
    process = child(source, f"sqlite:{tmp_path / 'files' / 'agents.db'}", *["blocking"] * blocking)
    output, complaints = process.communicate(timeout=60)
    told = ["StorageUnavailable []"] if blocking else ["StorageUnavailable"] * 2
    assert (process.returncode, output.splitlines()) == (0, told), complaints
