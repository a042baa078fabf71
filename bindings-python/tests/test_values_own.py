"""Types of a program's own, by its own serializer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import flovyn
import flovyn.testing
import pydantic
import pytest
from flovyn import AgentContext, TaskContext, agent, task
from flovyn.serde import Signature


class Money:
    """Has no form that anybody could know."""

    def __init__(self, cents: int, currency: str = "EUR") -> None:
        self.cents = cents
        self.currency = currency

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.cents, self.currency))

    def __repr__(self) -> str:
        return f"{self.cents} {self.currency}"


class Tagged:
    """Writes money as an object with a tag, wherever it is in lists and dicts."""

    def dump(self, value: Any) -> Any:
        if isinstance(value, Money):
            return {"$money": [value.cents, value.currency]}
        if isinstance(value, (list, tuple)):
            return [self.dump(each) for each in value]
        if isinstance(value, dict):
            return {key: self.dump(each) for key, each in value.items()}
        return value

    def load(self, json: Any) -> Any:
        if isinstance(json, list):
            return [self.load(each) for each in json]
        if isinstance(json, dict):
            return Money(*json["$money"]) if "$money" in json else {key: self.load(each) for key, each in json.items()}
        return json


@dataclass
class Bill:
    of: str
    paid: bool = False


TIP = Money(1)


@task(serializer=Tagged())
async def add(ctx: TaskContext, *parts: Money, tip: Money = TIP, at: datetime) -> dict[str, list[Money]]:
    assert isinstance(at, datetime)
    return {"sum": [Money(sum(part.cents for part in parts) + tip.cents)]}


@task(queue="far", serializer=Tagged())
async def split(money: Money, bill: Bill, **more: Money) -> tuple[Money, Bill, str]:
    half = Money(money.cents // 2)
    return half, Bill(bill.of, True), repr(more)


class Till:
    def __init__(self) -> None:
        self.of: list[Money] = []


till: tuple[Callable[[Any], Any], Callable[[Any], Any]] = (
    lambda value: {"till": [each.cents for each in value.of]} if isinstance(value, Till) else Tagged().dump(value),
    lambda stored: _till(stored["till"]) if isinstance(stored, dict) and "till" in stored else Tagged().load(stored),
)


def _till(of: list[int]) -> Till:
    made = Till()
    made.of = [Money(cents) for cents in of]
    return made


@agent(serializer=till, state=Till)
async def cashier(ctx: AgentContext[Till], first: Money) -> Money:
    assert isinstance(first, Money)
    if not ctx.state.of:
        added = (await add(first, Money(5), at=datetime(2026, 1, 2)))["sum"]
        ctx.state.of = added
        await ctx.checkpoint()
    again = await add(ctx.state.of[0], at=datetime(2026, 1, 2))
    return again["sum"][0]


async def test_own_types_are_the_same_in_every_life() -> None:
    report = await flovyn.testing.check(cashier, Money(10))
    assert report is not None
    assert await flovyn.run_async(cashier, Money(10), url="memory:") == Money(17)


@agent(serializer=Tagged())
async def splitting(ctx: AgentContext[None], money: Money) -> list[Any]:
    half, bill, more = await split(money, Bill("me"), tip=Money(3))
    return [half, [bill.of, bill.paid], more]


async def test_own_types_travel(url: str) -> None:
    async with flovyn.connect(url) as client, client.worker([splitting]), client.worker(tasks=[split], queue="far"):
        handle = await client.start(splitting, Money(10))
        assert await handle.result(timeout=20) == [Money(5), ["me", True], "{'tip': 3 EUR}"]
        stored = json.loads(json.dumps(await (await client.handle(handle.id)).result(timeout=20)))
        assert stored[0] == {"$money": [5, "EUR"]}, "whoever does not know the agent sees what is stored"


def test_arguments_are_dumped_each() -> None:
    wire = add.signature.wire((Money(1), Money(2)), {"at": datetime(2026, 1, 2)})
    assert wire["parts"] == [{"$money": [1, "EUR"]}, {"$money": [2, "EUR"]}]
    assert wire["tip"] == {"$money": [1, "EUR"]} and wire["at"] == datetime(2026, 1, 2)

    def none() -> None: ...

    assert Signature(none, "TaskContext", own=add.signature.own).wire((), {}) is None


def test_a_cassette_keeps_what_is_stored(tmp_path: Path) -> None:
    @agent(serializer=Tagged())
    async def recorded(ctx: AgentContext[None]) -> Money:
        return (await add(Money(2), at=datetime(2026, 1, 2)))["sum"][0]

    for stand_in in (flovyn.testing.record, flovyn.testing.replay):
        fakes = stand_in(tmp_path / "cassette", [add])
        assert flovyn.testing.check(recorded, tasks=fakes).result == {"$money": [3, "EUR"]}


def test_a_pair_of_pydantics_own_is_a_serializer() -> None:
    adapter = pydantic.TypeAdapter(tuple[complex, complex])

    @task(serializer=(lambda value: adapter.dump_python(value, mode="json"), adapter.validate_python))
    async def twice(pair: Any) -> tuple[complex, complex]:
        return (pair[0] * 2, pair[1] * 2)

    @agent
    async def rotating(ctx: AgentContext[None]) -> str:
        return repr(await twice((1j, 2j)))

    assert flovyn.run(rotating, url="memory:") == "(2j, 4j)"


async def test_what_a_serializer_raises_is_told(url: str) -> None:
    def dump(value: Any) -> Any:
        return value.cents if value != 0 else object()

    def load(stored: Any) -> Any:
        raise KeyError("currency")

    @task(serializer=(dump, load))
    async def odd(value: Any) -> Any:
        return value

    @agent
    async def asking(ctx: AgentContext[None]) -> list[str]:
        told: list[str] = []
        for value in ("five", 0, Money(5)):
            try:
                await odd(value)
            except flovyn.NotSerializable as refused:
                told.append(refused.message)
        return told

    told = await flovyn.run_async(asking, url=url)
    assert "a str that serializer.dump of task 'odd' does not take: AttributeError" in told[0]
    assert "$ is a object, which has no JSON form" in told[1] or "object" in told[1]
    assert "a int that serializer.load of task 'odd' does not take: KeyError: 'currency'" in told[2]


def test_a_state_that_cannot_be_loaded_is_told() -> None:
    from flovyn.agent import UnreadableState

    with pytest.raises(UnreadableState, match=r"serializer.load of agent 'cashier' does not take.*Correct its load"):
        cashier.initial_state(({"till": 5},))


@pytest.mark.parametrize("given", ["x", (1, 2), (len,), object(), {"dump": len, "load": len}])
def test_what_is_no_serializer_is_refused(given: Any) -> None:
    with pytest.raises(flovyn.InvalidArgument, match=r"serializer= of task 'f' is .*pass an object with dump"):

        @task(serializer=given)
        def f(x: int) -> int:
            return x


@agent(serializer=Tagged(), signals={"paid": Money})
async def collecting(ctx: AgentContext[None], count: int) -> list[Any]:
    first = await ctx.wait_for_signal("paid")
    second = await ctx.wait_for_signal("other", Money)
    third = await ctx.wait_for_signal("anything")
    late = await ctx.wait_for_signal("late", type=Bill)
    rest = await ctx.drain_signals("paid")
    return [first, second, third, late.paid, rest, await ctx.drain_signals("anything")]


PAID: list[tuple[str, Any]] = [
    ("paid", Money(1)),
    ("paid", Money(2)),
    ("paid", Money(3)),
    ("other", Money(4)),
    ("anything", [Money(5), None]),
    ("anything", None),
    ("late", {"of": "me", "paid": True}),
]
SPENT = [Money(1), Money(4), [Money(5), None], True, [Money(2), Money(3)], [None]]


async def test_signals_go_through_the_serializer(url: str) -> None:
    async with flovyn.connect(url) as client:
        handle = await client.start(collecting, 1)
        for name, value in PAID:
            await handle.signal(name, value)
        async with client.worker([collecting]):
            assert await handle.result(timeout=20) == SPENT
        stranger = await client.handle(handle.id)
        stored = json.loads(json.dumps(await stranger.result()))
        assert stored[0] == {"$money": [1, "EUR"]} and stored[2] == [{"$money": [5, "EUR"]}, None]


async def test_signals_of_own_types_are_the_same_in_every_life() -> None:
    report = await flovyn.testing.check_async(collecting, 1, signals=PAID)
    assert report.result == [Tagged().dump(each) for each in SPENT]


async def test_a_signal_that_its_agent_could_not_read_is_refused_at_its_sender(url: str) -> None:
    async with flovyn.connect(url) as client:
        handle = await client.start(collecting, 1)
        with pytest.raises(flovyn.InvalidArgument, match="the signal 'paid' does not fit Money"):
            await handle.signal("paid", {"$money": ["one", "two", "three"]})
        with pytest.raises(flovyn.NotSerializable, match="object"):
            await handle.signal("anything", object())
        stranger = await client.handle(handle.id)
        with pytest.raises(flovyn.NotSerializable):
            await stranger.signal("paid", Money(1))
        # Whoever does not know the agent sends what is stored.
        for name, value in PAID:
            await stranger.signal(name, Tagged().dump(value))
        async with client.worker([collecting]):
            assert await handle.result(timeout=20) == SPENT


def test_a_blocking_agent_reads_signals_alike() -> None:
    @agent(serializer=Tagged(), signals={"paid": Money})
    def blocking(ctx: flovyn.SyncAgentContext[None]) -> list[Any]:
        return [ctx.wait_for_signal("paid"), *ctx.drain_signals("paid")]

    with flovyn.connect_sync("memory:") as client:
        handle = client.start(blocking)
        for cents in (1, 2, 3):
            handle.signal("paid", Money(cents))
        with client.worker([blocking]):
            assert handle.result(timeout=20) == [Money(1), Money(2), Money(3)]


async def test_drained_signals_have_the_declared_type(url: str) -> None:
    @agent(signals={"due": datetime})
    async def due(ctx: AgentContext[None]) -> int:
        first = await ctx.wait_for_signal("due")
        return sum(at.year for at in [first, *await ctx.drain_signals("due")])

    async with flovyn.connect(url) as client:
        handle = await client.start(due)
        for year in (1, 20, 300):
            await handle.signal("due", datetime(year, 1, 1))
        async with client.worker([due]):
            assert await handle.result(timeout=20) == 321
