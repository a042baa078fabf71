"""Code that is loaded again in a process that lives on: ``shared`` serves its newest functions."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, NamedTuple

import flovyn
import pytest
from flovyn import Agent, AgentContext, InvalidArgument, Task, agent, task
from flovyn.testing import fake_llm, tool_call, turn
from flovyn.toolkit import ReactAgent, react_agent, tool


class Loaded(NamedTuple):
    """What a module or a cell declares."""

    says: Task[[], str]
    greets: Agent[None, list[str]]
    waits: Agent[None, list[Any]]
    works: Agent[None, str]


def loaded(edition: str) -> Loaded:
    """Declare all of it, as each load does."""

    @task
    async def says() -> str:
        return edition

    @agent
    async def greets(ctx: AgentContext) -> list[str]:
        return [edition, await says()]

    @agent
    async def waits(ctx: AgentContext) -> list[Any]:
        return [edition, await ctx.wait_for_signal("go")]

    @agent
    async def works(ctx: AgentContext) -> str:
        while not await ctx.has_signal("go"):
            await says()
        return edition

    return Loaded(says, greets, waits, works)


async def test_what_is_loaded_again_is_served_and_no_run_is_left_behind(file_url: str) -> None:
    first = loaded("first")
    client = await flovyn.shared(file_url, agents=[first.greets, first.waits, first.works])
    async with client:
        assert await (await client.start(first.greets)).result(20) == ["first", "first"]
        waiting = await client.start(first.waits)
        while await waiting.status() != "WAITING":
            pass
        working = await client.start(first.works)
        while len(await working.tasks()) < 3:
            pass
        for edition in ("second", "third"):
            new = loaded(edition)
            assert await flovyn.shared(file_url, agents=[new.greets, new.waits, new.works]) is client
            assert await (await client.start("greets")).result(20) == [edition, edition]
        await waiting.signal("go", 1)
        assert await waiting.result(20) == ["third", 1]
        await working.signal("go")
        assert await working.result(20) == "first"


async def test_cells_that_run_side_by_side_are_served_by_one_worker(file_url: str) -> None:
    def named(name: str) -> Agent[None, str]:
        @agent(kind=name)
        async def one(ctx: AgentContext) -> str:
            return name

        return one

    agents = [named(name) for name in ("one", "two", "three")]
    client, *others = await asyncio.gather(*(flovyn.shared(file_url, agents=[each]) for each in agents))
    async with client:
        assert all(other is client for other in others)
        assert [await (await client.start(each)).result(20) for each in agents] == ["one", "two", "three"]
        with pytest.raises(InvalidArgument):
            await flovyn.shared(file_url, agents=[loaded("no").greets, "greets"])  # type: ignore[list-item]
    async with await flovyn.shared(file_url, agents=[loaded("anew").greets]) as again:
        assert again is not client
        assert await (await again.start("greets")).result(20) == ["anew", "anew"]


def test_a_loop_that_was_closed_holds_no_run(file_url: str) -> None:
    async def leave() -> None:
        first = loaded("first")
        client = await flovyn.shared(file_url, agents=[first.waits])
        handle = await client.start(first.waits, id="w")
        while await handle.status() != "WAITING":
            pass

    async def go_on() -> None:
        async with await flovyn.shared(file_url, agents=[loaded("second").waits]) as client:
            handle = await client.handle("w")
            await handle.signal("go", 2)
            assert await handle.result(20) == ["second", 2]

    asyncio.run(leave())
    asyncio.run(go_on())


def assistant(edition: str) -> ReactAgent:
    """Declare an agent of the toolkit with a tool, as a load does."""

    @task(kind="says")
    async def says() -> str:
        return edition

    asked = tool(says, description=f"The edition is {edition}.", effect="read")
    return react_agent("assistant", model=f"fake/{edition}", system_prompt=edition, tools=[asked], mode="chat")


async def test_agents_of_the_toolkit_are_replaced_too(file_url: str) -> None:
    first, second = loaded("first"), loaded("second")
    with fake_llm([tool_call("says"), turn("Said."), tool_call("says"), turn("Said again.")]) as fake:

        def models() -> list[str]:
            return [call.body["model"] for call in fake.calls]

        async def waits(handle: flovyn.Handle[Any], paid: int) -> None:
            while fake.paid < paid or await handle.status() != "WAITING":
                await asyncio.sleep(0.001)

        client = await flovyn.shared(file_url, agents=[first.greets])
        async with client:
            # The first one of the toolkit comes with a later call.
            await flovyn.shared(file_url, agents=[assistant("first"), react_agent("other", model="fake/other")])
            waiting = await client.start("assistant", "Which?")
            await waits(waiting, 2)
            assert models() == ["first", "first"] and "first" in str(fake.calls[-1].body["messages"])
            await flovyn.shared(file_url, agents=[assistant("second"), second.greets])
            assert await (await client.start("greets")).result(20) == ["second", "second"]
            again = await client.start("assistant", "Which?")
            await waits(again, 4)
            assert models()[2:] == ["second", "second"] and "second" in str(fake.calls[-1].body["messages"])
            # What waits goes on with the tools of the new one; model and prompt are what it was started with.
            await waiting.signal("userMessage", {"text": "And now?"}, delivery="next_turn")
            await waits(waiting, 6)
            assert models()[4:] == ["first", "first"] and "second" in str(fake.calls[-1].body["messages"])
            assert [each["description"] for each in fake.calls[-1].body["tools"]] == ["The edition is second."]
            for handle in (waiting, again):
                await handle.cancel("hard")
            # What cannot be served replaces nothing, and what nobody has named again stays.
            with pytest.raises(InvalidArgument, match='there is no tool "reed"'):
                await flovyn.shared(file_url, agents=[react_agent("assistant", tools=["reed"]), first.greets])
            assert await (await client.start("greets")).result(20) == ["second", "second"]
            with pytest.raises(InvalidArgument, match=r"agent 'greets' is of the toolkit.*a function"):
                await flovyn.shared(file_url, agents=[react_agent("greets")])
            other = await client.start("other", "Are you there?")
            await other.result(20)
            assert models()[-1] == "other"


async def test_a_tool_that_goes_on_while_its_agent_is_replaced_ends_in_the_old_one(
    file_url: str, tmp_path: Path
) -> None:
    (tmp_path / "server.py").write_text(SLOW_SERVER)
    script = [tool_call("mcp__slow__wait", {"file": str(tmp_path / "go")}), turn("Waited.")]

    def made(edition: str) -> ReactAgent:
        servers = {"slow": {"command": sys.executable, "args": [str(tmp_path / "server.py"), edition, str(tmp_path)]}}
        return react_agent(model="fake/x", tools=["mcp__slow__*"], mcp_servers=servers)

    def told(name: str) -> set[str]:
        return {path.name for path in tmp_path.glob(f"{name}-*")}

    with fake_llm(script) as fake:
        async with await flovyn.shared(file_url, agents=[made("old")]) as client:
            handle = await client.start("react-agent", "Wait.")
            while not told("called"):
                await asyncio.sleep(0.001)
            assert told("began") == {"began-old"}
            await flovyn.shared(file_url, agents=[made("new")])
            assert told("began") == {"began-old", "began-new"} and not told("ended")
            (tmp_path / "go").touch()
            assert (await handle.result(20))["text"] == "Waited."
            assert "waited in old" in str(fake.calls[-1].body["messages"])
            while told("ended") != {"ended-old"}:
                await asyncio.sleep(0.001)
            # The same description is not opened again.
            await flovyn.shared(file_url, agents=[made("new")])
            assert told("ended") == {"ended-old"}


SLOW_SERVER = r"""
import json, os, sys, time
edition, folder = sys.argv[1], sys.argv[2]
def note(what): open(os.path.join(folder, f"{what}-{edition}"), "w").close()
def tell(id, result): print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
note("began")
for line in sys.stdin:
    asked = json.loads(line)
    method, id = asked.get("method"), asked.get("id")
    if method == "initialize":
        version = asked["params"]["protocolVersion"]
        info = {"name": "s", "version": "1"}
        tell(id, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
        tell(id, {"tools": [{"name": "wait", "description": "Waits.", "inputSchema": schema,
                             "annotations": {"readOnlyHint": True}}]})
    elif method == "tools/call":
        note("called")
        while not os.path.exists(asked["params"]["arguments"]["file"]):
            time.sleep(0.001)
        tell(id, {"content": [{"type": "text", "text": f"waited in {edition}"}]})
    elif id is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}), flush=True)
note("ended")
"""
