"""W4 on Flovyn, second half: a new process replays the run and reads the large output from its journal.

Usage: w4_read.py MIB text|bytes|file
"""

from __future__ import annotations

import asyncio

import flovyn

from harness.measure import emit, reset_peak, rss_mb, url
from payload import large, marks, payload


async def main() -> None:
    async with flovyn.connect(url()) as client, client.worker(agents=[payload], tasks=[large]):
        reset_peak()
        before = rss_mb()
        handle = await client.start(payload, id="payload")
        await handle.signal("again", {})
        same = await handle.result(timeout=120)
        emit(
            read_ms=marks["step"] * 1e3,
            read_rss_growth_mb=rss_mb(peak=True) - before,
            wrong=int(not same) + int("returned" in marks),  # a step that ran again is wrong as well
        )


if __name__ == "__main__":
    asyncio.run(main())
