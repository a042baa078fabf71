"""W6 on Flovyn: the program that `harness.crash` kills and starts again. Both lives run the same code.

Usage: python -m harness.crash KILL_AT python w6_recover.py STEPS
"""

from __future__ import annotations

import time

began = time.time()
import flovyn

imported = time.time()
import asyncio
import sys

from harness.content import STEP_RESULT
from harness.measure import directory
from harness.progress import note

note("begun", at=began)
note("imported", at=imported)


@flovyn.task
async def logged(number: int) -> dict[str, object]:
    note("step", number)
    return STEP_RESULT


@flovyn.agent
async def crashing(ctx: flovyn.AgentContext, steps: int) -> int:
    for number in range(steps):
        await logged(number)
    return steps


async def main(steps: int) -> None:
    url = f"sqlite:{directory() / 'flovyn.db'}"
    async with flovyn.connect(url) as client, client.worker(agents=[crashing], tasks=[logged]):
        note("connected")
        await (await client.start(crashing, steps, id="crash")).result()
        note("finished")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
