"""State, signals, once, cancellation, streams: what outlives a moment."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import Annotated, Any

import flovyn
import pytest
from flovyn import AgentContext, TaskContext, agent, task


@dataclasses.dataclass
class Chat:
    turn: int = 0
    said: Annotated[list[str], flovyn.append] = dataclasses.field(default_factory=list)


@task
async def answer(question: str) -> str:
    return f"about {question}"


@agent(state=Chat)
async def chat(ctx: AgentContext[Chat], turns: int) -> dict[str, Any]:
    while ctx.state.turn < turns:
        message = await ctx.wait_for_signal("userMessage")
        ctx.append_entry("user", message["text"])
        ctx.append_entry("assistant", await answer(message["text"]), metadata={"turn": ctx.state.turn})
        ctx.update(said=message["text"], turn=ctx.state.turn + 1)
        await ctx.checkpoint()
    return {"said": ctx.state.said, "messages": [m.content for m in ctx.load_messages()]}


async def test_a_conversation_over_several_processes_lives(url: str) -> None:
    async with flovyn.connect(url) as client:
        for number, word in enumerate(["one", "two", "three"]):
            async with client.worker(agents=[chat]):
                handle = await client.start(chat, 3, id="chat")
                await handle.signal("userMessage", {"text": word}, idempotency_key=str(number))
                await handle.signal("userMessage", {"text": word}, idempotency_key=str(number))
                for _ in range(500):
                    if len(await handle.checkpoints()) > number:
                        break
                    await asyncio.sleep(0.01)
        async with client.worker(agents=[chat]):
            result = await handle.result(timeout=10)
        assert result == {
            "said": ["one", "two", "three"],
            "messages": ["one", "about one", "two", "about two", "three", "about three"],
        }
        assert [m.role for m in await handle.messages()] == ["user", "assistant"] * 3
        assert len(await handle.entries()) == 6
        assert (await handle.messages())[1].metadata == {"turn": 0}
        with pytest.raises(flovyn.ExecutionClosed):
            await handle.signal("userMessage", {"text": "late"})


async def test_a_parked_agent_is_evicted_and_goes_on(url: str) -> None:
    entered = 0
    suspended: list[bool] = []

    @agent
    async def waiting(ctx: AgentContext) -> Any:
        nonlocal entered
        entered += 1
        first = await answer("x")
        try:
            return [first, await ctx.wait_for_signal("go")]
        finally:
            suspended.append(bool(ctx.is_suspending))

    async with flovyn.connect(url) as client, client.worker(agents=[waiting], max_parked=0):
        handle = await client.start(waiting)
        for _ in range(500):
            if suspended:
                break
            await asyncio.sleep(0.01)
        assert await handle.status() == "WAITING"
        await handle.signal("go", 5)
        assert await handle.result(timeout=10) == ["about x", 5]
        assert suspended == [True, False] and entered == 2


async def test_runs_beyond_those_that_are_kept_leave_memory(url: str) -> None:
    @agent
    async def waiting(ctx: AgentContext) -> Any:
        return await ctx.wait_for_signal("go")

    async with flovyn.connect(url) as client, client.worker(agents=[waiting], max_parked=1) as worker:
        handles = [await client.start(waiting) for _ in range(3)]
        for _ in range(500):
            if len(worker._activations) == 1 and [await each.status() for each in handles] == ["WAITING"] * 3:
                break
            await asyncio.sleep(0.01)
        # The commit of the one that comes to wait puts another one away, which hears of it though it made no call.
        assert len(worker._activations) == 1
        for number, handle in enumerate(handles):
            await handle.signal("go", number)
            assert await handle.result(timeout=10) == number


@agent
async def patient(ctx: AgentContext, how: str) -> str:
    patience = 3600.0 if not lives else 0.01
    lives.append(how)

    async def other() -> str:
        await asyncio.sleep(patience)
        return "gave up"

    if how == "wait_for":
        try:
            return await asyncio.wait_for(ctx.wait_for_signal("never"), patience)
        except asyncio.TimeoutError:
            return "gave up"
    waiting = asyncio.ensure_future(ctx.wait_for_signal("never"))
    done, _ = await asyncio.wait([waiting, asyncio.ensure_future(other())], return_when=asyncio.FIRST_COMPLETED)
    assert waiting not in done
    return done.pop().result()


lives: list[str] = []


@pytest.mark.parametrize("how", ["wait_for", "wait"])
async def test_a_timer_of_the_loop_starts_anew_where_its_run_goes_on(url: str, how: str) -> None:
    lives.clear()
    async with flovyn.connect(url) as client:
        async with client.worker(agents=[patient]):
            handle = await client.start(patient, how)
            for _ in range(500):
                if await handle.status() == "WAITING":
                    break
                await asyncio.sleep(0.01)
            assert await handle.status() == "WAITING"
        async with client.worker(agents=[patient]):
            assert await handle.result(timeout=10) == "gave up"
        assert lives == [how, how]


async def test_a_wait_without_a_timer_is_not_entered_for_nothing(url: str) -> None:
    entered = 0

    @agent
    async def plain(ctx: AgentContext) -> str:
        nonlocal entered
        entered += 1
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ctx.wait_for_signal("never"), 0.01)
        async with asyncio.timeout(3600) if hasattr(asyncio, "timeout") else contextlib.nullcontext():
            await answer("x")
        return await ctx.wait_for_signal("go")

    async with flovyn.connect(url) as client:
        for _ in range(3):
            async with client.worker(agents=[plain]):
                handle = await client.start(plain, id="plain")
                for _ in range(500):
                    if (await handle.describe())["waits_for"] == ["go"]:
                        break
                    await asyncio.sleep(0.01)
        assert (await handle.status(), entered) == ("WAITING", 1)


async def test_signal_timeout_and_reads(url: str) -> None:
    @agent
    async def reading(ctx: AgentContext) -> Any:
        with pytest.raises(flovyn.SignalTimeout):
            await ctx.wait_for_signal("never", timeout=0.05)
        first = await ctx.wait_for_signal("a")
        waits = await ctx.has_signal("b")
        drained = await ctx.drain_signals("b")
        assert not await ctx.has_signal("b")
        assert await ctx.check_cancellation() is False
        assert await ctx.remaining_budget() is None
        return [first, waits, drained]

    async with flovyn.connect(url) as client:
        handle = await client.start(reading)
        for value in (1, 2):
            await handle.signal("b", value)
        await handle.signal("a", "x")
        async with client.worker(agents=[reading]):
            assert await handle.result(timeout=10) == ["x", True, [1, 2]]


async def test_typed_signals(url: str) -> None:
    @agent
    async def typed(ctx: AgentContext) -> int:
        state = await ctx.wait_for_signal("state", Chat)
        assert isinstance(state, Chat)
        return state.turn

    async with flovyn.connect(url) as client, client.worker(agents=[typed]):
        handle = await client.start(typed)
        await handle.signal("state", Chat(turn=4))
        assert await handle.result(timeout=10) == 4


async def test_once_happens_once_across_checkpoints(url: str) -> None:
    made: list[str] = []

    async def plan(topic: str) -> list[str]:
        made.append(topic)
        return [await answer(topic)]

    @agent(state=Chat)
    async def planner(ctx: AgentContext[Chat]) -> Any:
        steps = await ctx.once("plan", plan, "otters")
        while ctx.state.turn < 3:
            if ctx.state.turn == 2:
                await ctx.wait_for_signal("go")
            else:
                await answer(str(ctx.state.turn))
            ctx.state.turn += 1
            await ctx.checkpoint()
        with pytest.raises(flovyn.OnceChanged):
            await ctx.once("plan", plan, "birds")
        return steps

    async with flovyn.connect(url) as client:
        async with client.worker(agents=[planner]):
            handle = await client.start(planner)
            while await handle.status() != "WAITING":
                await asyncio.sleep(0.01)
        await handle.signal("go")
        async with client.worker(agents=[planner]):
            assert await handle.result(timeout=10) == ["about otters"]
    assert made == ["otters"]


async def test_checkpoint_refuses_open_operations_and_wrong_types(url: str) -> None:
    @agent(state=Chat)
    async def hasty(ctx: AgentContext[Chat]) -> str:
        step = answer("x")
        with pytest.raises(flovyn.OpenOperations, match="answer"):
            await ctx.checkpoint()
        await step
        with pytest.raises(flovyn.WrongStateType):
            await ctx.checkpoint({"turn": 1})  # type: ignore[arg-type]
        await ctx.checkpoint(Chat(turn=1))
        return "ok"

    assert await flovyn.run_async(hasty, url=url) == "ok"


async def test_detached_task_is_attached_again(url: str) -> None:
    @agent(state=dict)
    async def detaching(ctx: AgentContext[dict[str, Any]]) -> Any:
        if "ref" not in ctx.state:
            step = answer.options(detached=True)("far")
            await ctx.checkpoint({"ref": step.ref})
        return await ctx.attach(ctx.state["ref"])

    assert await asyncio.wait_for(flovyn.run_async(detaching, url=url), 10) == "about far"


async def test_graceful_cancel(url: str) -> None:
    told: list[str] = []

    @task
    async def forever() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.append("task")
            raise

    @agent
    async def working(ctx: AgentContext) -> None:
        try:
            await forever()
        finally:
            told.append("agent")
            told.append(await answer("the end"))

    async with flovyn.connect(url) as client, client.worker(agents=[working]):
        handle = await client.start(working)
        await asyncio.sleep(0.2)
        await handle.cancel()
        with pytest.raises(flovyn.AgentCancelled):
            await handle.result(timeout=10)
    assert sorted(told) == ["about the end", "agent", "task"]


async def test_hard_cancel(url: str) -> None:
    @agent
    async def waiting(ctx: AgentContext) -> None:
        await ctx.wait_for_signal("never")

    async with flovyn.connect(url) as client, client.worker(agents=[waiting]):
        handle = await client.start(waiting)
        await asyncio.sleep(0.1)
        await handle.cancel("hard")
        with pytest.raises(flovyn.AgentCancelled):
            await handle.result(timeout=10)


async def test_streaming_tokens_and_events(url: str) -> None:
    @task
    async def speak(ctx: TaskContext) -> str:
        for word in ("a", "b"):
            ctx.stream_token(word)
            await asyncio.sleep(0.02)
        ctx.stream_data({"n": 1})
        ctx.report_progress(0.5, "half")
        await asyncio.sleep(0.02)
        return "ab"

    @agent
    async def speaker(ctx: AgentContext) -> str:
        ctx.stream_data({"from": "agent"})
        text = await speak()
        ctx.append_entry("assistant", {"text": text}, metadata={"n": 1})
        ctx.record_usage("m", 10, 5, cost_usd=0.25)
        return text

    async with flovyn.connect(url) as client, client.worker(agents=[speaker]):
        handle = await client.start(speaker)
        events = [event async for event in handle.stream()]
        assert [event.text for event in events if isinstance(event, flovyn.Token)] == ["a", "b"]
        assert {event.name for event in events if isinstance(event, flovyn.Data)} == {"data", "progress"}
        entries = [event for event in events if isinstance(event, flovyn.Entry)]
        assert [(entry.content, entry.metadata) for entry in entries] == [({"text": "ab"}, {"n": 1})]
        last = events[-1]
        assert isinstance(last, flovyn.Lifecycle) and last.name == "completed" and last.is_terminal
        assert [event async for event in handle.stream(after=last.id)] == []
        assert (await handle.describe()).usage["m"]["cost_micros"] == 250_000
        lines = [line async for line in handle.sse(after=events[-2].id)]
        assert len(lines) == 1 and lines[0].startswith(b"id: ") and b"event: agent.completed" in lines[0]


async def test_a_task_of_another_worker_is_watched_while_it_speaks(url: str) -> None:
    heard = asyncio.Event()

    @task
    async def speak(ctx: TaskContext, words: str) -> str:
        for word in words.split():
            ctx.stream_token(word)
        ctx.stream_data({"n": 1})
        ctx.report_progress(0.5, "half")
        await heard.wait()
        return words

    @agent
    async def asker(ctx: AgentContext) -> str:
        return await ctx.schedule_task("speak", "a b")

    async with (
        flovyn.connect(url) as client,
        client.worker(agents=[asker]),
        client.worker(tasks=[speak]),
    ):
        handle = await client.start(asker)
        seen: list[str] = []
        async for event in handle.stream():
            match event:
                case flovyn.Token():
                    seen.append(event.text)
                case flovyn.Data():
                    seen.append(event.name)
                    if event.name == "progress":
                        heard.set()  # so all of it was shown while the task ran
                case _:
                    pass
        assert seen == ["a", "b", "data", "progress"]
        assert await handle.result() == "a b"


async def test_progress_is_kept_with_the_task(url: str) -> None:
    @task
    async def copy(ctx: TaskContext) -> None:
        for n in range(100):
            ctx.report_progress(n / 198, "copying")
        await asyncio.sleep(3600)

    @agent
    async def copier(ctx: AgentContext) -> None:
        await copy()

    async with flovyn.connect(url) as client, client.worker(agents=[copier]):
        handle = await client.start(copier)
        tasks: list[Any] = []
        while not tasks or tasks[0]["progress"] is None:
            await asyncio.sleep(0.05)
            tasks = await handle.tasks()
        assert tasks[0]["progress"] == {"fraction": 0.5, "message": "copying"}


async def test_threads_of_a_conversation(url: str) -> None:
    @agent
    async def branching(ctx: AgentContext) -> Any:
        ctx.append_entry("user", "root")
        side = ctx.thread("side")
        side.append_entry("assistant", "aside")
        ctx.append_entry("assistant", "main")
        return [[m.content for m in await each.messages()] for each in (ctx, side)]

    assert await flovyn.run_async(branching, url=url) == [["root", "main"], ["root", "aside"]]


async def test_runs_are_listed(url: str) -> None:
    @agent
    async def listed(ctx: AgentContext, n: int) -> int:
        return n

    async with flovyn.connect(url) as client, client.worker(agents=[listed]):
        for n in range(3):
            await (await client.start(listed, n, metadata={"n": str(n)})).result(timeout=10)
        found = [run async for run in client.runs(status="COMPLETED", kind="listed")]
        assert len(found) == 3 and found[0].status == "COMPLETED"
        assert len([run async for run in client.runs(metadata={"n": "1"})]) == 1
        with pytest.raises(flovyn.ExecutionNotFound):
            await client.handle("nobody")


async def test_raw_bytes_are_payloads(url: str) -> None:
    @task
    async def flip(data: bytes) -> bytes:
        return data[::-1]

    @agent
    async def raw(ctx: AgentContext, data: bytes) -> bytes:
        return await flip(data)

    assert await flovyn.run_async(raw, b"\x00\xffabc", url=url) == b"cba\xff\x00"


async def test_large_values(url: str) -> None:
    @task
    async def grow(n: int) -> str:
        return "x" * n

    @agent
    async def large(ctx: AgentContext, text: str) -> int:
        return len(text) + len(await grow(300_000))

    assert await flovyn.run_async(large, "y" * 200_000, url=url) == 500_000


async def test_blobs_are_raw_payloads_from_files(url: str, tmp_path: Any) -> None:
    data = bytes(range(256)) * 2_000
    (tmp_path / "data.bin").write_bytes(data)

    @task
    async def load(path: str) -> Any:
        return flovyn.Blob.from_path(path)

    @agent
    async def blobs(ctx: AgentContext, given: bytes) -> int:
        loaded = await load(str(tmp_path / "data.bin"))
        assert loaded.read() == data
        return len(given)

    assert await flovyn.run_async(blobs, flovyn.Blob.from_path(tmp_path / "data.bin"), url=url) == len(data)


@dataclasses.dataclass
class Scan:
    name: str
    pages: list[flovyn.Blob]


async def test_blobs_inside_values_come_back_as_annotated(file_url: str, tmp_path: Any) -> None:
    (tmp_path / "page.bin").write_bytes(b"\xfb\xff")
    made = 0

    @task
    async def scan(name: str) -> Scan:
        nonlocal made
        made += 1
        return Scan(name, [flovyn.Blob(b"first"), flovyn.Blob.from_path(tmp_path / "page.bin")])

    @agent
    async def scans(ctx: AgentContext, cover: dict[str, flovyn.Blob]) -> Scan:
        found = await scan("letter")
        await ctx.wait_for_signal("go")
        assert found.pages[0].read() == b"first"
        return Scan(found.name, [*found.pages, cover["front"]])

    async with flovyn.connect(file_url) as client:
        async with client.worker(agents=[scans], tasks=[scan]):
            handle = await client.start(scans, {"front": flovyn.Blob(b"cover")}, id="scans")
            while await handle.status() != "WAITING":
                await asyncio.sleep(0.01)
        # Another worker enters the run again: the pages are what was stored.
        async with client.worker(agents=[scans], tasks=[scan]):
            await handle.signal("go")
            result = await handle.result(timeout=30)
        assert [page.read() for page in result.pages] == [b"first", b"\xfb\xff", b"cover"]
        assert made == 1
        # Whoever knows no annotation has their text.
        plain = await client.handle("scans")
        assert await plain.result() == {"name": "letter", "pages": ["Zmlyc3Q=", "+/8=", "Y292ZXI="]}


async def test_a_signal_now_cuts_a_model_call_short(url: str) -> None:
    begun = asyncio.Event()
    cancelled: list[int] = []

    @task(interruptible=True)
    async def model(ctx: TaskContext, question: str) -> str:
        for word in ("once ", "upon "):
            ctx.stream_token(word)
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(ctx.attempt)
            ctx.stream_token("too late")
            raise
        return "the end"

    @agent
    async def teller(ctx: AgentContext) -> list[Any]:
        said = await model("a story?")
        return [said, await ctx.drain_signals("steer")]

    async with flovyn.connect(url) as client, client.worker(agents=[teller]):
        handle = await client.start(teller)
        await asyncio.wait_for(begun.wait(), 10)
        await handle.signal("steer", "shorter", delivery="now")
        assert await handle.result(timeout=10) == ["once upon ", ["shorter"]]
        assert cancelled == [1]
        (only,) = await handle.tasks()
        assert (only["status"], only["attempt"]) == ("COMPLETED", 1)


def test_an_interruptible_task_streams() -> None:
    with pytest.raises(flovyn.InvalidArgument, match="TaskContext"):

        @task(interruptible=True)
        async def silent(question: str) -> str:
            return question


async def test_a_kind_that_nobody_serves_is_described(url: str) -> None:
    @agent
    async def far(ctx: AgentContext) -> Any:
        return await ctx.schedule_task("elsewhere", 1)

    async with flovyn.connect(url) as client, client.worker(agents=[far]):
        handle = await client.start(far)
        while (await handle.status()) != "WAITING":
            await asyncio.sleep(0.02)
        assert (await handle.describe()).no_worker == [{"kind": "elsewhere", "queue": "default"}]


async def test_of_the_runs_of_a_key_a_few_advance_at_a_time(url: str) -> None:
    now, most = 0, 0

    @task
    async def a_moment(n: int) -> int:
        await asyncio.sleep(0.02)
        return n

    @agent
    async def crowded(ctx: AgentContext) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await a_moment(1)
        now -= 1

    async with flovyn.connect(url) as client, client.worker([crowded]):
        runs = [await client.start(crowded, concurrency_key="crowd", concurrency_limit=2) for _ in range(6)]
        for handle in runs:
            await handle.result(timeout=20)
        assert most == 2
        with pytest.raises(flovyn.InvalidArgument, match="concurrency key"):
            await client.start(crowded, concurrency_limit=2)
        with pytest.raises(flovyn.InvalidArgument, match="limit of 0"):
            await client.start(crowded, concurrency_key="crowd", concurrency_limit=0)
