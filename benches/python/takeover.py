"""S10 on Flovyn: how long the work of a killed worker lies until another goes on with it, one kill at a time.

Usage: takeover.py KILLS, or takeover.py worker NAME for the process of a worker
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import flovyn

from harness.measure import emit, percentile, url

VICTIM, HEIR = "victim", "heir"
SETTLE_S = 0.5


def _served_by(name: str) -> flovyn.Agent:
    @flovyn.task
    async def think(number: int) -> int:
        print(time.time(), flush=True)
        await asyncio.sleep(3600 if name == VICTIM else 0)
        return number

    @flovyn.agent(kind="thinker")
    async def thinker(ctx: flovyn.AgentContext, number: int) -> int:
        return await think(number)

    return thinker


async def _work(name: str) -> None:
    async with flovyn.connect(url()) as client:
        worker = client.worker(agents=[_served_by(name)])
        async with worker:
            print("up", flush=True)
            await asyncio.Event().wait()


def _start(name: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, __file__, "worker", name], stdout=subprocess.PIPE, text=True)
    assert _told(process) == "up"
    return process


def _told(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def main(kills: int) -> None:
    waits: list[float] = []
    async with flovyn.connect(url()) as client:
        for number in range(kills):
            victim = _start(VICTIM)
            handle = await client.start("thinker", number, id=f"thinker-{number}")
            await asyncio.to_thread(_told, victim)
            heir = _start(HEIR)
            try:
                await asyncio.sleep(SETTLE_S)
                killed = time.time()
                victim.kill()
                waits.append(float(await asyncio.to_thread(_told, heir)) - killed)
                assert await handle.result(timeout=60) == number
            finally:
                for process in (victim, heir):
                    process.kill()
                    process.wait()
    emit(takeover_p50_ms=percentile(waits, 0.5) * 1e3, takeover_p99_ms=percentile(waits, 0.99) * 1e3)


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[2]) if sys.argv[1] == "worker" else main(int(sys.argv[1])))
