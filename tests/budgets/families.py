"""A process that serves the families until it is killed, or until its input ends.

families.py URL MODEL_URL LOG SEED: the seed decides where in its work the process kills itself; `-` lets it live. What
the parents hear is noted in LOG, a line each, by all processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import threading
import time
from typing import Any

import flovyn
from flovyn import AgentContext, agent
from flovyn.child_events import BudgetExceeded
from flovyn.toolkit import Provider, RunInput, Toolkit, llm, react_agent, tool

from plan import LOOK, MAX_TOKENS

#: Attempts of a process in flight at a time.
AT_ONCE = 60
_log = -1


class Death:
    """When this process ends itself: shortly after the n-th event of a kind, and after a moment at the latest."""

    def __init__(self, chance: random.Random) -> None:
        self._word = chance.choice(("begin", "tool", "reply", "heard", "books", ""))
        self._left = chance.randrange(1, 12)
        self._after_s = chance.uniform(0, 0.003)
        self._set(chance.uniform(0.1, 1.0))

    def saw(self, word: str) -> None:
        """Count an event."""
        if word == self._word:
            self._left -= 1
            if self._left == 0:
                self._set(self._after_s)

    def _set(self, after_s: float) -> None:
        def end() -> None:
            time.sleep(after_s)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=end, daemon=True).start()


death: Death | None = None


def saw(word: str, told: list[Any] | None = None) -> None:
    """Note an event of this process, in one write, so that the lines of several processes do not mix.

    All lines are as long, and no page ends within one: a kill can tear a write where its next page begins.
    """
    if told is not None:
        os.write(_log, json.dumps(told).ljust(511).encode() + b"\n")
    if death is not None:
        death.saw(word)


@flovyn.task
async def look(word: str) -> str:
    """Look something up."""
    saw("tool")
    return f"{word}: found"


reader = react_agent("react", tools=[tool(look, name=LOOK, effect="read")], system_prompt="Be brief.")


async def asked(ctx: AgentContext, model: str) -> llm.Reply:
    """Ask a model to go on with the conversation, and record what that cost: no budget has reserved anything for it."""
    reply = await llm.generate(ctx.context_ref(), model=f"fake/{model}", max_tokens=MAX_TOKENS)
    saw("reply")
    ctx.record_usage(reply.model, reply.usage.input, reply.usage.output)
    ctx.append_entry("assistant", reply.message)
    return reply


@agent
async def plain(ctx: AgentContext, given: dict[str, Any]) -> int:
    """Ask a model until it has said all, and keep how often it has answered."""
    answers = 0
    ctx.append_entry("user", given["marker"])
    try:
        for _ in range(given["turns"]):
            await asked(ctx, given["model"])
            answers += 1
            ctx.append_entry("user", await look(given["marker"]))
    except flovyn.Cancelled:
        pass
    return answers


async def tended(ctx: AgentContext, children: list[dict[str, Any]]) -> list[list[Any]]:
    """Start children together, and return of each how it ended: its marker, its id, how, and what it had used."""

    async def heard(marker: str, child: flovyn.Child[Any]) -> list[Any]:
        event = await ctx.wait_for_child_event(child)
        overrun = [dict(event.used), dict(event.limit)] if isinstance(event, BudgetExceeded) else None
        told = [marker, str(child.id), type(event).__name__, overrun]
        saw("heard", told)
        return told

    started: list[tuple[str, flovyn.Child[Any]]] = []
    for one in children:
        kind, given = KINDS[one["kind"]], one
        if one["kind"] == "react":
            given = RunInput(prompt=one["marker"], model=f"fake/{one['model']}", max_tokens=MAX_TOKENS)
        budget = {"budget": one["budget"]} if "budget" in one else {}
        started.append((one["marker"], ctx.spawn_agent(kind, given, id=one["marker"], **budget)))
    saw("begin")
    return await asyncio.gather(*(heard(*one) for one in started))


async def books(ctx: AgentContext) -> Any:
    """Return what a run knows of its budget when all its children have ended."""
    saw("books")
    return await ctx.remaining_budget()


@agent
async def desk(ctx: AgentContext, given: dict[str, Any]) -> dict[str, Any]:
    """Be a child with children."""
    return {"ends": await tended(ctx, given["children"]), "books": await books(ctx)}


@agent
async def lead(ctx: AgentContext, given: dict[str, Any]) -> dict[str, Any]:
    """Be the root of a family."""
    refused = False
    if given["refused"]:
        try:
            await ctx.spawn_agent(plain, {"marker": f"{given['name']}.refused"}, budget=given["refused"])
        except flovyn.BudgetExceeded:
            refused = True
    told = {"ends": await tended(ctx, given["children"]), "refused": refused, "books": await books(ctx)}
    if given["report"] is not None:
        ctx.append_entry("user", given["name"])
        await asked(ctx, given["report"])
        # There may be no room for this one: the root then waits for more.
        await look("after the report")
    return told


KINDS: dict[str, Any] = {"react": reader, "plain": plain, "desk": desk}


async def serve(url: str, model_url: str) -> None:
    """Serve all of it until the input ends."""
    toolkit = Toolkit(providers={"fake": Provider("anthropic-messages", model_url)})
    agents = [lead, desk, plain, reader]
    async with (
        flovyn.connect(url) as client,
        client.worker(agents=agents, tasks=[look], max_tasks=AT_ONCE, toolkit=toolkit),
    ):
        await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    """Serve, and die where the seed says."""
    global _log, death  # noqa: PLW0603 - of this process
    url, model_url, log, seed = sys.argv[1:5]
    _log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    death = None if seed == "-" else Death(random.Random(seed))
    asyncio.run(serve(url, model_url))


if __name__ == "__main__":
    main()
