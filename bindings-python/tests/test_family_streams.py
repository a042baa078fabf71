"""How a family is looked at: what its runs have used together, and one stream of all their events."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import flovyn
import pytest
from flovyn import AgentContext, agent
from flovyn.events import Event, Token


@agent
async def reads(ctx: AgentContext, topic: str) -> str:
    ctx.record_usage("small", 100, cost_usd=0.5)
    ctx.append_entry("assistant", topic)
    ctx.stream_token(f"thinking of {topic}")
    return f"{topic} {await ctx.wait_for_signal('go')}"


@agent
async def leads(ctx: AgentContext, topics: list[str]) -> list[str]:
    ctx.record_usage("large", 1)
    return await asyncio.gather(*(ctx.spawn_agent(reads, topic) for topic in topics))


def is_kept(event: Event) -> bool:
    return event.type in ("lifecycle", "entry", "usage")


async def test_family_12_streams_multiplex(anywhere: str) -> None:
    async with flovyn.connect(anywhere) as client, client.worker(agents=[leads]):
        handle = await client.start(leads, ["otters", "seals"])
        seen: list[Event] = []
        async for event in handle.stream(children=True):
            seen.append(event)
            if sum(event.type == "entry" for event in seen) == 2:
                break
        # It goes on behind any event, here while the children end.
        children = {event.run for event in seen if event.depth == 1}
        assert len(children) == 2
        for child in children:
            await (await client.handle(child)).signal("go", "now")
        seen += [event async for event in handle.stream(after=seen[-1].id, children=True)]
        own = [event async for event in handle.stream()]

        numbers: defaultdict[object, list[str]] = defaultdict(list)
        for event in filter(is_kept, seen):
            assert event.depth == (0 if event.run == handle.id else 1)
            numbers[event.run].append(event.id)
        for run in {handle.id, *children}:
            alone = [event async for event in (await client.handle(run)).stream() if is_kept(event)]
            assert len(numbers[run]) == len(alone), f"each event of {run} once"
        assert all(event.run == handle.id and event.depth is None for event in own)
        ends = {event.run: event.result for event in seen if event.type == "lifecycle" and event.is_terminal}
        assert sorted(ends.pop(handle.id)) == ["otters now", "seals now"]
        assert sorted(ends.values()) == ["otters now", "seals now"]
        # Behind any of them what is left comes, and nothing else.
        kept = list(filter(is_kept, seen))
        for place, event in enumerate(kept):
            rest = [other async for other in handle.stream(after=event.id, children=True) if is_kept(other)]
            assert len(rest) == len(kept) - place - 1
        with pytest.raises(flovyn.InvalidArgument, match="no cursor"):
            _ = [event async for event in handle.stream(after="1~x", children=True)]
        sent = b"".join([sent async for sent in handle.sse(children=True)])
        assert sent.count(b"event: agent.completed") == 3 and b'"depth":1' in sent


async def test_family_09_usage_rolls_up(anywhere: str) -> None:
    async with flovyn.connect(anywhere) as client, client.worker(agents=[leads]):
        handle = await client.start(leads, ["otters", "seals"])
        async for event in handle.stream(children=True):
            if event.type == "lifecycle" and event.name == "waiting" and event.depth == 1:
                await (await client.handle(event.run or "")).signal("go", "now")
        run = await handle.describe()
        assert list(run.usage) == ["large"] and run.depth == 0
        assert (run.total_usage["calls"], run.total_usage["input_tokens"]) == (3, 201)
        assert run.total_usage["cost_micros"] == 1_000_000
        assert (run.child_count, run.descendant_count) == (2, 2)
        async for child in client.runs(parent=handle.id):
            below = await (await client.handle(child.id)).describe()
            assert (below.total_usage["input_tokens"], below.child_count, below.depth) == (100, 0, 1)
        assert [run.id async for run in client.runs(roots=True)] == [str(handle.id)]
        words = f"{str(handle.id).upper()} default"
        assert [run.id async for run in client.runs(search=words)] == [str(handle.id)]
        assert [run.id async for run in client.runs(search=f"{words} nobody")] == []


def test_an_event_takes_the_place_of_previews_of_its_own_run() -> None:
    from uuid import uuid4

    one, other = uuid4(), uuid4()
    shown = [Token("1", "a", f"{run}-0-1", run=run, depth=1) for run in (one, other)]
    for event in (flovyn.events.Gap("1", run=one), flovyn.events.Retract("1", f"{one}-0-1", run=one)):
        assert [event.replaces(preview) for preview in shown] == [True, False]
