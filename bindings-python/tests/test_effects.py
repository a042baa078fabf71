"""Side effects that must not happen twice, and code that changes under a run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, agent, task

MAILER = """
import asyncio, os, sys, flovyn
from flovyn import agent, task

def sent(text):
    if os.path.exists(sys.argv[2] + ".reached"):
        return "found: " + text
    raise flovyn.NotDone("it never left")

async def send(text):
    with open(sys.argv[2], "a") as log:
        log.write("sent\\n")
    if sys.argv[3] == "die":
        os.kill(os.getpid(), 9)
    return "sent: " + text

mail = task(kind="mail", side_effects="at_most_once")(send)
checked = task(kind="checked", reconcile=sent)(send)

@agent
async def mailer(ctx, which):
    return await {"mail": mail, "checked": checked}[which]("hello")

try:
    print(flovyn.run(mailer, sys.argv[4], id="m", url=sys.argv[1], on_wait="return"))
except flovyn.InDoubt as doubt:
    print("in doubt")
"""


def mailer(child: Callable[..., subprocess.Popen[str]], *arguments: str) -> str:
    process = child(MAILER, *arguments)
    output, complaints = process.communicate(timeout=30)
    assert process.returncode in (0, -9), complaints
    return output.strip()


async def test_at_most_once_waits_for_a_decision(
    child: Callable[..., subprocess.Popen[str]], file_url: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    mailer(child, file_url, str(log), "die", "mail")
    assert mailer(child, file_url, str(log), "live", "mail") == "in doubt"
    assert log.read_text() == "sent\n"
    async with flovyn.connect(file_url) as client:
        handle = await client.handle("m")
        assert (await handle.describe()).wait_reason == "in_doubt"
        with pytest.raises(flovyn.InDoubt):
            await handle.result(timeout=0.1)
        (entry,) = await handle.tasks()
        await handle.resolve(entry["op"], result="sent by hand")
    assert mailer(child, file_url, str(log), "live", "mail") == "sent by hand"
    assert log.read_text() == "sent\n"


@pytest.mark.parametrize(("reached", "result", "times"), [(True, "found: hello", 1), (False, "sent: hello", 2)])
def test_reconcile_settles_a_lost_attempt(
    child: Callable[..., subprocess.Popen[str]], file_url: str, tmp_path: Path, reached: bool, result: str, times: int
) -> None:
    log = tmp_path / "log"
    mailer(child, file_url, str(log), "die", "checked")
    if reached:
        Path(f"{log}.reached").touch()
    assert mailer(child, file_url, str(log), "live", "checked") == result
    assert log.read_text().count("sent") == times


async def test_an_edited_agent_keeps_its_finished_steps(file_url: str) -> None:
    calls: list[str] = []

    @task
    async def step(name: str) -> str:
        calls.append(name)
        return name

    def version(names: list[str], **options: Any) -> Any:
        async def edited(ctx: AgentContext) -> list[str]:
            found = [await step(name) for name in names]
            await ctx.wait_for_signal("go")
            return [*found, await step("end")]

        return agent(kind="edited", version=str(names), **options)(edited)

    async with flovyn.connect(file_url) as client:
        async with client.worker(agents=[version(["a", "b"])]):
            handle = await client.start("edited")
            while await handle.status() != "WAITING":
                await asyncio.sleep(0.01)
        await handle.signal("go")
        async with client.worker(agents=[version(["a", "new", "b"])]):
            assert await handle.result(timeout=20) == ["a", "new", "b", "end"]
    assert calls == ["a", "b", "new", "end"]


async def test_divergence_may_fail(file_url: str) -> None:
    @task
    async def step(name: str) -> str:
        return name

    def version(name: str) -> Any:
        async def strict(ctx: AgentContext) -> str:
            found = await step(name)
            await ctx.wait_for_signal("go")
            return found

        return agent(kind="strict", version=name, on_divergence="fail")(strict)

    async with flovyn.connect(file_url) as client:
        async with client.worker(agents=[version("a")]):
            handle = await client.start("strict")
            while await handle.status() != "WAITING":
                await asyncio.sleep(0.01)
        await handle.signal("go")
        async with client.worker(agents=[version("b")]):
            with pytest.raises(flovyn.AgentFailed, match="Diverged"):
                await handle.result(timeout=20)


def test_debug_names_what_is_not_durable(child: Callable[..., subprocess.Popen[str]], file_url: str) -> None:
    source = """
import os, sys
os.environ["FLOVYN_DEBUG"] = "1"
import time, flovyn
from flovyn import agent, task

@task
async def inside():
    return time.time() > 0

@agent
async def careless(ctx):
    for _ in range(3):
        time.time()
    return await inside()

print(flovyn.run(careless, url=sys.argv[1]))
"""
    process = child(source, file_url)
    output, complaints = process.communicate(timeout=20)
    assert output == "True\n", complaints
    assert complaints.count("time.time() in an agent") == 1, complaints


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
async def test_fork_of_a_conversation(file_url: str) -> None:
    @agent(state=dict)
    async def counting(ctx: AgentContext[dict[str, Any]]) -> Any:
        while ctx.state.get("n", 0) < 2:
            word = await ctx.wait_for_signal("word")
            ctx.append_entry("user", word)
            await ctx.checkpoint({"n": ctx.state.get("n", 0) + 1})
        return [message.content for message in ctx.load_messages()]

    async with flovyn.connect(file_url) as client, client.worker(agents=[counting]):
        trunk = await client.start(counting, id="trunk")
        await trunk.signal("word", "one")
        while not await trunk.checkpoints():
            await asyncio.sleep(0.01)
        branch = await trunk.fork(checkpoint=1, id="branch")
        await trunk.signal("word", "two")
        await branch.signal("word", "other")
        assert await trunk.result(timeout=10) == ["one", "two"]
        assert await branch.result(timeout=10) == ["one", "other"]
