"""What a local run says and does stays on its machine: the server has references, and nobody else can go on with it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import flovyn
import pytest
from flovyn import AgentContext, Local, TaskContext, agent, task
from test_daemon import Server, server  # noqa: F401  # pyright: ignore[reportUnusedImport]


@task(retries=3, retry=flovyn.Retry(delay=0.3))
async def fails_once(ctx: TaskContext, word: str) -> str:
    if ctx.attempt == 1:
        raise OSError("not yet")
    return word


@task
async def repeat(word: str) -> str:
    return word * 20_000


@agent
async def secretive(ctx: AgentContext, word: str) -> str:
    ctx.append_entry("user", {"marrow": word})
    again = await fails_once(f"marrow {word}")
    large = await repeat("marrow")
    await ctx.wait_for_signal("go")
    said = [message.content for message in await ctx.messages()]
    return f"{again} {len(large)} {said[0]['marrow']}"


@agent
async def brain(ctx: AgentContext, machine: str) -> str:
    child = ctx.spawn_agent(
        secretive, "a", mode=Local(machine), persistence="local", shared_context="read_only", start_timeout=600
    )
    await ctx.signal_child(child, "go")
    return await child


async def until_waiting(handle: flovyn.Handle[str], reason: str = "signal") -> None:
    while (await handle.describe()).wait_reason != reason:
        await asyncio.sleep(0.01)


async def test_the_values_of_a_local_run_stay_on_its_machine(
    server: Server,  # noqa: F811
    tmp_path: Path,
) -> None:
    key = server.pair("desk")
    near = {"auth_token": key, "agents": [secretive]}
    async with flovyn.connect(server.grpc) as client:
        with pytest.raises(flovyn.InvalidArgument, match="mode=Local"):
            await client.start(secretive, "a", persistence="local")
        handle = await client.start(secretive, "a", mode=Local("desk"), persistence="local")
        async with flovyn.daemon(server.grpc, **near):
            await until_waiting(handle)
        await handle.signal("go")
        # What goes on has nothing but the file.
        async with flovyn.daemon(server.grpc, **near):
            assert await handle.result(timeout=60) == "marrow a 120000 a"
            async with client.worker([brain]):
                assert await (await client.start(brain, "desk")).result(timeout=60) == "marrow a 120000 a"
        assert (await handle.describe()).persistence == "local"
        stored = repr([message.content for message in await handle.messages()]) + repr(await handle.tasks())
        assert "$local" in stored
        assert "marrow" not in stored
        assert (tmp_path / "home" / "local.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("reason", ["task", "signal"])
async def test_without_its_file_a_local_run_fails(
    reason: str,
    server: Server,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near = {"auth_token": server.pair("desk"), "agents": [secretive]}
    async with flovyn.connect(server.grpc) as client:
        handle = await client.start(secretive, "a", mode=Local("desk"), persistence="local")
        async with flovyn.daemon(server.grpc, **near):
            await until_waiting(handle, reason)
        await handle.signal("go")
        monkeypatch.setenv("FLOVYN_HOME", str(tmp_path / "elsewhere"))
        async with flovyn.daemon(server.grpc, **near):
            with pytest.raises(flovyn.AgentFailed, match="goes on only with the file") as failed:
                await handle.result(timeout=60)
        assert failed.value.type == "WorkerLost"
