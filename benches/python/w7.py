"""W7 on Flovyn: one run of an agent with a tool; its model reads the whole conversation before each call.

The conversation is entries; model and tool are durable steps; each turn ends with a checkpoint.
Usage: w7.py TURNS
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from functools import partial

import flovyn

from harness.measure import emit, url
from harness.script import Script

script = Script(int(sys.argv[1]))


@dataclass
class Progress:
    """What the agent carries from turn to turn: constant in size."""

    turn: int = 0


@flovyn.task
async def look(call: dict[str, str]) -> str:
    return script.result()


@flovyn.agent(state=Progress)
async def work(ctx: flovyn.AgentContext[Progress], prompt: str) -> int:
    if ctx.state.turn == 0:
        ctx.append_entry("user", prompt)
    for turn in range(ctx.state.turn, script.turns):
        call = {"id": f"call-{turn}", "name": "look"}
        messages = await ctx.messages()
        answer = await ctx.run("model", partial(_model, messages))
        ctx.append_entry("assistant", answer, metadata={"call": call})
        ctx.append_entry("tool", await look(call), metadata={"call_id": call["id"]})
        await ctx.checkpoint(Progress(turn + 1))
    return script.turns


def _model(messages: list[flovyn.Message]) -> str:
    return script.answer(message.content for message in messages)


async def main() -> None:
    async with flovyn.connect(url()) as client, client.worker(agents=[work], tasks=[look]):
        handle = await client.start(work, script.begin(), id="work")
        await handle.result(timeout=600)
        emit(**script.ended())


if __name__ == "__main__":
    asyncio.run(main())
