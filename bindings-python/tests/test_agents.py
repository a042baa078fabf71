"""What an agent's code may rely on: values, failures, concurrency, order."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from typing import Any

import flovyn
import pydantic
import pytest
from flovyn import AgentContext, SyncAgentContext, TaskContext, agent, task


@task
async def double(x: int) -> int:
    return x * 2


@task
async def slow_double(x: int, pause: float) -> int:
    await asyncio.sleep(pause)
    return x * 2


@task
def blocking(x: int) -> int:
    return x * 3


async def run(agent_: Any, input: Any = None, *, url: str, id: str | None = None, **options: Any) -> Any:
    return await asyncio.wait_for(flovyn.run_async(agent_, input, url=url, id=id, **options), 20)


async def test_an_agent_runs_to_its_end_and_is_remembered(url: str) -> None:
    runs = 0

    @task
    async def counted(x: int) -> int:
        nonlocal runs
        runs += 1
        return x + 1

    @agent
    async def simple(ctx: AgentContext, x: int) -> list[int]:
        return [await counted(x), await blocking(x), await counted(x)]

    async with flovyn.connect(url):  # keeps a named memory backend alive between the two runs
        assert await run(simple, 4, url=url, id="a") == [5, 12, 5]
        assert await run(simple, 4, url=url, id="a") == [5, 12, 5]
        assert runs == 2
        with pytest.raises(flovyn.ExecutionExists):
            await run(simple, 5, url=url, id="a")


async def test_wire_forms(url: str) -> None:
    seen: list[Any] = []

    @task
    async def several(a: int, b: str = "b", *rest: int, c: bool = True, **more: int) -> None:
        seen.append((a, b, rest, c, more))

    @task
    async def nothing() -> str:
        return "nothing"

    @agent
    async def caller(ctx: AgentContext) -> Any:
        await several(1, "x", 5, 6, c=False, d=7)
        await several(a=2)
        with pytest.raises(TypeError, match="missing a required argument: 'a'"):
            several()  # type: ignore[call-arg]
        return await nothing()

    async with flovyn.connect(url) as client, client.worker(agents=[caller]):
        handle = await client.start(caller)
        assert await handle.result(timeout=10) == "nothing"
        assert seen == [(1, "x", (5, 6), False, {"d": 7}), (2, "b", (), True, {})]


@dataclasses.dataclass
class Inner:
    n: int
    pair: tuple[int, int] = (0, 0)


@dataclasses.dataclass
class Outer:
    inner: Inner
    many: list[Inner]
    maybe: Inner | None = None


class Model(pydantic.BaseModel):
    name: str


@task
async def make_outer(n: int) -> Outer:
    return Outer(Inner(n, (1, 2)), [Inner(1)], None)


@task
async def make_models(n: int) -> dict[str, Model]:
    return {"m": Model(name=str(n))}


@task
async def make_tuple() -> tuple[int, int]:
    return (1, 2)


@agent
async def typed(ctx: AgentContext, outer: Outer) -> Outer:
    assert outer == Outer(Inner(7), [])
    made = await make_outer(1)
    assert made == Outer(Inner(1, (1, 2)), [Inner(1)], None)
    assert (await make_models(3))["m"] == Model(name="3")
    assert await make_tuple() == (1, 2)
    return made


async def test_annotated_types_are_rebuilt(url: str) -> None:
    assert await run(typed, Outer(Inner(7), []), url=url) == Outer(Inner(1, (1, 2)), [Inner(1)], None)


async def test_failures_are_task_failed_with_their_cause(url: str) -> None:
    @task
    async def bad(x: int) -> int:
        raise LookupError(f"no {x}")

    @task
    async def unserialisable() -> Any:
        return {"when": object()}

    @agent
    async def failing(ctx: AgentContext) -> list[Any]:
        found: list[Any] = []
        for step in (bad(1), unserialisable()):
            try:
                await step
            except flovyn.TaskFailed as failure:
                found.append([failure.kind, failure.type, failure.message, failure.attempts])
                assert failure.__cause__ is not None
                assert failure.task_id
        await bad(2)
        return found

    with pytest.raises(flovyn.AgentFailed, match=r'TaskFailed: task "bad" failed: LookupError: no 2'):
        await run(failing, url=url)


async def test_retries_and_no_retry(url: str) -> None:
    attempts: list[int] = []

    @task(retries=2)
    async def flaky(ctx: TaskContext) -> str:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ConnectionError("again")
        return str(ctx.task_id)

    @task(retries=5)
    async def hopeless() -> None:
        raise flovyn.NonRetryable("stop")

    @agent
    async def retrying(ctx: AgentContext) -> str:
        key = await flaky()
        with pytest.raises(flovyn.TaskFailed) as failure:
            await hopeless()
        assert failure.value.attempts == 1
        return key

    assert len(await run(retrying, url=url)) == 36
    assert attempts == [1, 2, 3]


async def test_gather_task_group_and_wait_for(url: str) -> None:
    @agent
    async def concurrent(ctx: AgentContext) -> Any:
        both = await asyncio.gather(double(1), slow_double(2, 0.02))
        nested = await asyncio.gather(asyncio.gather(double(3), double(4)), asyncio.create_task(double(5)))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(slow_double(6, 5.0), 0.05)
        settled = await ctx.join_all_settled(double(7), slow_double(8, 0.01))
        if sys.version_info >= (3, 11):
            async with asyncio.TaskGroup() as group:
                grouped = [group.create_task(double(n)) for n in range(3)]
            assert [each.result() for each in grouped] == [0, 2, 4]
        return [both, nested, settled]

    async with flovyn.connect(url):
        expected = [[2, 4], [[6, 8], 10], [14, 16]]
        assert await run(concurrent, url=url, id="c") == expected


async def test_a_step_is_scheduled_without_an_await_and_can_be_awaited_twice(url: str) -> None:
    ran: list[int] = []

    @task
    async def note(x: int) -> int:
        ran.append(x)
        return x

    @agent
    async def lazy(ctx: AgentContext) -> list[int]:
        first = ctx.schedule_task(note, 1)
        second = ctx.schedule_task("note", 2)
        assert first.id != second.id
        assert await second == 2
        return [await first, await first, await second]

    assert await run(lazy, url=url, tasks=[note]) == [1, 1, 2]
    assert sorted(ran) == [1, 2]


async def test_several_asyncio_tasks_can_await_one_step(url: str) -> None:
    @agent
    async def looking(ctx: AgentContext) -> list[Any]:
        slow, quick = ctx.sleep(0.2), double(2)
        first = await asyncio.gather(ctx.select(slow, quick), ctx.join_all(quick), asyncio.create_task(quick))
        later = await asyncio.gather(quick, return_exceptions=True)
        return [*first, *later, await quick, await asyncio.wait_for(quick, 1)]

    assert await run(looking, url=url) == [[1, 4], [4], 4, 4, 4, 4]


async def test_select_and_sleep(url: str) -> None:
    @agent
    async def selecting(ctx: AgentContext) -> Any:
        first = await ctx.select(slow_double(1, 5.0), ctx.sleep(0.05))
        second = await ctx.select(double(2), ctx.sleep(30))
        return [list(first), list(second)]

    assert await run(selecting, url=url) == [[1, None], [0, 4]]


async def test_durable_timeout(url: str) -> None:
    @agent
    async def limited(ctx: AgentContext) -> str:
        async with ctx.timeout(30):
            assert await double(1) == 2
        try:
            async with ctx.timeout(0.05):
                await slow_double(1, 10)
        except TimeoutError:
            return f"late {await double(4)}"
        return "never"

    assert await run(limited, url=url) == "late 8"


async def test_outside_an_agent_a_task_just_runs() -> None:
    assert await double(4) == 8
    assert await blocking(2) == 6
    assert await asyncio.create_task(double(1)) == 2
    assert await asyncio.wait_for(blocking(1), 5) == 3


async def test_misuse_is_explained(url: str) -> None:
    @agent
    async def stateless(ctx: AgentContext) -> str:
        with pytest.raises(flovyn.StateNotDeclared, match="declared without it"):
            _ = ctx.state
        with pytest.raises(flovyn.StateNotDeclared):
            await ctx.checkpoint({"a": 1})
        await ctx.checkpoint()
        return "ok"

    assert await run(stateless, url=url) == "ok"
    with pytest.raises(TypeError, match="not called like a function"):
        stateless(1)
    with pytest.raises(flovyn.InvalidArgument):
        task(side_effects="at_most_once", retries=2)(double.fn)

    @agent(kind="stateless")
    async def other(ctx: AgentContext) -> None: ...

    async with flovyn.connect(url) as client:
        with pytest.raises(flovyn.InvalidArgument, match="two different functions"):
            client.worker(agents=[stateless, other])


async def test_an_agents_failure_and_a_bad_result(url: str) -> None:
    @agent
    async def broken(ctx: AgentContext) -> None:
        raise ValueError("broken on purpose")

    @agent
    async def unserialisable(ctx: AgentContext) -> Any:
        return {"x": [object()]}

    with pytest.raises(flovyn.AgentFailed, match="ValueError: broken on purpose"):
        await run(broken, url=url)
    with pytest.raises(flovyn.Waiting, match=r"it waits for error \(NotSerializable.*\$\.x\[0\]"):
        await run(unserialisable, url=url)


async def test_wrong_thread(url: str) -> None:
    @agent
    async def threaded(ctx: AgentContext) -> str:
        def inside() -> str:
            try:
                ctx.append_entry("user", "x")
            except flovyn.WrongThread:
                return "refused"
            return "allowed"

        return await asyncio.get_running_loop().run_in_executor(None, inside)

    assert await run(threaded, url=url) == "refused"


async def test_deterministic_time_and_chance(url: str) -> None:
    @agent
    async def drawing(ctx: AgentContext) -> list[Any]:
        first, second = ctx.random(), ctx.random()
        assert first != second and 0 <= first < 1
        assert ctx.random_uuid().version == 4
        before = ctx.current_time()
        await double(1)
        assert ctx.current_time() >= before
        return [first, second]

    await run(drawing, url=url)


async def test_run_inside_a_running_loop(url: str) -> None:
    @agent
    async def tiny(ctx: AgentContext, x: int) -> int:
        return await double(x)

    assert flovyn.run(tiny, 2, url=url) == 4


async def test_context_variables_reach_agents_and_tasks(url: str) -> None:
    import contextvars

    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="none")

    @task
    async def read() -> str:
        return name.get()

    @task
    def read_blocking() -> str:
        return name.get()

    @agent
    async def reader(ctx: AgentContext) -> list[str]:
        name.set("mine")
        return [await read(), await read_blocking()]

    assert await run(reader, url=url) == ["mine", "mine"]


async def test_a_context_belongs_to_its_agent(url: str) -> None:
    @agent
    async def leaking(ctx: AgentContext) -> str:
        @task
        async def uses_it() -> str:
            with pytest.raises(flovyn.OutsideAgent):
                ctx.append_entry("user", "x")
            with pytest.raises(flovyn.OutsideAgent):
                ctx.schedule_task(double, 1)
            return "refused"

        return await uses_it()

    assert await run(leaking, url=url) == "refused"


async def test_a_context_starts_no_child_for_others(url: str) -> None:
    leaked: list[Any] = []

    @agent
    async def born(ctx: AgentContext) -> str:
        return "born"

    @agent
    async def leaks(ctx: AgentContext) -> list[str]:
        leaked.append(ctx)

        @task
        async def starts_one() -> str:
            with pytest.raises(flovyn.OutsideAgent, match="not its agent's, such as a task"):
                ctx.spawn_agent(born)
            return "refused"

        @task
        def starts_one_elsewhere() -> str:
            with pytest.raises(flovyn.WrongThread, match="do the work in a task"):
                ctx.spawn_agent(born)
            return "refused there too"

        return [await starts_one(), await starts_one_elsewhere()]

    @agent
    def leaks_blocking(ctx: SyncAgentContext) -> str:
        leaked.append(ctx)
        return "left"

    @agent
    async def another(ctx: AgentContext) -> str:
        for of_others in leaked:
            with pytest.raises(flovyn.OutsideAgent, match="after its agent's code had ended"):
                of_others.spawn_agent(born)
        return await ctx.spawn_agent(born)

    @agent
    def another_blocking(ctx: SyncAgentContext) -> str:
        for of_others in leaked:
            with pytest.raises(flovyn.OutsideAgent, match="after its agent's code had ended"):
                of_others.spawn_agent(born)
        return ctx.spawn_agent(born).result()

    agents = [leaks, leaks_blocking, another, another_blocking, born]
    async with flovyn.connect(url) as client, client.worker(agents=agents):
        assert await (await client.start(leaks)).result(timeout=20) == ["refused", "refused there too"]
        assert await (await client.start(leaks_blocking)).result(timeout=20) == "left"
        for of_others in leaked:
            # The end is told to clients before the copy hears of it.
            while not of_others.is_suspending:
                await asyncio.sleep(0.01)
            for started in (born, "born"):
                with pytest.raises(flovyn.OutsideAgent, match="after its agent's code had ended"):
                    of_others.spawn_agent(started)
            # Nor is it any better from a thread that is nobody's.
            with pytest.raises(flovyn.OutsideAgent, match="after its agent's code had ended"):
                await asyncio.to_thread(of_others.spawn_agent, born)
        assert [run.kind async for run in client.runs(kind="born")] == []
        assert await (await client.start(another)).result(timeout=20) == "born"
        assert await (await client.start(another_blocking)).result(timeout=20) == "born"
        assert len([run async for run in client.runs(kind="born")]) == 2


async def test_tasks_are_called_by_name_with_one_input(url: str) -> None:
    @task
    async def area(width: int, height: int = 2) -> int:
        return width * height

    @agent
    async def naming(ctx: AgentContext) -> list[int]:
        return [await ctx.schedule_task("area", {"width": 3}), await ctx.schedule_task(area, 4, height=5)]

    assert await run(naming, url=url, tasks=[area]) == [6, 20]


async def test_queued_tasks_run_in_another_worker(url: str) -> None:
    @task
    async def far(x: Inner) -> Inner:
        return Inner(x.n + 1, x.pair)

    @agent
    async def delegating(ctx: AgentContext) -> Any:
        first = await far.options(queue="gpu")(Inner(1, (2, 3)))
        second = await ctx.schedule_task("elsewhere", 1)
        return [first, second]

    @task
    async def elsewhere(a: int) -> int:
        return a + 10

    async with flovyn.connect(url) as client, client.worker(agents=[delegating]):
        handle = await client.start(delegating)
        async with (
            client.worker(tasks=[far], queue="gpu"),
            client.worker(tasks=[elsewhere]),
        ):
            assert await handle.result(timeout=10) == [{"n": 2, "pair": [2, 3]}, 11]


async def test_events_go_out_as_the_server_sends_them(url: str) -> None:
    @agent
    async def talker(ctx: AgentContext, words: int) -> None:
        for word in range(words):
            ctx.append_entry("assistant", word)

    async with flovyn.connect(url) as client, client.worker(agents=[talker]):
        handle = await client.start(talker, 4, id="sent")
        await handle.result(timeout=10)
        whole = b"".join([sent async for sent in handle.sse()])
        events = [
            dict(line.split(": ", 1) for line in event.splitlines()) for event in whole.decode().split("\n\n") if event
        ]
        names = [event["event"] for event in events]
        assert names[0] == "agent.started" and names[-1] == "agent.completed" and "entry" in names
        assert all(json.loads(event["data"])["agentExecutionId"] == str(handle.id) for event in events)
        middle = len(events) // 2
        rest = b"".join([sent async for sent in handle.sse(after=events[middle]["id"])])
        assert whole.endswith(rest) and rest.count(b"\n\n") == len(events) - middle - 1
        assert [sent async for sent in handle.sse(after=events[-1]["id"])] == []
