"""A process that is killed with SIGKILL in the middle of a run, and the next one that goes on.

python crash.py [DATABASE]
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import flovyn
from flovyn import AgentContext, agent, task

STEPS = 20


@task
async def count(log: str, number: int) -> int:
    await asyncio.sleep(0.005)
    with Path(log).open("a") as lines:
        lines.write(f"{number}\n")
    return number


@agent
async def counter(ctx: AgentContext, log: str) -> int:
    total = 0
    for number in range(STEPS):
        total += await count(log, number)
    return total


def child(database: str, log: str) -> None:
    print(flovyn.run(counter, log, id="count-1", url=f"sqlite:{database}"))


def parent(database: str) -> None:
    log = Path(f"{database}.log")
    log.unlink(missing_ok=True)
    command = [sys.executable, __file__, database, str(log)]
    first = subprocess.Popen(command)
    while not log.exists() or log.read_text().count("\n") < STEPS // 2:
        assert first.poll() is None, "the first process ended early"
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    before = log.read_text().splitlines()
    print(f"killed after {len(before)} steps; running again")
    subprocess.run(command, check=True)
    ran = log.read_text().splitlines()
    repeated = len(ran) - len(set(ran))
    print(f"{len(ran)} lines, {repeated} of them a step that was in flight")
    assert set(map(int, ran)) == set(range(STEPS))
    assert repeated <= 1


if __name__ == "__main__":
    arguments = sys.argv[1:] or ["crash.db"]
    child(*arguments) if len(arguments) == 2 else parent(arguments[0])
