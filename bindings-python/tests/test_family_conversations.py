"""What a child is given of the conversation of its parent, and what its parent sees of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, SyncAgentContext, agent


def said(messages: list[flovyn.Message]) -> list[Any]:
    return [message.content for message in messages]


@agent
async def reader(ctx: AgentContext, name: str) -> Any:
    before = said(await ctx.messages())
    ctx.append_entry("assistant", f"{name} 1")
    await ctx.sleep(0.01)
    ctx.append_entry("assistant", f"{name} 2")
    return [before, said(await ctx.messages()), ctx.shared_context]


@agent(state=dict)
async def lead(ctx: AgentContext[dict[str, Any]]) -> Any:
    """Go through a checkpoint and a wait, so that all of it is also read by another process."""
    if not ctx.state:
        ctx.append_entry("user", "a question")
        seen, unseen = (
            ctx.spawn_agent(reader, "seen", shared_context="conversation"),
            ctx.spawn_agent(reader, "unseen", shared_context="read_only"),
        )
        alone = ctx.spawn_agent(reader, "alone", shared_context={"tone": "dry", "n": [1, None]})
        ctx.append_entry("user", "meanwhile")
        told = await ctx.join_children(seen, unseen, alone)
        ctx.state = {"told": told, "ids": [str(child.id) for child in (seen, unseen, alone)]}
        await ctx.checkpoint()
    await ctx.wait_for_signal("go")
    threads = [said(await ctx.thread(id).messages()) for id in ctx.state["ids"]]
    side = ctx.thread(ctx.state["ids"][0])
    side.append_entry("user", "thanks")
    return {
        **ctx.state,
        "threads": threads,
        "side": said(await side.messages()),
        "main": said(await ctx.messages()),
    }


ASKED, MEANWHILE = ["a question"], ["a question", "meanwhile"]


@pytest.mark.parametrize("parked", [None, 0])
@pytest.mark.parametrize("backend", ["memory", "sqlite"])
async def test_a_child_goes_on_from_the_conversation_of_its_parent(
    backend: str, parked: int | None, tmp_path: Path
) -> None:
    url = "memory:" if backend == "memory" else f"sqlite:{tmp_path / 'runs.db'}"
    async with flovyn.connect(url) as client:
        async with client.worker([lead, reader], max_parked=parked):
            handle = await client.start(lead)
            while (await handle.describe()).waits_for != ["go"]:
                await asyncio.sleep(0.01)
        async with client.worker([lead, reader]):
            await handle.signal("go", None)
            found = await handle.result(timeout=30)
        lines = {name: [f"{name} 1", f"{name} 2"] for name in ("seen", "unseen", "alone")}
        assert found["told"] == [
            [ASKED, ASKED + lines["seen"], "conversation"],
            [ASKED, ASKED + lines["unseen"], "read_only"],
            [[], lines["alone"], {"tone": "dry", "n": [1, None]}],
        ]
        assert found["threads"] == [ASKED + lines["seen"], MEANWHILE, MEANWHILE]
        assert found["side"] == [*ASKED, *lines["seen"], "thanks"]
        assert found["main"] == MEANWHILE
        # A reader sees what the child was given, and what it has said.
        for child, wanted in zip(found["ids"], lines, strict=True):
            shown = said(await (await client.handle(child)).messages())
            assert shown == ([] if wanted == "alone" else ASKED) + lines[wanted]


def test_a_thread_gives_what_it_has() -> None:
    @agent
    def reads(ctx: SyncAgentContext) -> list[Any]:
        return said(ctx.messages())

    @agent
    def parent(ctx: SyncAgentContext) -> Any:
        ctx.append_entry("user", "main")
        side = ctx.thread("side")
        side.append_entry("user", "aside")
        child = side.spawn_agent(reads, shared_context="read_only")
        return [child.result(), ctx.spawn_agent(reads, shared_context="conversation").result()]

    assert flovyn.run(parent, url="memory:") == [["main", "aside"], ["main"]]


def test_a_grandchild_has_all_that_was_said_above_it() -> None:
    @agent
    async def deep(ctx: AgentContext, depth: int) -> Any:
        ctx.append_entry("user", depth)
        if depth == 3:
            return said(await ctx.messages())
        return await ctx.spawn_agent(deep, depth + 1, shared_context="read_only")

    assert flovyn.run(deep, 0, url="memory:") == [0, 1, 2, 3]


@pytest.mark.parametrize("wrong", ["everything", "", 7, ["read_only"], {"long": "x" * 70_000}])
def test_what_cannot_be_shared_is_refused(wrong: Any) -> None:
    @agent
    async def parent(ctx: AgentContext) -> str:
        with pytest.raises(flovyn.InvalidArgument, match="shared_context"):
            ctx.spawn_agent(reader, "never", shared_context=wrong)
        return "told"

    assert flovyn.run(parent, url="memory:") == "told"


def test_a_run_that_nobody_started_shares_nothing() -> None:
    @agent
    async def alone(ctx: AgentContext) -> Any:
        return ctx.shared_context

    assert flovyn.run(alone, url="memory:") is None
