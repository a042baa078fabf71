"""W3 on Flovyn: how the cost of a turn and the bytes stored grow with the conversation.

Runs T turns, prints, and dies as by kill -9; `w3_recover.py` goes on from there.
Usage: w3.py TURNS stepwise|entries
"""

from __future__ import annotations

import asyncio
import sys

import flovyn

from conversation import Plan, conversation, model_answer, tool_result, turn_times
from harness.content import TURN_BYTES
from harness.measure import Span, die, directory, emit, growth, rss_mb, settled_bytes, stored_bytes


async def main(turns: int, stepwise: bool) -> None:
    url = f"sqlite:{directory() / 'flovyn.db'}"
    async with (
        flovyn.connect(url) as client,
        client.worker(agents=[conversation], tasks=[model_answer, tool_result]),
    ):
        empty = settled_bytes(directory())
        span = Span()
        handle = await client.start(conversation, Plan(turns, stepwise), id="chat")
        while await handle.status() != "WAITING":
            await asyncio.sleep(0.01)
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


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2] == "stepwise"))
