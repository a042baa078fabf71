"""W6 on DBOS: the program that `harness.crash` kills and starts again. In its second life DBOS recovers by itself.

Usage: python -m harness.crash KILL_AT python w6_recover.py STEPS
"""

from __future__ import annotations

import time

began = time.time()
from dbos import DBOS, SetWorkflowID

imported = time.time()
import asyncio
import sys

from engine import launch
from harness.content import STEP_RESULT
from harness.progress import life, note

note("begun", at=began)
note("imported", at=imported)


@DBOS.step()
async def logged(number: int) -> dict[str, object]:
    note("step", number)
    return STEP_RESULT


@DBOS.workflow()
async def crashing(steps: int) -> None:
    for number in range(steps):
        await logged(number)
    note("finished")


async def main(steps: int) -> None:
    if life() == 1:
        with SetWorkflowID("crash"):
            await DBOS.start_workflow_async(crashing, steps)
    await asyncio.sleep(3600)  # ended by the kill


if __name__ == "__main__":
    launch()
    note("connected")
    asyncio.run(main(int(sys.argv[1])))
