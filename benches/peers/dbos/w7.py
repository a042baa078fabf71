"""W7 on DBOS: one workflow keeps the conversation in a variable; model and tool are its steps.

A step's arguments are not stored, so the model's is the conversation itself.
Usage: w7.py TURNS
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from dbos import DBOS, SetWorkflowID

from engine import launch
from harness.measure import die, emit
from harness.script import Script

Message = dict[str, Any]

script = Script(int(sys.argv[1]))


@DBOS.step()
async def model(messages: list[Message]) -> Message:
    text = script.answer(message["content"] for message in messages)
    return {"role": "assistant", "content": text, "call": {"id": f"call-{len(messages)}", "name": "look"}}


@DBOS.step()
async def look(call: dict[str, str]) -> Message:
    return {"role": "tool", "call_id": call["id"], "content": script.result()}


@DBOS.workflow()
async def work(prompt: str) -> int:
    messages: list[Message] = [{"role": "user", "content": prompt}]
    for _ in range(script.turns):
        answer = await model(messages)
        messages += [answer, await look(answer["call"])]
    return len(messages)


async def main() -> None:
    with SetWorkflowID("work"):
        handle = await DBOS.start_workflow_async(work, script.begin())
    await handle.get_result()
    emit(**script.ended())
    die()


if __name__ == "__main__":
    launch()
    asyncio.run(main())
