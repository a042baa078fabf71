"""A worker process that is asked to end, as service managers ask: its runs go on elsewhere at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import flovyn
import pytest
from conftest import served

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM")


@flovyn.task
async def lengthy(n: int) -> int:
    if "LENGTHY" in os.environ:
        print("at work", flush=True)
        await asyncio.sleep(600)
    return n + 1


@flovyn.agent
async def busy(ctx: flovyn.AgentContext, n: int) -> int:
    return await lengthy(n)


@flovyn.agent
async def idle(ctx: flovyn.AgentContext, n: int) -> int:
    return n + await ctx.wait_for_signal("more", int)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    monkeypatch.setenv("FLOVYN_HOME", str(tmp_path / "home"))
    with served(tmp_path) as told:
        yield told


def start(body: str, url: str) -> subprocess.Popen[str]:
    code = f"import asyncio, signal, sys, flovyn, test_sigterm as t\n{body}"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "LENGTHY": "1"}
    command = [sys.executable, "-c", code, url]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until_at_work(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "at work\n"


SERVES = """
async def main():
    async with flovyn.connect(sys.argv[1]) as client:
        await asyncio.gather(client.worker(agents=[t.busy]).run(), client.worker(agents=[t.idle]).run())
    print("ended in order", flush=True)
asyncio.run(main())
"""


async def test_sigterm_gives_runs_back_at_once(server: dict[str, str]) -> None:
    async with flovyn.connect(server["grpc"]) as client:
        works = await client.start(busy, 1, id="busy")
        waits = await client.start(idle, 1, id="idle")
        process = start(SERVES, server["grpc"])
        until_at_work(process)
        while await waits.status() != "WAITING":
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        output, complaints = process.communicate(timeout=25)
        assert (process.returncode, output) == (0, "ended in order\n"), complaints
        # At once: the lease would hold for 30 s.
        told = await works.describe()
        assert (told.status, told["worker"]) == ("PENDING", None)
        assert await waits.status() == "WAITING"
        async with client.worker(agents=[busy, idle]):
            await waits.signal("more", 5)
            assert await works.result(timeout=20) == 2
            assert await waits.result(timeout=20) == 6


RUNS = """
async def main():
    await asyncio.gather(*(flovyn.run_async(t.busy, 1, id=f"run-{n}", url=sys.argv[1]) for n in range(3)))
asyncio.run(main())
"""


async def test_sigterm_gives_back_what_run_serves_and_ends_the_process(server: dict[str, str]) -> None:
    process = start(RUNS, server["grpc"])
    for _ in range(3):
        until_at_work(process)
    process.send_signal(signal.SIGTERM)
    _, complaints = process.communicate(timeout=25)
    assert process.returncode == -signal.SIGTERM, complaints
    async with flovyn.connect(server["grpc"]) as client:
        for n in range(3):
            told = await (await client.handle(f"run-{n}")).describe()
            assert (told.status, told["worker"]) == ("PENDING", None)


OWN = """
async def main():
    signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
    async with flovyn.connect(sys.argv[1]) as client:
        worker = client.worker(agents=[t.busy])
        running = asyncio.ensure_future(worker.run())
        while "mine" not in told:
            await asyncio.sleep(0.01)
        assert not running.done()
        await worker.close()
        await running
told = []
mine = print
def print(text, flush):
    told.append(text)
    mine(text, flush=flush)
asyncio.run(main())
"""


async def test_a_program_with_a_handler_of_its_own_keeps_it(server: dict[str, str]) -> None:
    async with flovyn.connect(server["grpc"]) as client:
        await client.start(busy, 1, id="busy")
        process = start(OWN, server["grpc"])
        until_at_work(process)
        process.send_signal(signal.SIGTERM)
        output, complaints = process.communicate(timeout=25)
        assert (process.returncode, output) == (0, "mine\n"), complaints


async def test_a_second_sigterm_ends_it_now(server: dict[str, str]) -> None:
    source = """
async def main():
    async with flovyn.connect(sys.argv[1]) as client:
        worker = client.worker(agents=[t.busy])
        async def never(grace=0):
            print("closing", flush=True)
            await asyncio.sleep(600)
        worker.close = never
        await worker.run()
asyncio.run(main())
"""
    async with flovyn.connect(server["grpc"]) as client:
        await client.start(busy, 1, id="busy")
        process = start(source, server["grpc"])
        until_at_work(process)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "closing\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=25)
        assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_without_a_word_of_python(tmp_path: Path, signum: int) -> None:
    command = [
        sys.executable,
        "-m",
        "flovyn",
        "dev",
        "--json",
        "--db",
        "memory:",
        "--http-port",
        "0",
        "--grpc-port",
        "0",
    ]
    environment = os.environ | {"FLOVYN_HOME": str(tmp_path / "home"), "FLOVYN_LOG": "error"}
    # As in a terminal, whatever this process was started with.
    started = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert started.stdout is not None
    assert '"console"' in started.stdout.readline()
    started.send_signal(signum)
    _, said = started.communicate(timeout=60)
    assert (started.returncode, said) == (0, "")
