"""Calls that cannot be misread: what cannot be meant is refused where it is written, or where it is called."""

from __future__ import annotations

import asyncio
import datetime
import functools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flovyn
import pydantic
import pytest
from flovyn import AgentContext, InvalidArgument, SyncAgentContext, TaskContext, agent, task
from flovyn.testing import harness

sent: list[str] = []


@task
async def send_mail(to: str) -> str:
    sent.append(to)
    return to


@dataclass
class Order:
    item: str
    count: int = 1


@agent
async def nightly(ctx: AgentContext) -> str:
    return await send_mail("everybody")


@agent
async def mailing(ctx: AgentContext, to: str) -> str:
    return await send_mail(to)


@agent
async def ordering(ctx: AgentContext, order: Order) -> Order:
    return order


@agent
async def greeting(ctx: AgentContext, name: str = "you") -> str:
    return f"hello {name}"


@agent
async def optional(ctx: AgentContext, name: str | None) -> str:
    return repr(name)


@agent
async def plain(ctx: AgentContext, thing) -> str:  # type: ignore[no-untyped-def]
    return repr(thing)


@agent
async def adding(ctx: AgentContext, a: int, b: int = 2) -> int:
    return a + b


# ── inputs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_options_are_not_taken_as_an_input(url: str) -> None:
    sent.clear()
    async with flovyn.connect(url) as client, client.worker(agents=[nightly]):
        for _ in range(2):
            with pytest.raises(InvalidArgument, match=r"takes no input.*'id': 'tonight'.*id=…"):
                await client.start(nightly, {"id": "tonight"})  # type: ignore[call-overload]
        assert [run async for run in client.runs()] == [] and sent == []
        assert await (await client.start(nightly, id="tonight")).result(5) == "everybody"


@pytest.mark.parametrize("start", ["run", "connect_sync", "harness"])
def test_a_needed_input_is_asked_for_at_every_door(start: str) -> None:
    def begin(*given: Any) -> Any:
        if start == "run":
            return flovyn.run(mailing, *given, url="memory:", timeout=5)
        if start == "connect_sync":
            with flovyn.connect_sync("memory:") as client:
                return client.start(mailing, *given)

        async def in_harness() -> Any:
            async with harness([mailing]) as h:
                return await h.start(mailing, *given)

        return asyncio.run(in_harness())

    with pytest.raises(InvalidArgument, match=r"needs an input, its parameter 'to' \(str\), but was given none"):
        begin()
    with pytest.raises(InvalidArgument, match="was given None"):
        begin(None)
    with pytest.raises(InvalidArgument, match=r"does not fit str: at \$ an integer \(5\) was found"):
        begin(5)
    begin("me")


@pytest.mark.parametrize(
    ("of", "given", "result"),
    [
        (greeting, (), "hello you"),
        (greeting, (None,), "hello you"),
        (greeting, ("there",), "hello there"),
        (optional, (), "None"),
        (optional, (None,), "None"),
        (plain, (None,), "None"),
        (ordering, (Order("tea"),), Order("tea")),
        (ordering, ({"item": "tea"},), Order("tea")),
        (adding, ({"a": 1},), 3),
    ],
)
def test_an_input_that_fits_is_taken(of: Any, given: tuple[Any, ...], result: Any) -> None:
    assert flovyn.run(of, *given, url="memory:", timeout=5) == result


