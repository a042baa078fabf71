"""Bad input: each has an error that says what was asked, what was found and what to do; and nothing is lost by it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, agent, task


@task
async def echo(value: Any) -> Any:
    return value


@task
async def careless(what: str) -> Any:
    return {"set": {1j}, "what": what}


@agent
async def plain(ctx: AgentContext, value: Any) -> Any:
    return await echo(value)


async def test_values_without_a_json_form_name_their_place(url: str) -> None:
    @agent(state=dict)
    async def refusing(ctx: AgentContext[dict[str, Any]]) -> list[str]:
        told: list[str] = []
        with pytest.raises(flovyn.NotSerializable) as refused:
            ctx.append_entry("user", {"a": [object()]})
        told.append(refused.value.path)
        with pytest.raises(flovyn.NotSerializable) as refused:
            await echo({"b": {1, 2j}})
        told.append(refused.value.path)
        with pytest.raises(flovyn.NotSerializable) as refused:
            await ctx.checkpoint({"c": {"d": object()}})
        told.append(refused.value.path)
        with pytest.raises(flovyn.TaskFailed, match=r"\$\.set") as failed:
            await careless("x")
        told.append(failed.value.type)
        # The run goes on as if nothing had been asked.
        told.append(await echo("still here"))
        ctx.append_entry("assistant", "end")
        await ctx.checkpoint({"done": True})
        return told

    async with flovyn.connect(url) as client, client.worker([refusing, plain]):
        handle = await client.start(refusing)
        result = await handle.result(timeout=20)
        assert result == ["$.a[0]", "$.b", "$.c.d", "NotSerializable", "still here"]
        assert [message.content for message in await handle.messages()] == ["end"]
        assert len(await handle.tasks()) == 2
        with pytest.raises(flovyn.NotSerializable) as refused:
            await client.start(plain, {"e": [1, {2j}]}, id="never")
        assert refused.value.path == "$.e[1]"
        with pytest.raises(flovyn.ExecutionNotFound, match="never"):
            await client.handle("never")
        waiting = await client.start("nobody", id="waiting")
        with pytest.raises(flovyn.NotSerializable) as refused:
            await waiting.signal("go", {"f": object()})
        assert refused.value.path == "$.f"


async def test_a_payload_over_the_ceiling_is_refused_before_it_is_read(url: str, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.touch()
    os.truncate(large, 300 << 20)

    @agent
    async def attaches(ctx: AgentContext) -> str:
        with pytest.raises(flovyn.PayloadTooLarge) as refused:
            ctx.append_entry("user", flovyn.Blob.from_path(large))
        ctx.append_entry("user", "small")
        return str(refused.value)

    async with flovyn.connect(url) as client, client.worker([attaches]):
        handle = await client.start(attaches)
        told = await handle.result(timeout=20)
        assert str(300 << 20) in told and str(256 << 20) in told
        assert [message.content for message in await handle.messages()] == ["small"]


async def test_a_run_has_so_many_open_tasks(url: str) -> None:
    @task
    async def later(n: int) -> int:
        return n

    @agent
    async def eager(ctx: AgentContext) -> tuple[int, str]:
        open_tasks = 0
        while True:
            try:
                ctx.schedule_task(later, open_tasks)
            except flovyn.LimitReached as error:
                return open_tasks, str(error)
            open_tasks += 1

    async with flovyn.connect(url) as client, client.worker([eager]):
        handle = await client.start(eager)
        count, told = await handle.result(timeout=60)
        assert count == 10_000 and "10000 tasks" in told and "semaphore" in told


async def test_an_id_stands_for_one_input_and_one_kind(url: str) -> None:
    async with flovyn.connect(url) as client:
        first = await client.start(plain, 1, id="order-1")
        with pytest.raises(flovyn.ExecutionExists, match="order-1"):
            await client.start(plain, 2, id="order-1")
        with pytest.raises(flovyn.ExecutionExists, match="order-1"):
            await client.start("other", 1, id="order-1")
        assert (await client.start(plain, 1, id="order-1")).id == first.id
        async with client.worker([plain]):
            assert await first.result(timeout=20) == 1


async def test_what_is_no_agent_is_named(url: str) -> None:
    def function() -> None: ...

    async with flovyn.connect(url) as client:
        for wrong in ({"agents": [function]}, {"tasks": [function]}, {"agents": [echo]}):
            with pytest.raises(flovyn.InvalidArgument, match="declared with @"):
                client.worker(**wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(flovyn.InvalidArgument, match="declared with @agent"):
        await flovyn.run_async(function, url=url)  # pyright: ignore[reportArgumentType]


async def test_wrong_places_are_named(tmp_path: Path) -> None:
    async def refused(path: Path | str) -> flovyn.FlovynError:
        with pytest.raises(flovyn.FlovynError) as refusal:
            await flovyn.connect(f"sqlite:{path}")
        return refusal.value

    assert "folder" in str(await refused(tmp_path))
    assert "does not exist" in str(await refused(tmp_path / "no" / "agents.db"))
    noise = tmp_path / "noise.db"
    noise.write_bytes(b"Z" * 40_000)
    assert isinstance(damaged := await refused(noise), flovyn.CorruptCheckpoint) and "not a database" in str(damaged)
    assert noise.read_bytes() == b"Z" * 40_000
    theirs = tmp_path / "theirs.db"
    with contextlib.closing(sqlite3.connect(theirs)) as database:
        database.execute("CREATE TABLE theirs (x)")
    assert isinstance(await refused(theirs), flovyn.InvalidArgument)
    newer = tmp_path / "newer.db"
    await (await flovyn.connect(f"sqlite:{newer}")).close()
    with contextlib.closing(sqlite3.connect(newer)) as database:
        database.execute("PRAGMA user_version = 99")
    assert isinstance(told := await refused(newer), flovyn.SchemaTooNew) and "99" in str(told)
    with pytest.raises(flovyn.InvalidArgument, match="nowhere"):
        await flovyn.connect("nowhere:agents.db")


def test_a_read_only_file_is_named(child: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    """As a user who may not write it, whoever runs this."""
    source = """
import asyncio, os, sys, flovyn, flovyn.worker
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)

async def main():
    try:
        await flovyn.connect("sqlite:" + sys.argv[1])
    except flovyn.InvalidArgument as error:
        print(error)

asyncio.run(main())
"""
    folder = tmp_path / "shared"
    file = folder / "agents.db"

    async def fill() -> None:
        async with flovyn.connect(f"sqlite:{file}") as client:
            await client.start(plain, "kept", id="kept")

    folder.mkdir()
    asyncio.run(fill())
    for each in folder.iterdir():
        each.chmod(0o444)
    for parent in (folder, *folder.parents):
        if parent == Path("/tmp") or parent.stat().st_uid != os.geteuid():
            break
        parent.chmod(0o555 if parent == folder else 0o755)
    try:
        output, complaints = child(source, str(file)).communicate(timeout=30)
        assert "writable" in output and str(file) in output, output + complaints
    finally:
        folder.chmod(0o755)
        for each in folder.iterdir():
            each.chmod(0o644)

    async def read() -> str:
        async with flovyn.connect(f"sqlite:{file}") as client:
            return await (await client.handle("kept")).status()

    assert asyncio.run(read()) == "PENDING"
