"""A process that serves agents until it is killed. What they do is noted in a log that all processes append to.

victim.py URL LOG SEED: the seed decides when the process kills itself, as by kill -9 from outside; `-` lets it live.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flovyn
from flovyn import AgentContext, NotDone, agent, task

LOG = Path(os.environ.get("VICTIM_LOG", os.devnull))


class Death:
    """When this process ends: so long after its n-th line of a kind, or so long after its start."""

    def __init__(self, chance: random.Random) -> None:
        # In a step, between its end and the end of its commit, or wherever a moment falls: a wait, a claim, an opening.
        self._word, latest_ms = chance.choice([("start", 2.0), ("end", 0.5), ("end", 5.0), ("", 150.0)])
        self._left = chance.randrange(1, 9) if self._word else 0
        self._after_s = chance.uniform(0, latest_ms) / 1000
        if not self._word:
            self._set()

    def saw(self, word: str) -> None:
        if word == self._word:
            self._left -= 1
            if self._left == 0:
                self._set()

    def _set(self) -> None:
        def end() -> None:
            time.sleep(self._after_s)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=end, daemon=True).start()


death: Death | None = None


def note(word: str, what: str) -> None:
    """Append a line in one write, so that lines of several processes have an order.

    All lines are as long, and no page ends within one: a kill can tear a write where its next page begins.
    """
    with LOG.open("ab", buffering=0) as log:
        log.write(f"{os.getpid()} {word} {what}".ljust(63).encode() + b"\n")
    if death is not None:
        death.saw(word)


@task
async def step(what: str) -> str:
    note("start", what)
    await asyncio.sleep(0.002)
    note("end", what)
    return what.upper()


@task
def blocking(what: str) -> str:
    note("start", what)
    note("end", what)
    return what.upper()


def was_charged(what: str) -> str:
    if f" start {what} " in LOG.read_text():
        return what.upper()
    raise NotDone


@task(reconcile=was_charged)
async def charge(what: str) -> str:
    note("start", what)
    note("end", what)
    return what.upper()


@agent
async def linear(ctx: AgentContext, count: int) -> list[str]:
    done: list[str] = []
    for number in range(count):
        place = f"{ctx.key}.{number}"
        done.append(await (step, blocking, charge)[number % 3](place))
        note("done", place)
        ctx.append_entry("assistant", place)
    return done


@agent
async def wide(ctx: AgentContext, count: int) -> list[str]:
    done: list[str] = []
    for number in range(count):
        places = [f"{ctx.key}.{number}.{branch}" for branch in range(3)]
        done.extend(await asyncio.gather(*map(step, places)))
        for place in places:
            note("done", place)
        ctx.append_entry("assistant", number)
        await ctx.sleep(0.005)
    return done


@dataclass
class Progress:
    number: int = 0


@agent(state=Progress)
async def looping(ctx: AgentContext[Progress], count: int) -> int:
    while ctx.state.number < count:
        place = f"{ctx.key}.{ctx.state.number}"
        await step(place)
        note("done", place)
        ctx.append_entry("assistant", place)
        ctx.state.number += 1
        await ctx.checkpoint()
    return len(ctx.load_messages())


@agent
async def listener(ctx: AgentContext, count: int) -> list[int]:
    heard: list[int] = []
    for _ in range(count):
        heard.append(await ctx.wait_for_signal("mail"))
        ctx.append_entry("user", heard[-1])
    return heard


AGENTS: list[flovyn.Agent[Any, Any]] = [linear, wide, looping, listener]


async def main(url: str, seed: str) -> None:
    global death
    chance = random.Random(seed)
    kept = chance.choice([0, None])
    death = None if seed == "-" else Death(chance)
    async with flovyn.connect(url) as client:
        await client.worker(AGENTS, max_parked=kept, max_agents=4).run()


if __name__ == "__main__":
    LOG = Path(sys.argv[2])
    asyncio.run(main(sys.argv[1], sys.argv[3]))
