"""What a client and a handle reach: values of a run, its conversation with its place, listings, schedules, queues."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, agent, connect_sync, task
from flovyn.events import Data, Event, Token


@dataclass
class Answer:
    text: str


@dataclass
class Chat:
    turn: int = 0


@agent
async def answers(ctx: AgentContext, question: str) -> Answer:
    return Answer(question + "!")


@agent(state=Chat)
async def chat(ctx: AgentContext[Chat], name: str) -> int:
    while True:
        text = await ctx.wait_for_signal("say")
        ctx.append_entry("user", text)
        ctx.stream_token(f"{text}, ")
        ctx.stream_token("you say")
        ctx.append_entry("assistant", f"{text}, you say")
        ctx.state.turn += 1
        await ctx.checkpoint()
        if text == "bye":
            return ctx.state.turn


async def turns(handle: Any, count: int) -> None:
    while len(await handle.checkpoints()) < count:
        await asyncio.sleep(0.005)


async def test_values_of_a_run(anywhere: str) -> None:
    async with flovyn.connect(anywhere) as client:
        handle = await client.start(answers, "why", id="a")
        assert (await handle.input(), await handle.output(), await handle.state()) == ("why", None, None)
        async with client.worker(agents=[answers, chat]):
            assert await handle.result(timeout=30) == Answer("why!")
            assert await handle.output() == Answer("why!")
            typed = await client.handle("a", answers)
            assert (await typed.result(timeout=30)).text == "why!"

            talk = await client.start(chat, "n")
            for n, text in enumerate(["hello", "bye"], 1):
                await talk.signal("say", text)
                await turns(talk, n)
            assert await talk.result(timeout=30) == 2
            assert (await talk.state(), await talk.state(1), await talk.state(9)) == ({"turn": 2}, {"turn": 1}, None)
            assert [each.state for each in await talk.checkpoints(states=True)] == [{"turn": 1}, {"turn": 2}]
            assert "state" not in (await talk.checkpoints())[0]


async def test_a_conversation_and_the_stream_behind_it(anywhere: str) -> None:
    """A snapshot and what follows: nothing twice, nothing left out, wherever the snapshot was taken."""
    async with flovyn.connect(anywhere) as client, client.worker(agents=[chat]):
        handle = await client.start(chat, "n")
        snapshots: list[Any] = []

        async def look() -> None:
            while True:
                snapshots.append(await handle.messages())
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        for n in range(1, 6):
            await handle.signal("say", f"say {n}")
            await turns(handle, n)
        await handle.signal("say", "bye")
        await handle.result(timeout=30)
        looking.cancel()
        whole = [message.id for message in await handle.messages()]
        assert len(whole) == 12 and len(snapshots) > 2
        for snapshot in snapshots[:: max(1, len(snapshots) // 20)]:
            after = [event.entry_id async for event in handle.stream(after=snapshot.position) if event.type == "entry"]
            assert [message.id for message in snapshot] + after == whole


async def test_what_is_shown_is_exact(anywhere: str) -> None:
    async with flovyn.connect(anywhere) as client, client.worker(agents=[chat]):
        handle = await client.start(chat, "n")
        shown: list[Token | Data] = []
        said: list[str] = []
        most = 0
        await handle.signal("say", "bye")
        async for event in handle.stream():
            shown = [preview for preview in shown if not event.replaces(preview)]
            said += told(event)
            if isinstance(event, (Token, Data)):
                shown.append(event)
                assert event.op.startswith(str(handle.id))
            most = max(most, len(shown))
        assert most <= 2 and shown == []
        assert said[-3:] == ["user: bye", "assistant: bye, you say", "completed with 1"]


def told(event: Event) -> list[str]:
    """Tell of an event by its type: type checkers know which one it is."""
    if event.type == "entry":
        return [f"{event.role}: {event.content}"]
    if event.type == "token":
        return [event.text] if event.attempt else []
    if event.type == "retract":
        return [event.op]
    if event.type == "lifecycle" and event.is_terminal:
        return [f"{event.name} with {event.result}"]
    return []


async def test_a_task_that_ends_replaces_what_it_has_streamed(url: str) -> None:
    @task(retries=1, retry=flovyn.Retry(delay=0.0))
    async def speaks(ctx: flovyn.TaskContext) -> str:
        ctx.stream_token(f"try {ctx.attempt}")
        await asyncio.sleep(0.05)
        if ctx.attempt == 1:
            raise OSError("again")
        return "done"

    @agent
    async def caller(ctx: AgentContext) -> str:
        return await speaks()

    async with flovyn.connect(url) as client, client.worker(agents=[caller]):
        handle = await client.start(caller)
        voided: list[str] = []
        shown: list[Token | Data] = []
        async for event in handle.stream():
            voided += [event.type for preview in shown if event.replaces(preview)]
            shown = [preview for preview in shown if not event.replaces(preview)]
            if isinstance(event, (Token, Data)):
                shown.append(event)
        assert voided == ["retract", "lifecycle"]


async def test_a_try_in_place_takes_back_what_the_last_one_has_streamed(anywhere: str) -> None:
    tries = 0

    async def speaks(ctx: flovyn.TaskContext) -> str:
        nonlocal tries
        tries += 1
        for word in (f"try {tries}", " and", " more"):
            ctx.stream_token(word)
            await asyncio.sleep(0.02)
        if tries < 3:
            raise OSError("again")
        return "done"

    @agent
    async def caller(ctx: AgentContext) -> str:
        return await ctx.run("speaks", speaks, retries=2, retry=flovyn.Retry(delay=0.0))

    async with flovyn.connect(anywhere) as client, client.worker(agents=[caller]):
        handle = await client.start(caller)
        shown: list[Token] = []
        last = ""
        async for event in handle.stream():
            shown = [preview for preview in shown if not event.replaces(preview)]
            if isinstance(event, Token):
                shown.append(event)
                last = "".join(token.text for token in shown)
        assert last == "try 3 and more"
        assert shown == []


async def test_runs_are_filtered(anywhere: str) -> None:
    async with flovyn.connect(anywhere) as client:
        before = datetime.now(timezone.utc) - timedelta(seconds=5)
        for n, queue in enumerate(["default", "gpu", "gpu"]):
            await client.start("k", n, id=f"r{n}", queue=queue, metadata={"n": str(n % 2), "agentDefinition": f"d{n}"})
        after = datetime.now(timezone.utc) + timedelta(seconds=5)

        async def keys(**filters: Any) -> list[str]:
            return sorted([run.key async for run in client.runs(**filters)])

        assert await keys(queue="gpu") == ["r1", "r2"]
        assert await keys(queue="gpu", metadata={"n": "0"}) == ["r2"]
        assert await keys(status=["PENDING", "RUNNING"], kind="k", limit=1) == ["r0", "r1", "r2"]
        assert await keys(created_from=before, created_until=after.timestamp()) == ["r0", "r1", "r2"]
        assert await keys(created_from=after) == await keys(created_until=before) == []
        assert await keys(definition="d1") == ["r1"]
        assert await keys(parent="r0") == await keys(root="r0") == []
        with pytest.raises(flovyn.InvalidArgument, match="ASLEEP"):
            await keys(status="ASLEEP")


async def test_schedules(anywhere: str) -> None:
    async with flovyn.connect(anywhere) as client:
        made = await client.create_schedule(
            "digest", answers, "what", cron="0 8 * * MON-FRI", timezone="Europe/Paris", metadata={"of": "me"}
        )
        assert (made.id, made.kind, made.input, made.metadata) == ("digest", "answers", "what", {"of": "me"})
        assert made.next_at > made.created_at
        await client.create_schedule("digest", "answers", "else", cron="@daily", priority=3)
        await client.create_schedule("other", answers, "what", cron="@hourly", concurrency_key="k")
        assert [each.id async for each in client.schedules()] == ["digest", "other"]
        again = await client.schedule("digest")
        assert (again.input, again.cron, again.priority, again.timezone) == ("else", "@daily", 3, None)
        resting = await client.pause_schedule("digest")
        assert (resting.paused, resting.next_at, resting.cron) == (True, None, "@daily")
        going = await client.resume_schedule("digest")
        assert going.paused is False and going.next_at > going.created_at
        await client.delete_schedule("digest")
        with pytest.raises(flovyn.NotFound):
            await client.schedule("digest")
        with pytest.raises(flovyn.InvalidArgument):
            await client.create_schedule("x", "k", cron="never")
        with pytest.raises(flovyn.InvalidArgument):
            await client.create_schedule("x", answers, cron="@daily")


async def test_queues_and_workers(anywhere: str) -> None:
    async with flovyn.connect(anywhere) as client:
        await client.start(answers, "a")
        await client.start(answers, "b", queue="gpu")
        loads = {(each.queue, each.kind): (each.queued, each.served) for each in await client.queues()}
        assert loads == {("default", "answers"): (1, False), ("gpu", "answers"): (1, False)}
        await client.limit_queue("gpu", concurrency=2, rate=(60, 30.0))
        assert await client.queue_limits() == [{"queue": "gpu", "concurrency": 2, "runs": 60, "seconds": 30.0}]
        await client.limit_queue("gpu")
        assert await client.queue_limits() == []
        with pytest.raises(flovyn.InvalidArgument):
            await client.limit_queue("gpu", concurrency=0)
        assert [each async for each in client.workers()] == []
        async with client.worker(agents=[answers], queue="gpu"):
            known = [each async for each in client.workers()]
            assert [each.queues for each in known] == [["gpu"]]
            assert known[0].alive_until >= known[0].seen_at


def test_blocking_code_reaches_the_same(url: str) -> None:
    with connect_sync(url) as client, client.worker(agents=[answers, chat]):
        handle = client.start(answers, "why", id="a")
        assert handle.result(timeout=30) == Answer("why!")
        assert (handle.input(), handle.output(), handle.state()) == ("why", Answer("why!"), None)
        assert handle.messages().position != ""
        assert handle.checkpoints(states=True) == []
        assert [run.key for run in client.runs(queue="default")] == ["a"]
        client.create_schedule("s", answers, "x", cron="@daily")
        assert [each.id for each in client.schedules()] == ["s"] == [client.schedule("s").id]
        assert client.pause_schedule("s").next_at is None and client.resume_schedule("s").next_at
        client.delete_schedule("s")
        client.limit_queue("default", concurrency=5)
        assert [each.concurrency for each in client.queue_limits()] == [5]
        assert {each.kind for each in client.queues()} == {"answers", "chat"}
        assert len(list(client.workers())) == 1
        client.delete("a")
        with pytest.raises(flovyn.ExecutionNotFound):
            handle.delete()


async def test_a_task_by_its_kind_runs_in_the_queue_that_is_named(url: str) -> None:
    @task
    async def queued(n: int) -> int:
        return n + 1

    @agent
    async def caller(ctx: AgentContext) -> int:
        with pytest.raises(flovyn.InvalidArgument, match="one input"):
            ctx.schedule_task("queued", n=1)  # pyright: ignore[reportCallIssue]
        return await ctx.schedule_task("queued", 1, queue="gpu", timeout=30.0)

    async with flovyn.connect(url) as client, client.worker(agents=[caller]):
        handle = await client.start(caller)
        while not await handle.tasks():
            await asyncio.sleep(0.005)
        async with client.worker(tasks=[queued], queue="gpu"):
            assert await handle.result(timeout=30) == 2
        assert [each.queue for each in await handle.tasks()] == ["gpu"]


async def test_a_run_that_has_ended_is_removed(anywhere: str) -> None:
    async with flovyn.connect(anywhere) as client, client.worker(agents=[answers, chat]):
        living = await client.start(chat, "n", id="living")
        with pytest.raises(flovyn.InvalidTransition, match="cancel it first"):
            await living.delete()
        handle = await client.start(answers, "why", id="a")
        await handle.result(timeout=30)
        fork = await handle.fork(id="b")
        with pytest.raises(flovyn.InvalidTransition, match="remove the fork first"):
            await client.delete("a")
        await fork.result(timeout=30)
        await fork.delete()
        await client.delete("a")
        with pytest.raises(flovyn.ExecutionNotFound):
            await client.handle("a")
        assert [run.key async for run in client.runs()] == ["living"]
        # The id is free again, for another input too.
        again = await client.start(answers, "else", id="a")
        assert await again.result(timeout=30) == Answer("else!")
