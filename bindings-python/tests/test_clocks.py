"""Whatever a process's clock says, runs go on and sleep as long as they should: every role, ahead, behind, set.

A process under faketime has another wall clock; what passes in it is as long as elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import served

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="faketime is installed on Linux alone")

WORKER = """
import asyncio, sys, flovyn
from flovyn import agent, task

@task
async def slow(n: int) -> int:
    print("slow", flush=True)
    await asyncio.sleep(1)
    return n

@agent
async def naps(ctx, n: int) -> int:
    await ctx.sleep(1)
    done = await ctx.schedule_task(slow, n)
    await ctx.wait_for_signal("go")
    return done

async def main():
    async with await flovyn.connect(sys.argv[1]) as client, client.worker(agents=[naps], tasks=[slow]):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""

CLIENT = """
import asyncio, sys, flovyn

async def main():
    async with await flovyn.connect(sys.argv[1]) as client:
        handle = await client.start("naps", 7)
        await handle.signal("go")
        print(await handle.result(timeout=40), flush=True)

asyncio.run(main())
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a program; what still runs is ended with the test."""
    with contextlib.ExitStack() as ends:

        def begin(code: str, url: str, environment: dict[str, str]) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", code, url],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            ends.callback(process.communicate)
            ends.callback(process.kill)
            return process

        yield begin


def faked(by: str, folder: Path) -> dict[str, str]:
    """Return the environment of a process whose clock is moved: by so much, or as the file ``by`` says."""
    command = ["faketime", "-f", "+0s", "printenv", "LD_PRELOAD"]
    library = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    how = {"LD_PRELOAD": library, "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    if by != "set":
        return {**os.environ, **how, "FAKETIME": by}
    (folder / "by").write_text("+0s\n")
    return {**os.environ, **how, "FAKETIME_TIMESTAMP_FILE": str(folder / "by")}


@pytest.mark.parametrize("by", ["+60s", "-3600s", "set"])
@pytest.mark.parametrize(
    ("role", "is_served"),
    [("server", True), ("worker", True), ("client", True), ("worker", False), ("client", False)],
    ids=["server", "worker", "client", "worker on a file", "client on a file"],
)
def test_a_run_takes_as_long_as_it_should(
    role: str, is_served: bool, by: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOVYN_HOME", str(tmp_path / "home"))
    wrong = faked(by, tmp_path)
    environment = {name: wrong if name == role else dict(os.environ) for name in ("server", "worker", "client")}
    server = served(tmp_path, environment["server"]) if is_served else contextlib.nullcontext(None)
    with server as told:
        url = told["grpc"] if told else f"sqlite:{tmp_path / 'runs.db'}"
        worker = start(WORKER, url, environment["worker"])
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        began = time.monotonic()
        client = start(CLIENT, url, environment["client"])
        if by == "set":
            for moved in ["+3600s", "-3600s", "+0s"]:
                time.sleep(0.6)
                (tmp_path / "by").write_text(f"{moved}\n")
        output, _ = client.communicate(timeout=60)
        assert (output, client.returncode) == ("7\n", 0)
        # A clock that is set forward takes along what sleeps by it: then the task's second alone is certain.
        is_due_early = by == "set" and (role == "server" or (role == "worker" and not is_served))
        assert (1 if is_due_early else 2) <= time.monotonic() - began < 30
        ran, _ = worker.communicate("", timeout=30)
        assert ran == "slow\n", "the task ran once"
