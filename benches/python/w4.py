"""W4 on Flovyn: one step whose output is large. Prints, and dies as by kill -9; `w4_read.py` reads it back.

Usage: w4.py MIB text|bytes|file
"""

from __future__ import annotations

import asyncio
import sys

import flovyn

from harness.measure import die, directory, emit, reset_peak, rss_mb, settled_bytes, url
from payload import large, marks, payload, prepare, received


async def main(mebibytes: int, form: str) -> None:
    prepare(mebibytes, form)
    async with flovyn.connect(url()) as client, client.worker(agents=[payload], tasks=[large]):
        reset_peak()
        before = rss_mb()
        await client.start(payload, id="payload")
        await received.wait()
        grown = rss_mb(peak=True) - before
        emit(step_ms=marks["step"] * 1e3, rss_growth_mb=grown, rss_peak_mb=rss_mb(peak=True))
        emit(stored_ratio=settled_bytes(directory()) / (mebibytes << 20))
        die()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
