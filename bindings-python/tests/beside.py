"""A process that runs agents and opens their file by another copy of SQLite too, then dies as by kill -9.

beside.py FILE WAY: tells each run on standard output once its end was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import flovyn
from flovyn import AgentContext, agent, task

RUNS = 12
READ = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM agent_execution").fetchone()
connection.close()
"""


@task
async def double(n: int) -> int:
    return 2 * n


@agent
async def doubling(ctx: AgentContext, n: int) -> int:
    return await double(n) + await double(1)


def count(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("SELECT count(*) FROM agent_execution").fetchone()[0]
    return found


def look(file: Path, way: str, n: int) -> None:
    """Open the file beside the engine, see what it has acknowledged, and close it."""
    if way == "connect":
        connection = sqlite3.connect(file)
        assert count(connection) == n
    elif way == "read_only":
        connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
        assert count(connection) == n
    elif way == "backup":
        connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
        copy = sqlite3.connect(file.with_name(f"copy-{n}.db"))
        connection.backup(copy)
        assert count(copy) == n
        copy.close()
    else:
        for suffix in ("", "-wal", "-shm"):
            file.with_name(file.name + suffix).read_bytes()
        # Another process, which takes itself for the last one if this one's locks went with the descriptors.
        subprocess.run([sys.executable, "-c", READ, str(file)], check=True)
        return
    connection.close()


async def main(file: Path, way: str) -> None:
    async with flovyn.connect(f"sqlite:{file}") as client, client.worker([doubling], [double]):
        for n in range(1, RUNS + 1):
            run = await client.start(doubling, n, id=f"run-{n}")
            look(file, way, n)
            print(f"run-{n}", await run.result(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
