"""Model calls by way of the parent: its workers have the models, the child has none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, NoParent
from flovyn.testing import fake_llm, tool_call, turn
from flovyn.toolkit import Provider, RunInput, Toolkit, llm, react_agent, tool


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FLOVYN_HOME", str(tmp_path / "home"))
    yield


@flovyn.task
def look(at: str) -> str:
    """Look at something."""
    return f"{at} are there"


@flovyn.agent
async def hand(ctx: AgentContext, about: str) -> str:
    ctx.append_entry("user", about)
    return (await llm.generate(ctx.context_ref(), model="boss/m", via="parent")).text


otter = react_agent("otter", tools=[tool(look, effect="read")])


@flovyn.agent
async def lead(ctx: AgentContext) -> list[Any]:
    with pytest.raises(NoParent):
        await llm.generate("Hello?", model="boss/m", via="parent")
    said = await ctx.spawn_agent("hand", "What are otters?", queue="far")
    given = RunInput("Look at otters.", model="boss/m", via="parent").describe()
    worked = await ctx.spawn_agent("otter", given, queue="far")
    return [said, worked["text"]]


async def test_family_14_a_child_asks_models_by_way_of_its_parent(url: str) -> None:
    script = [
        turn("Animals.").when(last_user_contains="What are otters?"),
        tool_call("look", {"at": "otters"}),
        turn("They are there."),
    ]
    with fake_llm(script) as fake:
        boss = Toolkit(providers={"boss": Provider(api="anthropic-messages", base_url=fake.url)})
        async with (
            flovyn.connect(url) as client,
            client.worker(agents=[lead], toolkit=boss),
            client.worker(agents=[hand, otter], queue="far"),
        ):
            run = await client.start(lead)
            assert await run.result(timeout=60) == ["Animals.", "They are there."]
        assert len(fake.calls) == 3


async def test_nobody_else_can_be_asked(url: str) -> None:
    @flovyn.agent
    async def asks(ctx: AgentContext) -> str:
        with pytest.raises(flovyn.InvalidArgument, match="via="):
            llm.generate("Hello?", model="boss/m", via="sister")  # pyright: ignore[reportArgumentType, reportCallIssue]
        return "refused"

    async with flovyn.connect(url) as client, client.worker(agents=[asks]):
        assert await (await client.start(asks)).result(timeout=60) == "refused"
