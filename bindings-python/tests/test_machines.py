"""Where runs work: a machine is a queue of its own, which only a server looks up."""

from __future__ import annotations

from typing import Any

import flovyn
import pytest


@flovyn.agent
async def hands(ctx: flovyn.AgentContext, task: str) -> str:
    return f"did {task}"


@flovyn.agent
async def brain(ctx: flovyn.AgentContext, machine: str | None) -> Any:
    try:
        return await ctx.spawn_agent("hands", "it", mode=flovyn.Local(machine))
    except flovyn.InvalidArgument as refused:
        return str(refused)


@flovyn.agent
async def giver(ctx: flovyn.AgentContext, machine: str) -> str:
    await ctx.handoff_to_agent("hands", "all", mode=flovyn.Local(machine))
    return "unreached"


async def test_a_child_and_a_run_go_to_the_machine_that_is_named() -> None:
    async with (
        flovyn.connect("memory:") as client,
        client.worker(agents=[brain, giver]),
        client.worker(agents=[hands], queue="machine/laptop"),
    ):
        assert await (await client.start(brain, "laptop")).result(30) == "did it"
        assert await (await client.start(giver, "laptop")).result(30) == "did all"
        handle = await client.start(hands, "more", mode=flovyn.Local("laptop"))
        assert await handle.result(30) == "did more"
        facts = await handle.describe()
        assert (facts.queue, facts.machine["name"], facts.machine["seen_at"]) == ("machine/laptop", "laptop", None)
        plain = await client.start(brain, "laptop", mode=flovyn.Remote())
        assert (await plain.describe()).machine is None


async def test_a_machine_without_a_name_needs_a_server() -> None:
    async with flovyn.connect("memory:") as client, client.worker(agents=[brain]):
        told = await (await client.start(brain, None)).result(30)
        assert "no machine was named" in told
        with pytest.raises(flovyn.InvalidArgument, match="no machine was named"):
            await client.start(hands, "it", mode=flovyn.Local())


async def test_a_machine_has_a_queue_of_its_own() -> None:
    async with flovyn.connect("memory:") as client:
        with pytest.raises(flovyn.InvalidArgument, match="not both"):
            await client.start(hands, "it", mode=flovyn.Local("laptop"), queue="gpu")
        with pytest.raises(flovyn.InvalidArgument, match="takes Local"):
            await client.start(hands, "it", mode="laptop")  # type: ignore[arg-type]


async def test_who_waits_too_long_is_told_for_which_machine() -> None:
    async with flovyn.connect("memory:") as client:
        handle = await client.start(hands, "it", mode=flovyn.Local("laptop"))
        with pytest.raises(flovyn.Timeout, match="waits for the machine 'laptop', which was never seen"):
            await handle.result(0.1)
