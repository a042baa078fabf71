"""Runs whose journal is not kept before somebody depends on it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import flovyn
import pytest
from flovyn import AgentContext, SyncAgentContext, agent, task


@task
async def shout(word: str) -> str:
    return word.upper()


@agent
async def quick(ctx: AgentContext, word: str) -> list[str]:
    ctx.append_entry("user", await shout(word))
    ctx.record_usage("model", 5)
    return [message.content for message in await ctx.messages()]


@agent
def blocks(ctx: SyncAgentContext, word: str) -> str:
    ctx.append_entry("user", word)
    ctx.enable_persistence()
    return word


@agent
async def parent(ctx: AgentContext) -> list[str]:
    child = ctx.spawn_agent(quick, "hello", persistence="ephemeral")
    return [str(child.id), *await child]


@agent
async def waits(ctx: AgentContext, word: str) -> str:
    ctx.append_entry("user", await shout(word))
    return await ctx.wait_for_signal("go")


async def test_of_an_ephemeral_run_the_end_is_kept(anywhere: str) -> None:
    async with flovyn.connect(anywhere) as client, client.worker([quick, blocks, waits]):
        handle = await client.start(quick, "hello", persistence="minimal")
        assert await handle.result(timeout=60) == ["HELLO"]
        run = await handle.describe()
        assert (run.persistence, run.usage["model"]["input_tokens"]) == ("minimal", 5)
        for read in (handle.messages, handle.entries, handle.tasks, handle.checkpoints):
            with pytest.raises(flovyn.NotPersisted, match="enable_persistence"):
                await read()
        told = [event.type async for event in handle.stream()]
        assert told[-1] == "lifecycle"
        assert "entry" not in told

        kept = await client.start(blocks, "hello", persistence="ephemeral")
        assert await kept.result(timeout=60) == "hello"
        assert (await kept.describe()).persistence == "full"
        assert [message.content for message in await kept.messages()] == ["hello"]

        waiting = await client.start(waits, "hello", persistence="ephemeral")
        while (await waiting.describe()).status != "WAITING":
            await asyncio.sleep(0.01)
        assert [message.content for message in await waiting.messages()] == ["HELLO"]
        await waiting.signal("go", "on")
        assert await waiting.result(timeout=60) == "on"


@agent
async def keeps_near(ctx: AgentContext) -> list[str]:
    return await ctx.spawn_agent(quick, "hello", persistence="local")


async def test_a_local_run_needs_a_file_of_its_own(anywhere: str) -> None:
    async with flovyn.connect(anywhere) as client, client.worker([quick, keeps_near]):
        family = await client.start(keeps_near)
        if anywhere.startswith("sqlite:"):
            handle = await client.start(quick, "hello", persistence="local")
            assert await handle.result(timeout=60) == ["HELLO"]
            assert (await handle.describe()).persistence == "local"
            assert [message.content for message in await handle.messages()] == ["HELLO"]
            assert await family.result(timeout=60) == ["HELLO"]
            return
        why = "memory: has none" if anywhere.startswith("memory:") else "mode=Local"
        with pytest.raises(flovyn.InvalidArgument, match=why):
            await client.start(quick, "hello", persistence="local")
        with pytest.raises(flovyn.AgentFailed, match=why):
            await family.result(timeout=60)


async def test_a_child_leaves_only_its_end(anywhere: str) -> None:
    async with flovyn.connect(anywhere) as client, client.worker([parent]):
        handle = await client.start(parent)
        id, said = await handle.result(timeout=60)
        child = await (await client.handle(id)).describe()
        assert (said, child.persistence, (await handle.describe()).persistence) == ("HELLO", "ephemeral", "full")


async def test_another_word_is_refused() -> None:
    async with flovyn.connect("memory:") as client, client.worker([parent]):
        for word in ("local", "", "FULL"):
            with pytest.raises(flovyn.InvalidArgument, match="persistence is"):
                await client.start(quick, "hello", persistence=word)  # pyright: ignore[reportArgumentType]


async def test_a_run_that_nobody_begins_fails(anywhere: str) -> None:
    async with flovyn.connect(anywhere) as client:
        handle = await client.start("nobody serves this", start_timeout=0.2)
        with pytest.raises(flovyn.AgentFailed, match="start timeout"):
            await handle.result(timeout=60)


PROGRAM = """
import os, signal, sys
import flovyn

