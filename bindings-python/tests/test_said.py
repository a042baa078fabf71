"""What failed is shown: the user's own failing line first, and what to do; the logger ``flovyn`` says the rest."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, SyncAgentContext, agent, task
from flovyn.testing import harness

ENGINE = os.path.dirname(flovyn.__file__)
ROOT = Path(__file__).parents[2]


def inverse(n: int) -> float:
    return 1 / n  # the failing line


@task
async def divide(n: int) -> float:
    return inverse(n)


@agent
async def by_task(ctx: AgentContext) -> float:
    return await divide(0)


@agent
async def by_itself(ctx: AgentContext) -> float:
    return inverse(0)


@agent
def blocking(ctx: SyncAgentContext) -> float:
    return divide(0).result()


def failed(of: Any) -> flovyn.AgentFailed:
    with pytest.raises(flovyn.AgentFailed) as raised:
        flovyn.run(of, url="memory:", timeout=10)
    return raised.value


@pytest.mark.parametrize("of", [by_task, by_itself, blocking])
def test_the_failing_line_comes_first_and_no_frame_is_the_engines(of: Any) -> None:
    error = failed(of)
    assert error.traceback is not None and ENGINE not in error.traceback
    shown = "".join(traceback.format_exception(error))
    first = next(line for line in shown.splitlines() if line.startswith("  File"))
    assert "test_said.py" in first, shown
    assert shown.index("# the failing line") < shown.index("AgentFailed")
    # What is left of the engine is the door that the test itself has called.
    assert len(re.findall(re.escape(ENGINE), shown)) <= 2, shown
    assert isinstance(error.__cause__, flovyn.TaskFailed) == (of is not by_itself)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there are no groups")
def test_a_group_of_one_is_that_one() -> None:
    @agent
    async def grouped(ctx: AgentContext) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(divide(0))

    @agent
    async def two(ctx: AgentContext) -> None:
        raise ExceptionGroup("both", [ValueError("a"), KeyError("b")])  # type: ignore[name-defined]  # noqa: F821

    error = failed(grouped)
    assert error.type == "TaskFailed" and "ZeroDivisionError" in str(error) and "Group" not in str(error.traceback)
    assert isinstance(error.__cause__, flovyn.TaskFailed)
    assert failed(two).type == "ExceptionGroup"


def test_an_error_links_to_its_page() -> None:
    error = failed(by_itself)
    shown = "".join(traceback.format_exception(error))
    assert error.page is not None
    if sys.version_info >= (3, 11):
        assert error.page in shown and "go on with: handle.retry()" in shown
    for name in flovyn.errors.__all__:
        cls = getattr(flovyn.errors, name)
        if issubclass(cls, flovyn.FlovynError) and cls is not flovyn.FlovynError:
            page = cls("x").page
            assert (page is None) == (name == "NotDone"), name
            assert page is None or (ROOT / page[page.index("docs/") :]).exists(), name


# ── the logger ──────────────────────────────────────────────────────────────────────────────────────────────────────


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "flovyn"]


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if line.rstrip().endswith(text))


def test_failures_are_logged_with_their_place(caplog: pytest.LogCaptureFixture) -> None:
    failed(by_task)
    task_failed, agent_failed = said(caplog)
    assert all(record.levelno == logging.WARNING for record in caplog.records if record.name == "flovyn")
    place = f"(test_said.py:{line_of('# the failing line')})"
    assert task_failed.startswith("task 'divide' failed at attempt 1 of 1: ZeroDivisionError") and place in task_failed
    assert "no attempt is left" in task_failed
    assert agent_failed.startswith("agent 'by_task'") and " raised TaskFailed" in agent_failed
    assert "# the failing line" in caplog.text and ENGINE not in str(caplog.records[-1].exc_text)
    caplog.clear()
    failed(by_itself)
    assert f"raised ZeroDivisionError: division by zero {place}" in said(caplog)[0]


def test_retries_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    @task(retries=1)
    async def flaky() -> None:
        raise OSError("net")

    @task(retries=5)
    def hopeless() -> None:
        raise flovyn.NonRetryable("no")

    @agent
    async def tries(ctx: AgentContext) -> None:
        await ctx.join_all_settled(flaky(), hopeless())

    flovyn.run(tries, url="memory:", timeout=20)
    told = "\n".join(sorted(said(caplog)))
    assert re.search(r"'flaky' failed at attempt 1 of 2: OSError: net \(test_said.py:\d+\); it is tried again", told)
    assert re.search(r"'flaky' failed at attempt 2 of 2.*no attempt is left", told)
    assert re.search(r"'hopeless' failed at attempt 1 of 6.*may not be tried again", told)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_step_that_nobody_awaits_is_named_with_its_line(caplog: pytest.LogCaptureFixture, is_async: bool) -> None:
    @agent
    async def careless(ctx: AgentContext) -> int:
        divide(5)  # forgotten
        _ = ctx.wait_for_signal("word")
        divide.options(detached=True)(7)
        kept = divide(6)
        await divide(1)
        await kept
        return 1

    @agent
    def careless_blocking(ctx: SyncAgentContext) -> int:
        divide(5)  # forgotten, too
        divide.options(detached=True)(7)
        ctx.signal_step("word")
        kept = divide(6)
        return int(divide(1).result() + kept.result())

    assert flovyn.run(careless if is_async else careless_blocking, url="memory:", timeout=5) == 1
    told = said(caplog)
    line = line_of("# forgotten" if is_async else "# forgotten, too")
    assert len(told) == 2 and f"never awaited task 'divide' at {__file__}:{line}" in told[0], told
    assert "never awaited signal 'word'" in told[1]


async def test_a_paused_run_says_why_and_how_it_goes_on(caplog: pytest.LogCaptureFixture, file_url: str) -> None:
    @agent(on_error="pause")
    async def stops(ctx: AgentContext) -> None:
        await divide(0)

    async with flovyn.connect(file_url) as client, client.worker(agents=[stops]):
        handle = await client.start(stops, id="stopped")
        with pytest.raises(flovyn.Timeout, match=f"go on with: flovyn runs resume {re.escape(file_url)} stopped"):
            await handle.result(0.5)
    told = said(caplog)[-1]
    assert told.startswith("run 'stopped' of agent 'stops' is paused: TaskFailed: ") and "ZeroDivisionError" in told
    assert told.endswith(f"go on with: flovyn runs resume {file_url} stopped")


async def test_no_command_is_said_of_a_run_that_no_other_process_finds() -> None:
    @agent
    async def fails(ctx: AgentContext) -> None:
        await divide(0)

    async with flovyn.connect("memory:") as client, client.worker(agents=[fails]):
        with pytest.raises(flovyn.AgentFailed) as failed:
            await (await client.start(fails)).result(5)
    assert failed.value.__notes__[-1] == "go on with: handle.retry()"


async def test_code_that_diverges_is_said(caplog: pytest.LogCaptureFixture) -> None:
    names = iter(["one", "two", "three"])

    @agent(version="1", on_divergence="pause")
    async def changes(ctx: AgentContext) -> None:
        await ctx.run(next(names), lambda: 1)
        await ctx.sleep(60)

    async with harness([changes]) as h:
        await h.start(changes, id="changed")
        await h.settle()
        await h.crash()
        await h.advance(61)
        for _ in range(100):
            if any("is paused" in text for text in said(caplog)):
                break
            await asyncio.sleep(0.02)
    assert any("'changed' of agent 'changes' is paused: Diverged" in text for text in said(caplog)), said(caplog)


async def test_code_that_goes_on_in_another_way_is_said(caplog: pytest.LogCaptureFixture) -> None:
    lives = iter(["first", "second"])

    @agent(version="1")
    async def changes(ctx: AgentContext) -> str:
        life = next(lives)
        for name in ("one", "two") if life == "first" else ("one", "other"):
            await ctx.run(name, lambda: 1)
        await ctx.sleep(60)
        return life

    async with harness([changes]) as h:
        handle = await h.start(changes)
        await h.settle()
        await h.crash()
        await h.advance(61)
        assert await handle.result(10) == "second"
    assert any("no longer" in text and "recorded" in text for text in said(caplog)), said(caplog)


async def test_a_run_that_somebody_ended_was_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    @agent
    async def is_ended(ctx: AgentContext) -> None:
        try:
            await divide(1)
            begun.set()
            await asyncio.sleep(60)
        finally:
            over.set()

    async with flovyn.connect("memory:") as client, client.worker(agents=[is_ended]):
        handle = await client.start(is_ended)
        await begun.wait()
        await handle.cancel(mode="hard")
        with pytest.raises(flovyn.AgentCancelled):
            await handle.result(5)
        # At once, not with the worker's next sign of life.
        await asyncio.wait_for(over.wait(), 5)
    assert said(caplog) == []


async def test_a_lost_lease_is_said(caplog: pytest.LogCaptureFixture, file_url: str) -> None:
    @agent
    async def loses(ctx: AgentContext) -> None:
        for _ in range(500):
            await ctx.flush()
            ctx.append_entry("user", "on")
            await asyncio.sleep(0.01)

    async with flovyn.connect(file_url) as client, client.worker(agents=[loses]):
        handle = await client.start(loses)
        while not await handle.entries():
            await asyncio.sleep(0.01)
        # What another worker's claim does to a run whose lease was over.
        with contextlib.closing(sqlite3.connect(file_url.removeprefix("sqlite:"))) as store:
            store.execute("UPDATE agent_execution SET epoch = epoch + 1")
            store.commit()
        for _ in range(300):
            if said(caplog):
                break
            await asyncio.sleep(0.01)
    (told,) = said(caplog)
    assert told.startswith(f"agent 'loses': run {handle.id} is no longer held by this worker") and "LeaseLost" in told


# ── timeouts and doubts ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_timeout_says_that_no_worker_serves_a_kind(url: str) -> None:
    async with flovyn.connect(url) as client:
        handle = await client.start(by_task)
        with pytest.raises(flovyn.Timeout, match="no worker serves kind 'by_task' of queue 'default'"):
            await handle.result(0.3)


def test_a_timeout_says_that_no_worker_serves_a_task() -> None:
    @agent
    async def asks(ctx: AgentContext) -> Any:
        return await ctx.schedule_task("elsewhere", 1)

    with pytest.raises(flovyn.Timeout, match="no worker serves kind 'elsewhere'"):
        flovyn.run(asks, url="memory:", timeout=0.5)


DOUBT = """
import os, sys, flovyn
from flovyn import AgentContext, agent, task

@task(side_effects="at_most_once")
async def pay() -> int:
    if sys.argv[2] == "die":
        os._exit(9)
    return 5

@agent(version="1")
async def buys(ctx: AgentContext) -> int:
    return await pay()

try:
    print(flovyn.run(buys, id="bought", url=sys.argv[1], on_wait="return", timeout=20))
except flovyn.InDoubt as error:
    print(error)
"""


def test_a_doubt_names_op_task_and_command(file_url: str, child: Callable[..., subprocess.Popen[str]]) -> None:
    process = child(DOUBT, file_url, "die")
    process.communicate(timeout=30)
    assert process.returncode == 9
    out, errors = child(DOUBT, file_url, "live").communicate(timeout=40)
    found = re.search(r"task 'pay' \(op (\S+)\).*(flovyn runs resolve \S+ \S+) --retry", out)
    assert found is not None, (out, errors)
    assert found[2] == f"flovyn runs resolve {file_url} {found[1]}"
    command = [sys.executable, "-m", *found[2].split(), "--result", "7"]
    subprocess.run(command, check=True, timeout=30, capture_output=True)
    out, errors = child(DOUBT, file_url, "live").communicate(timeout=40)
    assert out.strip() == "7", errors
