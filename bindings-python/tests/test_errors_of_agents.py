"""Rule 20: an error that says more of the code than of its work pauses the run, and a run that has failed goes on."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, agent, task

asked: list[str] = []


@pytest.fixture(autouse=True)
def _forgets() -> None:
    asked.clear()


@dataclasses.dataclass
class Order:
    """An input that later code declares otherwise."""

    amount: int


@task
async def pay(amount: int) -> int:
    asked.append("pay")
    return amount


def broken(what: str) -> Any:
    """A task that fails the first time."""

    @task(kind=what)
    async def breaks() -> str:
        asked.append(what)
        if asked.count(what) == 1:
            raise ValueError("the gateway is down")
        return what

    return breaks


async def paused(handle: Any) -> Any:
    async with asyncio.timeout(20):
        while (run := await handle.describe()).status != "PAUSED":
            await asyncio.sleep(0.01)
    assert run.wait_reason == "error", run
    return run.failure


async def test_a_failed_run_goes_on(url: str) -> None:
    down = broken("down")

    @agent(kind="order")
    async def order(ctx: AgentContext, input: Order) -> list[Any]:
        paid = await pay(input.amount)
        told = await down()
        return [paid, told, await ctx.wait_for_signal("word", str)]

    async with flovyn.connect(url) as client:
        handle = await client.start(order, Order(5))
        # Before anything serves it: a run that has failed takes no signal.
        await handle.signal("word", "kept")
        async with flovyn.Worker(client, [order]):
            with pytest.raises(flovyn.AgentFailed, match="the gateway is down"):
                await handle.result(20)
            assert await handle.retry() == "PENDING"
            assert await handle.result(20) == [5, "down", "kept"]
            with pytest.raises(flovyn.InvalidTransition, match="cannot retry the run"):
                await handle.retry()
    assert asked == ["pay", "down", "down"]


async def test_an_agent_may_pause_by_every_error(url: str) -> None:
    down = broken("down")

    @agent(kind="order", on_error="pause")
    async def order(ctx: AgentContext) -> str:
        return await down()

    async with flovyn.connect(url) as client, flovyn.Worker(client, [order]):
        handle = await client.start(order)
        assert (await paused(handle))["message"].endswith("the gateway is down")
        with pytest.raises(flovyn.Timeout, match="the gateway is down"):
            await handle.result(0.05)
        await handle.resume()
        assert await handle.result(20) == "down"


async def test_a_result_without_a_form_pauses(url: str) -> None:
    def declared(fits: bool) -> Any:
        @agent(kind="long")
        async def long(ctx: AgentContext) -> Any:
            await pay(1)
            return "done" if fits else object()

        return long

    async with flovyn.connect(url) as client:
        async with flovyn.Worker(client, [declared(False)]):
            handle = await client.start(declared(False))
            assert (await paused(handle))["code"] == "NotSerializable"
        async with flovyn.Worker(client, [declared(True)]):
            await handle.resume()
            assert await handle.result(20) == "done"
    assert asked == ["pay"]


async def test_an_input_that_new_code_cannot_read_pauses(url: str) -> None:
    @dataclasses.dataclass
    class Renamed:
        total: int

    def declared(hint: Any) -> Any:
        async def order(ctx: AgentContext, input: Any) -> int:
            return input.total if hint is Renamed else input.amount

        order.__annotations__ = {"ctx": AgentContext, "input": hint, "return": int}
        return agent(kind="order")(order)

    async with flovyn.connect(url) as client:
        handle = await client.start(declared(Order), Order(5))
        async with flovyn.Worker(client, [declared(Renamed)]):
            assert "total" in (await paused(handle))["message"]
        async with flovyn.Worker(client, [declared(Order)]):
            await handle.resume()
            assert await handle.result(20) == 5


async def test_a_signal_that_does_not_fit_is_an_error_that_the_code_may_catch(url: str) -> None:
    @agent(kind="asks")
    async def asks(ctx: AgentContext, catches: bool) -> Any:
        while True:
            try:
                return (await ctx.wait_for_signal("order", Order)).amount
            except Exception:
                if not catches:
                    raise
                await pay(0)

    async with flovyn.connect(url) as client, flovyn.Worker(client, [asks]):
        handle = await client.start(asks, True)
        await handle.signal("order", {"amounts": 1})
        await handle.signal("order", {"amount": 2})
        assert await handle.result(20) == 2
        # Whoever sends what nobody can read does not end a conversation.
        handle = await client.start(asks, False)
        await handle.signal("order", {"amounts": 1})
        assert "amount" in (await paused(handle))["message"]


async def test_a_bad_deploy_ends_no_conversation(url: str) -> None:
    def deployed(bad: bool) -> Any:
        @agent(kind="talk", version="bad" if bad else "good")
        async def talk(ctx: AgentContext) -> str:
            await pay(1)
            if bad:
                raise KeyError("SETTING")
            return await ctx.wait_for_signal("word", str)

        return talk

    async with flovyn.connect(url) as client:
        async with flovyn.Worker(client, [deployed(False)]):
            handle = await client.start(deployed(False))
            async with asyncio.timeout(20):
                while await handle.status() != "WAITING":
                    await asyncio.sleep(0.01)
        async with flovyn.Worker(client, [deployed(True)]):
            await handle.signal("word", "kept")
            assert (await paused(handle))["error_type"] == "KeyError"
        async with flovyn.Worker(client, [deployed(False)]):
            await handle.resume()
            assert await handle.result(20) == "kept"
    assert asked == ["pay"]


async def test_a_policy_that_is_none_is_refused(url: str) -> None:
    policy: Any = "ignore"

    @agent(on_error=policy)
    async def unsure(ctx: AgentContext) -> None: ...

    async with flovyn.connect(url) as client:
        with pytest.raises(flovyn.InvalidArgument, match='"ignore" is unknown; pass "fail" or "pause"'):
            await flovyn.Worker(client, [unsure]).start()


async def test_a_signal_that_does_not_fit_is_refused_at_the_sender(url: str) -> None:
    @agent(signals={"order": Order})
    async def takes(ctx: AgentContext) -> int:
        return (await ctx.wait_for_signal("order")).amount

    async with flovyn.connect(url) as client, flovyn.Worker(client, [takes]):
        handle = await client.start(takes)
        with pytest.raises(flovyn.InvalidArgument, match=r"'order' does not fit Order: .*amount"):
            await handle.signal("order", {"amounts": 1})
        await handle.signal("order", Order(3))
        assert await handle.result(20) == 3
