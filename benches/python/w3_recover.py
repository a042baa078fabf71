"""W3 on Flovyn, second half: a new process takes up the conversation that `w3.py` left behind.

Sends the signal the agent waits for and measures, from the start of this process, when the agent's code runs
again and when its first new step has ended; then how long loading all messages takes.
Usage: w3_recover.py TURNS stepwise|entries
"""

from __future__ import annotations

import asyncio
import sys
import time

began = time.perf_counter()
import flovyn

imported = time.perf_counter()
from conversation import Plan, conversation, marks, model_answer, tool_result
from harness.measure import directory, emit, rss_mb, spawned_at


async def main(turns: int, stepwise: bool) -> None:
    url = f"sqlite:{directory() / 'flovyn.db'}"
    async with (
        flovyn.connect(url) as client,
        client.worker(agents=[conversation], tasks=[model_answer, tool_result]),
    ):
        handle = await client.start(conversation, Plan(turns, stepwise), id="chat")
        signalled = time.time()
        await handle.signal("more", {})
        messages = await handle.result(timeout=300)
        emit(
            recover_import_ms=(imported - began) * 1e3,
            recover_ms=(marks["entered"] - signalled) * 1e3,
            recover_step_ms=(marks.get("first_step", marks["entered"]) - spawned_at()) * 1e3,
            load_ms=marks["load"] * 1e3,
            recover_rss_mb=rss_mb(peak=True),
            wrong=messages - (turns + 1) * 3,
        )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2] == "stepwise"))