@pytest.mark.parametrize(
    ("of", "given", "said"),
    [
        (plain, (), "needs an input, its parameter 'thing', but"),
        (ordering, (), "'order'"),
        (ordering, ({"items": "tea"},), "wants a field 'item'"),
        (ordering, ({"item": "tea", "cuont": 2},), "no field 'cuont'"),
        (ordering, ({"item": "tea", "count": "two"},), r"at \$\.count a string"),
        (adding, (3,), "one dataclass or dict"),
        (adding, ({"b": 1},), "has no 'a'"),
        (adding, ({"a": 1, "c": 1},), "'c', which is no parameter"),
        (adding, ({"a": "1"},), "'a' in the input"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_at_the_start(of: Any, given: tuple[Any, ...], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        flovyn.run(of, *given, url="memory:", timeout=5)


RUN = """
import datetime, os, sys, flovyn, pydantic
from dataclasses import dataclass, field
from flovyn import agent, AgentContext, task

RULE = int(sys.argv[2])

class Trip(pydantic.BaseModel):
    days: int = pydantic.Field(le=RULE)
    when: datetime.date

@dataclass
class Plan:
    trip: Trip
    note: str = "none"
    def __post_init__(self):
        if self.trip.days > RULE:
            raise ValueError("too long")

@task
async def book() -> str:
    return "booked"

@agent(version="1")
async def travels(ctx: AgentContext, plan: Plan) -> list:
    done = await book()
    await ctx.flush()
    if RULE == 10:
        os._exit(9)
    return [done, type(plan).__name__, plan.note, plan.trip.days, plan.trip.when.year]

print(flovyn.run(travels, Plan(Trip.model_construct(days=7, when=datetime.date(2030, 1, 2)))
    if RULE >= 7 else {}, id="trip", url=sys.argv[1], timeout=20))
"""


def test_a_recorded_input_is_not_checked_again(file_url: str, child: Callable[..., subprocess.Popen[str]]) -> None:
    """A rule that is stricter by now, or about the time, does not stop a run that was accepted before."""
    process = child(RUN, file_url, "10")
    process.communicate(timeout=30)
    assert process.returncode == 9
    # The deploy of a worker, which starts nothing.
    text = RUN.replace("print(flovyn.run(travels,", "print(go_on() or (lambda *_, **__: 0)(0,").replace(
        "RULE = int(sys.argv[2])",
        "RULE = int(sys.argv[2])\n"
        "def go_on():\n"
        "    with flovyn.connect_sync(sys.argv[1]) as client, client.worker(agents=[travels]):\n"
        "        return client.handle('trip').result(20)",
    )
    process = child(text, file_url, "5")
    out, errors = process.communicate(timeout=40)
    assert process.returncode == 0, errors
    assert out.strip() == "['booked', 'Plan', 'none', 7, 2030]"


async def test_an_input_that_was_started_by_kind_is_checked_by_who_serves_it(url: str) -> None:
    class Few(pydantic.BaseModel):
        n: int = pydantic.Field(le=3)

    @agent
    async def few(ctx: AgentContext, given: Few) -> int:
        return given.n

    async with flovyn.connect(url) as client, client.worker(agents=[few]):
        handle = await client.start("few", {"n": 7})
        with pytest.raises(flovyn.Timeout, match="PAUSED"):
            await handle.result(1)


# ── declarations ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_method_is_no_task_and_no_agent() -> None:
    with pytest.raises(InvalidArgument, match=r"'fetch' is a method.*staticmethod"):

        class Client:
            @task(retries=1)
            async def fetch(self, url: str) -> str:
                return url

    with pytest.raises(InvalidArgument, match=r"'serve' is a method.*agents by name"):

        class Bot:
            @agent
            async def serve(self, ctx: AgentContext) -> None: ...

    with pytest.raises(InvalidArgument, match="is a method"):

        class Made:
            @classmethod
            @task
            def make(cls) -> None: ...

    with pytest.raises(InvalidArgument, match="write @staticmethod above @task"):

        class Upside:
            @task
            @staticmethod
            def down() -> None: ...


class Shop:
    def __init__(self, price: int) -> None:
        self.price = price

    @staticmethod
    @task
    async def twice(n: int) -> int:
        return 2 * n

    async def cost(self, n: int) -> int:
        return self.price * n

    async def sell(self, ctx: AgentContext, n: int) -> int:
        return await Shop.twice(n) + await cost(n)


cost = task(Shop(5).cost)


def test_a_static_method_and_one_of_an_object_are() -> None:
    assert flovyn.run(agent(Shop(0).sell), 3, url="memory:", timeout=5) == 6 + 15


def test_an_agent_takes_its_context_first() -> None:
    with pytest.raises(InvalidArgument, match=r"first parameter: def none\(ctx"):

        @agent  # type: ignore[call-overload]
        async def none() -> None: ...

    with pytest.raises(InvalidArgument, match="first parameter is 'topic', a str"):

        @agent  # type: ignore[call-overload]
        async def second(topic: str, ctx: AgentContext) -> None: ...

    with pytest.raises(InvalidArgument, match="TaskContext"):

        @agent  # type: ignore[call-overload]
        async def wrong(ctx: TaskContext) -> None: ...

    with pytest.raises(InvalidArgument, match="yields"):

        @agent  # type: ignore[call-overload]
        async def many(ctx: AgentContext) -> Any:
            yield 1

    with pytest.raises(InvalidArgument, match="takes no input"):

        @agent
        async def misread(topic) -> str:  # type: ignore[no-untyped-def]
            return topic

        flovyn.run(misread, "otters", url="memory:")


def test_contexts_of_every_writing_are_taken() -> None:
    class Own(AgentContext[Any]): ...

    @agent
    async def own(ctx: Own) -> None: ...

    @agent
    async def dotted(ctx: flovyn.AgentContext[dict[str, Any]], n: int) -> None: ...

    @agent
    async def either(ctx: AgentContext | SyncAgentContext) -> None: ...

    @agent
    def blocking(ctx: SyncAgentContext[Any]) -> None: ...

    @agent
    async def unresolved(ctx: NotThere[Any]) -> None: ...  # type: ignore[name-defined] # noqa: F821

    @agent
    async def anything(ctx: Any, n: int) -> None: ...


def test_a_task_takes_a_task_context_first_or_none() -> None:
    with pytest.raises(InvalidArgument, match="takes an agent's context"):

        @task
        async def wrong(ctx: AgentContext, url: str) -> None: ...

    with pytest.raises(InvalidArgument, match="'ctx'; it is the first parameter"):

        @task
        async def last(url: str, ctx: TaskContext) -> None: ...

    with pytest.raises(InvalidArgument, match="yields"):

        @task
        def many() -> Any:
            yield 1


# ── ctx.run ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def double(n: int, *, plus: int = 0) -> int:
    return 2 * n + plus


def lower(text: str, *, strip: bool = False) -> str:
    return text.strip().lower() if strip else text.lower()


@agent
async def stepping(ctx: AgentContext) -> list[Any]:
    return [
        await ctx.run("keyword", double, 3, plus=1),
        await ctx.run("blocking", lower, " A ", strip=True),
        await ctx.run("lambda", lambda: double(4)),
        await ctx.run("partial", functools.partial(double, plus=2), 1),
        await ctx.run("of C", int, "ff", base=16),
        await ctx.once("once", double, 5, plus=1),
    ]


@agent
def stepping_blocking(ctx: SyncAgentContext) -> list[Any]:
    return [
        ctx.run("keyword", double, 3, plus=1),
        ctx.run("blocking", lower, " A ", strip=True),
        ctx.run("lambda", lambda: double(4)),
        ctx.run("partial", functools.partial(double, plus=2), 1),
        ctx.run("of C", int, "ff", base=16),
        ctx.once("once", lower, "X", strip=True),
    ]


def test_a_step_takes_keywords_and_async_lambdas() -> None:
    assert flovyn.testing.check(stepping).result == [7, "a", 8, 4, 255, 11]
    assert flovyn.testing.check(stepping_blocking).result == [7, "a", 8, 4, 255, "x"]


def test_a_task_that_gives_a_coroutine_gives_what_that_gives() -> None:
    given = task(lambda n: double(n), kind="given")  # type: ignore[call-overload]

    @agent
    async def calls(ctx: AgentContext) -> int:
        return await given(4)

    assert flovyn.run(calls, url="memory:", timeout=5) == 8
    assert asyncio.run(given(5)) == 10


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_what_ctx_run_cannot_call_is_said() -> None:
    said: list[str] = []

    @agent
    async def wrong(ctx: AgentContext) -> None:
        for given in [("name", double(1)), (double, "name"), ("name", 5), ("name", nightly)]:
            for call in (ctx.run, ctx.once):
                try:
                    await call(*given)  # type: ignore[arg-type]
                except InvalidArgument as error:
                    said.append(str(error))

    flovyn.run(wrong, url="memory:", timeout=5)
    assert [text.split(" for ")[0].split(", which")[0] for text in said] == [
        "ctx.run was given a coroutine",
        "ctx.once was given a coroutine",
        "ctx.run was given a function",
        "ctx.once was given a function",
        "ctx.run was given 5",
        "ctx.once was given 5",
        "ctx.run was given <flovyn agent 'nightly'>",
        "ctx.once was given <flovyn agent 'nightly'>",
    ]


# ── handles ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_handle_by_id_knows_its_agents_types(url: str) -> None:
    async with flovyn.connect(url) as client, client.worker(agents=[ordering, nightly]):
        await (await client.start(ordering, Order("tea"), id="order")).result(5)
        assert await (await client.handle("order", ordering)).result(5) == Order("tea")
        assert await (await client.handle("order")).result(5) == {"item": "tea", "count": 1}
        with pytest.raises(
            InvalidArgument, match=r"'order' is one of agent 'ordering', not of <flovyn agent 'nightly'>"
        ):
            await client.handle("order", nightly)
        with pytest.raises(InvalidArgument, match="declared with @agent, or its kind"):
            await client.start(double)  # type: ignore[call-overload]


def test_a_blocking_handle_by_id_does_too(file_url: str) -> None:
    flovyn.run(ordering, Order("tea"), id="order", url=file_url, timeout=5)
    with flovyn.connect_sync(file_url) as client:
        assert client.handle("order", ordering).result(5) == Order("tea")


# ── types ───────────────────────────────────────────────────────────────────────────────────────────────────────────

TYPED = """
import flovyn
from flovyn import AgentContext, SyncAgentContext, agent

@agent
async def without(ctx: AgentContext) -> str: ...
@agent
async def needs(ctx: AgentContext, to: str) -> int: ...
@agent(version="1")
async def may(ctx: AgentContext, to: str = "me") -> int: ...
@agent
def blocking(ctx: SyncAgentContext, to: str) -> int: ...
async def double(n: int, *, plus: int = 0) -> float: ...

a: str = flovyn.run(without, id="x")
b: int = flovyn.run(needs, "you")
c: int = flovyn.run(may) + flovyn.run(may, "you") + flovyn.run(blocking, "you")

async def right(client: flovyn.Client, ctx: AgentContext) -> None:
    d: int = await (await client.handle("x", needs)).result()
    e: int = await (await client.start(may, id="x")).result()
    f: float = await ctx.run("d", double, 1, plus=2)
    g: float = await ctx.run("d", lambda: double(1))

async def wrong(client: flovyn.Client, ctx: AgentContext) -> None:
    await client.start(without, {"id": "x"})
    await client.start(needs)
    flovyn.run(needs)
    flovyn.run(needs, 5)
    await ctx.run("d", double, "1")
    await ctx.run("d", double, 1, minus=2)
    await client.handle("x", double)
"""


def test_type_checkers_see_it_too(tmp_path: Path) -> None:
    if not (Path(sys.executable).parent / "pyright").exists():
        pytest.skip("pyright is not installed")
    source = tmp_path / "typed.py"
    source.write_text(TYPED)
    command = [str(Path(sys.executable).parent / "pyright"), "--pythonpath", sys.executable, str(source)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path).stdout
    first = TYPED[: TYPED.index("async def wrong")].count("\n") + 2
    lines = sorted({int(line.split(":")[1]) for line in told.splitlines() if " - error: " in line})
    assert lines == list(range(first, first + 7)), told


def test_dates_of_models_are_dates_again() -> None:
    class Trip(pydantic.BaseModel):
        when: datetime.date

    @agent
    async def travels(ctx: AgentContext, trip: Trip) -> int:
        return trip.when.year

    assert flovyn.run(travels, Trip(when=datetime.date(2030, 1, 2)), url="memory:", timeout=5) == 2030
