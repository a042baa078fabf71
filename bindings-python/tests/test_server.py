"""The same agents against a server: ``flovyn dev`` over gRPC, workers in processes of their own, one of them killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import flovyn
import pytest
from conftest import served


@flovyn.task
async def add(x: int) -> int:
    return x + 1


@flovyn.agent
async def climber(ctx: flovyn.AgentContext, steps: int) -> int:
    height = 0
    for _ in range(steps):
        height = await add(height)
        ctx.append_entry("assistant", f"at {height}")
        ctx.stream_token(f"{height} ")
    return height + await ctx.wait_for_signal("top", int)


@flovyn.agent
async def keeper(ctx: flovyn.AgentContext, size: int) -> int:
    blob = await ctx.run("make", make, size)
    return len(blob)


async def make(size: int) -> bytes:
    return os.urandom(size)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    monkeypatch.setenv("FLOVYN_HOME", str(tmp_path / "home"))
    with served(tmp_path) as told:
        yield told


async def test_an_agent_runs_unchanged_and_is_watched(server: dict[str, str]) -> None:
    async with flovyn.connect(server["grpc"]) as client, client.worker(agents=[climber], tasks=[add]):
        handle = await client.start(climber, 5, id="up")
        tokens: list[str] = []

        async def watch() -> None:
            async for event in handle.stream():
                if isinstance(event, flovyn.Token):
                    tokens.append(event.text)

        watching = asyncio.create_task(watch())
        await handle.signal("top", 10)
        assert await handle.result(timeout=20) == 15
        await asyncio.wait_for(watching, 20)
        assert [message.content for message in await handle.messages()] == [f"at {n}" for n in range(1, 6)]
        # Previews may be lost, never doubled or out of order.
        numbers = [int(token) for token in tokens]
        assert numbers == sorted(set(numbers))


async def test_large_values_cross_in_chunks(server: dict[str, str]) -> None:
    async with flovyn.connect(server["grpc"]) as client, client.worker(agents=[keeper]):
        for size in (9_000, 300_000, 5_000_000):
            handle = await client.start(keeper, size, id=f"of-{size}")
            assert await handle.result(timeout=30) == size


def worker_process(url: str) -> subprocess.Popen[bytes]:
    code = (
        "import asyncio, flovyn, test_server as t\n"
        "async def main():\n"
        f"    async with flovyn.connect({url!r}) as client:\n"
        "        await client.worker(agents=[t.climber], tasks=[t.add]).run()\n"
        "asyncio.run(main())\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.Popen([sys.executable, "-c", code], env=environment)


async def test_another_worker_goes_on_after_a_kill(server: dict[str, str]) -> None:
    first = worker_process(server["grpc"])
    async with flovyn.connect(server["grpc"]) as client:
        handle = await client.start(climber, 40, id="far")
        while len(await handle.entries()) < 5:
            await asyncio.sleep(0.01)
        second = worker_process(server["grpc"])
        first.send_signal(signal.SIGKILL)
        first.wait()
        try:
            await handle.signal("top", 2)
            assert await handle.result(timeout=20) == 42  # The lease alone would take 30 s.
        finally:
            second.terminate()
            second.wait()
        entries = [entry.content for entry in await handle.entries()]
        assert entries == [f"at {n}" for n in range(1, 41)]


async def test_a_worker_that_closes_leaves_nothing_held(server: dict[str, str]) -> None:
    async with flovyn.connect(server["grpc"]) as client:
        for n in range(20):
            worker = client.worker(agents=[climber], tasks=[add])
            async with worker:
                await client.start(climber, 1, id=f"left-{n}")
        held = [run async for run in client.runs(status="RUNNING")]
        assert held == []


def test_a_stranger_is_refused(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    url, file = server["grpc"], server["tokenFiles"][0]
    Path(file).write_text("fd_of_somebody_else")
    with pytest.raises(flovyn.FlovynError) as refused:
        flovyn.connect_sync(url)
    assert refused.value.code == "Unauthenticated"
    assert f"{url}: it was sent the token that `flovyn dev` left in {file}" in str(refused.value)
    monkeypatch.setenv("FLOVYN_TOKEN", "guessed")
    with pytest.raises(flovyn.FlovynError) as refused:
        flovyn.connect_sync(url)
    assert "sent the token of FLOVYN_TOKEN, which counts before the one" in str(refused.value)
    Path(file).unlink()
    monkeypatch.delenv("FLOVYN_TOKEN")
    monkeypatch.setenv("FLOVYN_URL", url)
    with pytest.raises(flovyn.FlovynError, match=r"no `flovyn dev` has left one in .*; FLOVYN_URL names this backend"):
        flovyn.connect_sync()
    Path(file).touch()


def token_of(told: dict[str, str]) -> str:
    return Path(told["tokenFiles"][0]).read_text()


async def test_a_client_goes_on_with_the_token_of_the_next_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOVYN_HOME", str(tmp_path / "home"))
    with served(tmp_path) as told:
        client = await flovyn.connect(told["grpc"])
        handle = await client.start(climber, 3, id="on")
        before = token_of(told)
    (tmp_path / "home" / "dev.token").unlink()
    with served(tmp_path, port=int(told["grpc"].rsplit(":", 1)[1])) as told:
        assert token_of(told) != before
        # Each call alone would be refused: the first one reads what counts now.
        assert await handle.status() == "PENDING"
        async with client.worker(agents=[climber], tasks=[add]):
            await handle.signal("top", 10)
            assert await handle.result(timeout=20) == 13
        await client.close()


async def test_nobody_listens_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(flovyn.StorageUnavailable, match="flovyn dev"):
        await flovyn.connect("http://127.0.0.1:9")
    monkeypatch.setenv("FLOVYN_URL", "http://127.0.0.1:9")
    with pytest.raises(flovyn.StorageUnavailable, match=r"127.0.0.1:9: nobody answers.*; FLOVYN_URL names"):
        await flovyn.connect()


def test_it_says_that_it_is_ready(server: dict[str, str]) -> None:
    with urllib.request.urlopen(server["http"] + "/_/ready") as answer:
        assert answer.status == 200
