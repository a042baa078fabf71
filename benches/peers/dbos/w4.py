"""W4 on DBOS: one step whose output is large, incompressible text.

Usage: w4.py MIB
"""

from __future__ import annotations

import asyncio
import sys
import time

from dbos import DBOS

from engine import launch
from harness.content import noise_text
from harness.measure import directory, emit, reset_peak, rss_mb, settled_bytes

output: list[str] = []
marks: dict[str, float] = {}


@DBOS.step()
async def large() -> str:
    return output[0]


@DBOS.workflow()
async def payload() -> bool:
    start = time.perf_counter()
    value = await large()
    marks["step"] = time.perf_counter() - start
    return value == output[0]


async def main(mebibytes: int) -> None:
    size = mebibytes << 20
    output.append(noise_text(size))
    reset_peak()
    before = rss_mb()
    same = await payload()
    grown, peak = rss_mb(peak=True) - before, rss_mb(peak=True)
    emit(step_ms=marks["step"] * 1e3, rss_growth_mb=grown, rss_peak_mb=peak, wrong=int(not same))
    emit(stored_ratio=settled_bytes(directory()) / size)
    DBOS.destroy()


if __name__ == "__main__":
    launch()
    asyncio.run(main(int(sys.argv[1])))