@flovyn.task
async def count(word: str) -> str:
    with open("counted", "a") as file:
        file.write(word + "\\n")
    return word

@flovyn.agent
async def walk(ctx, dies: bool) -> str:
    await count("first")
    if sys.argv[2] == "kept":
        await ctx.enable_persistence()
    if sys.argv[1] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return await count("second")

async def main() -> None:
    async with flovyn.connect("sqlite:runs.db") as client, client.worker([walk]):
        handle = await client.start(walk, True, id="walk", persistence="ephemeral")
        print(await handle.result(timeout=60))

import asyncio
asyncio.run(main())
"""


@pytest.mark.parametrize(("how", "counted"), [("kept", ["first", "second"]), ("forgets", ["first", "first", "second"])])
def test_a_killed_run_begins_anew_unless_it_is_kept(tmp_path: Path, how: str, counted: list[str]) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    for life in ("dies", "lives"):
        command = [sys.executable, "program.py", life, how]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode == 0) == (life == "lives"), done.stderr
    assert (tmp_path / "counted").read_text().split() == counted


async def test_an_url_of_quick_work_starts_minimal_runs(tmp_path: Path) -> None:
    file = tmp_path / "agents.db"
    async with flovyn.connect(f"minimal:{file}") as client, client.worker([quick, parent, waits]):
        handle = await client.start(quick, "hello", id="quick")
        assert (await handle.describe()).persistence == "minimal"
        assert await handle.result(timeout=60) == ["HELLO"]
        with pytest.raises(flovyn.NotPersisted):
            await handle.messages()
        # What says otherwise is kept, and so is what somebody else depends on.
        kept = await client.start(quick, "hello", persistence="full")
        assert await kept.result(timeout=60) == ["HELLO"]
        assert [message.content for message in await kept.messages()] == ["HELLO"]
        family = await client.start(parent)
        await family.result(timeout=60)
        assert (await family.describe()).persistence == "full"
    # It is an ordinary file: the same runs by its other URL.
    async with flovyn.connect(f"sqlite:{file}") as client, client.worker([quick]):
        known = await client.handle("quick")
        run = await known.describe()
        assert (run.status, run.persistence) == ("COMPLETED", "minimal")
        assert await known.result(timeout=60) == ["HELLO"]
        full = await client.start(quick, "hello")
        assert await full.result(timeout=60) == ["HELLO"]
        assert (await full.describe()).persistence == "full"


QUICK_PROGRAM = """
import asyncio, os, sys
import flovyn

def note(word: str) -> None:
    with open("noted", "a") as file:
        file.write(word + "\\n")

@flovyn.task
async def count(word: str) -> str:
    note(word)
    return word

@flovyn.agent
async def walk(ctx, told: str) -> list[str]:
    note(f"begins with {len(await ctx.messages())}")
    ctx.append_entry("user", told)
    first = await count("first")
    if sys.argv[1] == "dies":
        note("here")
        await asyncio.sleep(3600)
    return [first, await count("second"), *[message.content for message in await ctx.messages()]]

async def main() -> None:
    async with flovyn.connect("minimal:runs.db") as client, client.worker([walk]):
        handle = await client.start(walk, "go", id="walk")
        note((await handle.describe()).persistence)
        print(await handle.result(timeout=60))

asyncio.run(main())
"""


def test_a_minimal_run_of_a_killed_process_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(QUICK_PROGRAM)
    noted = tmp_path / "noted"
    command = [sys.executable, "program.py"]
    killed = subprocess.Popen([*command, "dies"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while not noted.exists() or "here" not in noted.read_text():
        assert time.monotonic() < until and killed.poll() is None, killed.communicate()
        time.sleep(0.02)
    killed.kill()
    killed.communicate()
    done = subprocess.run([*command, "lives"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    # The second life begins with what it was started with and nothing else, and says everything once.
    assert done.stdout.strip() == str(["first", "second", "go"])
    lines = noted.read_text().splitlines()
    assert lines.count("minimal") == 2
    assert [line for line in lines if line != "minimal"] == [
        "begins with 0",
        "first",
        "here",
        "begins with 0",
        "first",
        "second",
    ]
