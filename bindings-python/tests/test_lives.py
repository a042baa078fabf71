"""A task that takes its process down: how often it may is its own setting, and then a person is told and asked."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import flovyn
import pytest
from flovyn import AgentContext, agent, task
from flovyn.errors import InvalidArgument

LIVES = 3

# Each start of the task is one line: so many processes it took with it.
PROGRAM = """
import asyncio, os, sys
import flovyn
from flovyn import AgentContext, agent, task

def start():
    with open(sys.argv[2], "ab", buffering=0) as log:
        log.write(b"start\\n")

@task(max_losses=3)
async def at_once(n: int) -> int:
    start()
    os._exit(7)

@task(max_losses=3)
async def later(n: int) -> int:
    start()
    await asyncio.sleep(0.05)
    os._exit(7)

@task(max_losses=3, queue="default")
async def queued(n: int) -> int:
    start()
    os._exit(7)

@task(max_losses=3)
def in_a_thread(n: int) -> int:
    start()
    os.abort()

TASKS = {"at_once": at_once, "later": later, "queued": queued, "in_a_thread": in_a_thread}

@agent
async def deadly(ctx: AgentContext, kind: str) -> int:
    return await TASKS[kind](1)

async def main() -> None:
    async with flovyn.connect(sys.argv[1]) as client:
        await client.worker([deadly], tasks=list(TASKS.values())).run()

asyncio.run(main())
"""


@agent
async def deadly(ctx: AgentContext, kind: str) -> int:
    raise AssertionError("it is run by the processes that die")


@pytest.mark.parametrize("kind", ["at_once", "later", "queued", "in_a_thread"])
async def test_a_task_that_takes_its_process_down_is_quarantined(file_url: str, tmp_path: Path, kind: str) -> None:
    script, log = tmp_path / "dies.py", tmp_path / "log"
    script.write_text(PROGRAM)
    log.touch()

    async def live() -> None:
        """Let a process live until it dies or the run stands."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), file_url, str(log), stderr=asyncio.subprocess.DEVNULL
        )
        while process.returncode is None:
            if (await handle.describe()).status == "PAUSED":
                process.kill()
                await process.wait()
            else:
                await asyncio.sleep(0.02)

    async with flovyn.connect(file_url) as client:
        handle = await client.start(deadly, kind, id="run")

        async def starts_until_paused() -> int:
            before = len(log.read_text().splitlines())
            for _ in range(3 * LIVES):
                if (await handle.describe()).status == "PAUSED":
                    break
                await live()
            return len(log.read_text().splitlines()) - before

        starts = await starts_until_paused()
        run = await handle.describe()
        assert (run.status, run.wait_reason) == ("PAUSED", "quarantined"), run
        # The first death may come before the call itself is stored: that one is the run's loss.
        assert LIVES <= starts <= LIVES + 1, log.read_text()
        assert run.failure is not None
        told = str(run.failure["message"])
        for words in (repr(kind).replace("'", '"'), "3 times in a row", "max_losses=3", "os._exit", "resume the run"):
            assert words in told, told
        # A resume is one more life, and an answer ends the matter.
        await handle.resume()
        assert await starts_until_paused() == 1
        (task_of_run,) = await handle.tasks()
        assert task_of_run["status"] == "QUARANTINED"
        await handle.resolve(task_of_run["op"], result=42)
        assert (await handle.tasks())[0]["status"] == "COMPLETED"


@pytest.mark.parametrize("lives", [0, -1, 1001])
def test_a_number_of_lives_that_is_none_is_refused(lives: int) -> None:
    with pytest.raises(InvalidArgument, match=f"max_losses={lives}; .* from 1 to 1000"):

        @task(max_losses=lives)
        def never() -> None:
            """Never runs."""


def test_a_number_of_lives_may_be_said_for_one_call() -> None:
    @task(max_losses=1000)
    def some() -> None:
        """Never runs."""

    assert some.options(max_losses=1).native_options()["maxLosses"] == 1
    with pytest.raises(InvalidArgument, match="max_losses=0"):
        some.options(max_losses=0)
