"""W3 on DBOS: one workflow keeps the whole conversation, three steps (2 + 4 + 4 KiB) per turn.

`grow` runs T turns, prints, and dies as by kill -9. `recover` is a new process: DBOS replays the workflow by itself.
Usage: w3.py TURNS grow|recover
"""

from __future__ import annotations

import time

began = time.perf_counter()
from dbos import DBOS, SetWorkflowID

imported = time.perf_counter()
import asyncio
import sys

from engine import launch
from harness.content import ANSWER_BYTES, TOOL_BYTES, TURN_BYTES, USER_BYTES, prose
from harness.measure import (
    Span,
    die,
    directory,
    emit,
    growth,
    rss_mb,
    settled_bytes,
    spawned_at,
    stored_bytes,
)

turn_times: list[float] = []
marks: dict[str, float] = {}
caught_up = asyncio.Event()


@DBOS.step()
async def message(role: str, size: int, seed: int) -> dict[str, str]:
    return {"role": role, "content": prose(size, seed)}


@DBOS.workflow()
async def conversation(turns: int) -> None:
    marks["entered"] = time.time()
    messages = []
    for turn in range(turns):
        start = time.perf_counter()
        messages.append(await message("user", USER_BYTES, turn * 3))
        messages.append(await message("assistant", ANSWER_BYTES, turn * 3 + 1))
        messages.append(await message("tool", TOOL_BYTES, turn * 3 + 2))
        turn_times.append(time.perf_counter() - start)
    marks["caught_up"], marks["messages"] = time.time(), len(messages)
    caught_up.set()
    await DBOS.recv_async("more", timeout_seconds=3600)


async def grow(turns: int) -> None:
    empty = settled_bytes(directory())
    span = Span()
    with SetWorkflowID("chat"):
        await DBOS.start_workflow_async(conversation, turns)
    await caught_up.wait()
    total = span.wall_s
    settled = settled_bytes(directory()) - empty
    emit(
        total_s=total,
        **growth(turn_times),
        file_bytes=stored_bytes(directory()),
        stored_ratio=settled / (turns * TURN_BYTES),
        rss_peak_mb=rss_mb(peak=True),
    )
    die()


async def recover(turns: int) -> None:
    while "caught_up" not in marks:  # DBOS may run the workflow on a loop of its own
        await asyncio.sleep(0.001)
    emit(
        recover_import_ms=(imported - began) * 1e3,
        recover_ms=(marks["caught_up"] - marks["entered"]) * 1e3,
        recover_step_ms=(marks["caught_up"] - spawned_at()) * 1e3,
        recover_rss_mb=rss_mb(peak=True),
        wrong=marks["messages"] - turns * 3,
    )
    die()


if __name__ == "__main__":
    launch()
    asyncio.run({"grow": grow, "recover": recover}[sys.argv[2]](int(sys.argv[1])))
