"""Agents and clients of blocking code."""

from __future__ import annotations

import time
from typing import Any

import flovyn
import pytest
from flovyn import SyncAgentContext, agent, task


@task
async def double(x: int) -> int:
    return x * 2


@task
def slow(x: int) -> int:
    time.sleep(0.05)
    return x


@task
async def bad() -> None:
    raise LookupError("no")


@agent
def linear(ctx: SyncAgentContext, x: int) -> Any:
    ctx.append_entry("user", "hello")
    first = double(x).result()
    both = ctx.join_all(slow(1), slow(2), double(3))
    try:
        bad().result()
    except flovyn.TaskFailed as failure:
        error = failure.type
    ctx.sleep(0.01)
    chosen = ctx.select(ctx.sleep_step(30), slow(5))
    settled = ctx.join_all_settled(bad(), double(1))
    return [first, both, error, list(chosen), str(settled[0]), settled[1], [m.content for m in ctx.load_messages()]]


@agent(state=dict)
def waiting(ctx: SyncAgentContext[dict[str, Any]]) -> Any:
    while ctx.state.get("n", 0) < 2:
        value = ctx.wait_for_signal("go")
        ctx.checkpoint({"n": ctx.state.get("n", 0) + 1, "last": value})
    plan = ctx.once("plan", double, 21)
    with pytest.raises(flovyn.SignalTimeout):
        ctx.wait_for_signal("never", timeout=0.02)
    with pytest.raises(TimeoutError), ctx.timeout(0.05):
        ctx.wait_for_signal("never")
    return [ctx.state["last"], plan]


def test_a_def_agent_runs(url: str) -> None:
    expected = [10, [1, 2, 6], "LookupError", [1, 5], 'task "bad" failed: LookupError: no', 2, ["hello"]]
    assert flovyn.run(linear, 5, url=url) == expected


def test_a_blocking_client_and_worker(url: str) -> None:
    with flovyn.connect_sync(url) as client:
        handle = client.start(waiting, id="w")
        handle.signal("go", 1)
        with client.worker(agents=[waiting]):
            while len(handle.checkpoints()) < 1:
                time.sleep(0.01)
        handle.signal("go", 2)
        with client.worker(agents=[waiting]):
            assert handle.result(timeout=10) == [2, 42]
        kinds = [event.type for event in handle.stream()]
        assert kinds[-1] == "lifecycle"
        assert [run.key for run in client.runs()] == ["w"]
        with pytest.raises(flovyn.ExecutionNotFound):
            client.handle("nobody")


def test_cancel_a_def_agent(url: str) -> None:
    @agent
    def stuck(ctx: SyncAgentContext) -> None:
        ctx.wait_for_signal("never")

    with flovyn.connect_sync(url) as client, client.worker(agents=[stuck]):
        handle = client.start(stuck)
        while handle.status() != "WAITING":
            time.sleep(0.01)
        handle.cancel()
        with pytest.raises(flovyn.AgentCancelled):
            handle.result(timeout=10)
