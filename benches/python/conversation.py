"""Owns the agent of W3: a conversation of T turns with one checkpoint per turn, then a wait for its user.

Each turn is a user message, a model answer and a tool result (2 + 4 + 4 KiB). With `stepwise` the answer and the
tool result come from durable steps, as in a real agent; without, the three entries are all that is stored.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import flovyn

from harness.content import ANSWER_BYTES, TOOL_BYTES, USER_BYTES, prose

#: What the running process saw, for the program that reports it.
turn_times: list[float] = []
marks: dict[str, float] = {}


@dataclass
class Progress:
    """What the agent carries from turn to turn: constant in size."""

    turn: int = 0


@dataclass
class Plan:
    """The agent's input."""

    turns: int
    stepwise: bool


@flovyn.task
async def model_answer(request: dict[str, object]) -> str:
    return prose(ANSWER_BYTES, int(str(request["turn"])) * 3 + 1)


@flovyn.task
async def tool_result(turn: int) -> str:
    return prose(TOOL_BYTES, turn * 3 + 2)


async def _turn(ctx: flovyn.AgentContext[Progress], turn: int, stepwise: bool) -> None:
    ctx.append_entry("user", prose(USER_BYTES, turn * 3))
    if stepwise:
        ctx.append_entry("assistant", await model_answer({"turn": turn, "context": ctx.context_ref()}))
        marks.setdefault("first_step", time.time())
        ctx.append_entry("tool", await tool_result(turn))
    else:
        ctx.append_entry("assistant", prose(ANSWER_BYTES, turn * 3 + 1))
        ctx.append_entry("tool", prose(TOOL_BYTES, turn * 3 + 2))
    await ctx.checkpoint(Progress(turn + 1))


@flovyn.agent(state=Progress)
async def conversation(ctx: flovyn.AgentContext[Progress], plan: Plan) -> int:
    marks["entered"] = time.time()
    for turn in range(ctx.state.turn, plan.turns):
        start = time.perf_counter()
        await _turn(ctx, turn, plan.stepwise)
        turn_times.append(time.perf_counter() - start)
    await ctx.wait_for_signal("more")
    await _turn(ctx, plan.turns, plan.stepwise)
    start = time.perf_counter()
    messages = await ctx.messages()
    marks["load"] = time.perf_counter() - start
    return len(messages)
