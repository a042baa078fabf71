"""Branches that wait outside of the context (rules 5, 7, 8): after a kill the decision of the others is the same."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, agent, task

VICTIM = Path(__file__).with_name("watched_victim.py")
SHAPES = ["timer", "gathers", "thread", "future", "event", "queue", "spin", "process", "shield"]
LOOPS = ["asyncio"]
if sys.version_info >= (3, 11):
    SHAPES.append("groups")
if importlib.util.find_spec("uvloop"):
    LOOPS.append("uvloop")


def _live(url: str, shape: str, loop: str, *kill: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(VICTIM), url, shape, *kill]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=os.environ | {"LOOP": loop}
    )


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("shape", SHAPES)
def test_rule_05_a_branch_that_waits_outside_is_waited_for(tmp_path: Path, shape: str, loop: str) -> None:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    killed = _live(url, shape, loop, "kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert killed.stdout.split("\n")[0] == "paid said after 3"
    again = _live(url, shape, loop)
    assert again.returncode == 0, again.stderr
    assert again.stdout == "result said 3\n"


@task
async def step(name: str) -> str:
    return name


async def test_rule_08_what_stays_uncertain_pauses_and_says_what_is_missing(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    ready = asyncio.Event()
    held: asyncio.Event = asyncio.Event()

    @agent(kind="odd", version="1", replay_timeout=0.3)
    async def odd(ctx: AgentContext) -> str:
        async def late() -> None:
            if ready.is_set():
                await held.wait()
            await step("late")

        branch = asyncio.create_task(late())
        await step("first")
        await ctx.wait_for_signal("go")
        await branch
        return "done"

    async with flovyn.connect(url) as client:
        async with client.worker(agents=[odd], tasks=[step], max_parked=0):
            handle = await client.start(odd, id="one")
            while len([one for one in await handle.tasks() if one["status"] == "COMPLETED"]) < 2:
                await asyncio.sleep(0.01)
        ready.set()
        await handle.signal("go", None)
        async with client.worker(agents=[odd], tasks=[step]):
            while await handle.status() != "PAUSED":
                await asyncio.sleep(0.01)
            failure = (await handle.describe())["failure"]
            assert failure["code"] == "Diverged"
            for words in ("not certain", 'task "step"', "0.3 s", "replay_timeout"):
                assert words in failure["message"], failure["message"]
            # Nothing went on by itself, and it goes on once the branch does.
            held.set()
            await handle.resume()
            assert await handle.result(timeout=20) == "done"
        assert len(await handle.tasks()) == 2


async def test_rule_08_what_is_certain_is_said_at_once(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    other = False

    @agent(kind="odd", version="1", on_divergence="fail")
    async def odd(ctx: AgentContext) -> str:
        names = ("one", "three") if other else ("one", "two")
        await asyncio.gather(*map(step, names))
        await ctx.wait_for_signal("go")
        return "done"

    async with flovyn.connect(url) as client:
        async with client.worker(agents=[odd], tasks=[step]):
            handle = await client.start(odd, id="one")
            while len([one for one in await handle.tasks() if one["status"] == "COMPLETED"]) < 2:
                await asyncio.sleep(0.01)
        other = True
        await handle.signal("go", None)
        async with client.worker(agents=[odd], tasks=[step]):
            with pytest.raises(flovyn.AgentFailed) as failed:
                await handle.result(timeout=20)
            assert "no longer matches" in str(failed.value)


async def test_a_spinner_holds_nothing_up_live(tmp_path: Path) -> None:
    @agent
    async def spinning(ctx: AgentContext) -> int:
        async def spin() -> None:
            while True:
                await asyncio.sleep(0)

        spinner = asyncio.create_task(spin())
        total = 0
        for n in range(20):
            total += len(await step(str(n)))
        spinner.cancel()
        return total

    async with flovyn.connect(f"sqlite:{tmp_path / 'agents.db'}") as client:
        async with client.worker(agents=[spinning], tasks=[step]):
            assert await (await client.start(spinning)).result(timeout=20) == 30


async def test_rule_07_a_step_beside_others_is_not_reworded(tmp_path: Path) -> None:
    """The decision's input differs and another branch was alive when it was made: it is another step."""
    life = 1

    @agent(kind="odd", version="1")
    async def odd(ctx: AgentContext) -> str:
        async def other() -> None:
            await ctx.wait_for_signal("never")

        branch = asyncio.create_task(other())
        await asyncio.sleep(0)
        await step(f"in life {life}")
        await ctx.wait_for_signal("go")
        branch.cancel()
        return "done"

    async with flovyn.connect(f"sqlite:{tmp_path / 'agents.db'}") as client:
        async with client.worker(agents=[odd], tasks=[step]):
            handle = await client.start(odd, id="one")
            while not [one for one in await handle.tasks() if one["status"] == "COMPLETED"]:
                await asyncio.sleep(0.01)
        life = 2
        await handle.signal("go", None)
        async with client.worker(agents=[odd], tasks=[step]):
            assert await handle.result(timeout=20) == "done"
        assert len(await handle.tasks()) == 2
        warned = [event.data["warning"] async for event in handle.stream() if getattr(event, "name", "") == "warning"]
        assert "reworded" not in warned


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "60"])
def test_a_replay_timeout_is_a_number_of_seconds(limit: Any) -> None:
    with pytest.raises(flovyn.InvalidArgument, match="number of seconds above 0"):
        agent(replay_timeout=limit)(lambda ctx: None)


def test_callbacks_that_come_meanwhile_are_no_error() -> None:
    """`RuntimeError: deque mutated during iteration` was raised in a turn, and nobody looked at its agents again."""
    from flovyn.branches import _copied  # pyright: ignore[reportPrivateUsage]

    class Ready:
        refused = 0

        def __iter__(self) -> Iterator[int]:
            self.refused += 1
            yield 1
            if self.refused < 4:
                raise RuntimeError("deque mutated during iteration")
            yield 2

    assert _copied(Ready()) == (1, 2)


async def test_a_branch_that_nobody_told_of_ends_with_its_run() -> None:
    kept: list[asyncio.Task[None]] = []

    @task
    async def note(word: str) -> str:
        return word

    @agent
    async def leaves_branches(ctx: AgentContext) -> str:
        words: asyncio.Queue[str] = asyncio.Queue()

        async def serve() -> None:
            while True:
                await note(await words.get())

        async def lead() -> None:
            serving = asyncio.create_task(serve())
            await words.join()
            serving.cancel()

        words.put_nowait("never told to be done")
        # A task of the class, which calls nothing itself.
        kept.append(asyncio.Task(lead()))
        return await note("the end")

    async with flovyn.connect("memory:") as client, client.worker(agents=[leaves_branches]):
        assert await (await client.start(leaves_branches)).result(timeout=20) == "the end"
        done, _ = await asyncio.wait(kept, timeout=5)
    assert [branch.cancelled() for branch in done] == [True]
