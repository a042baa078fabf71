"""The kill loop: processes on one file, killed again and again at random moments; every run ends as if undisturbed.

`SCALE` multiplies the number of kills. A failure names its seed, and `SEED` runs it alone.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import flovyn
from conftest import SCALE
from victim import linear, listener, looping, wide

KILLS = 60 * SCALE
STEPS = 4 * KILLS
LETTERS = KILLS // 2
RUNS: dict[str, tuple[flovyn.Agent[Any, Any], int]] = {
    "line": (linear, STEPS),
    "other": (linear, STEPS),
    "fan": (wide, STEPS // 3),
    "loop": (looping, STEPS),
    "mail": (listener, LETTERS),
}


class Processes:
    """Two processes at a time, each with a death of its own."""

    def __init__(self, url: str, log: Path, seed: int) -> None:
        self._command = [sys.executable, str(Path(__file__).parent / "victim.py"), url, str(log)]
        self._chance = random.Random(seed)
        self._alive: list[subprocess.Popen[bytes]] = []
        self.kills = 0

    def top_up(self, *, mortal: bool) -> None:
        """Bury the dead and start others for them."""
        for process in list(self._alive):
            if process.poll() is None:
                continue
            _, complaints = process.communicate()
            assert process.returncode == -signal.SIGKILL, complaints.decode()
            self._alive.remove(process)
            self.kills += 1
        while len(self._alive) < 2:
            seed = str(self._chance.randrange(1 << 32)) if mortal else "-"
            self._alive.append(subprocess.Popen([*self._command, seed], stderr=subprocess.PIPE))

    def end(self) -> None:
        for process in self._alive:
            process.kill()
            process.communicate()


async def test_killed_processes_lose_and_repeat_nothing(file_url: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
    print(f"SEED={seed}")
    log = tmp_path / "log"
    log.touch()
    processes = Processes(file_url, log, seed)
    async with flovyn.connect(file_url) as client:
        handles = {key: await client.start(agent, count, id=key) for key, (agent, count) in RUNS.items()}
        letters = 0
        try:
            while processes.kills < KILLS:
                processes.top_up(mortal=True)
                # The last letter comes after the last kill: somebody waits all the time.
                if letters < min(processes.kills, LETTERS - 1):
                    await handles["mail"].signal("mail", letters, idempotency_key=str(letters))
                    letters += 1
                await asyncio.sleep(0.002)
            struck = {line.split()[2] for line in log.read_text().splitlines() if " start " in line}
            assert len(struck) < sum(len(_places(key)) for key in RUNS), "the kills came when all was done"
            for letter in range(letters, LETTERS):
                await handles["mail"].signal("mail", letter, idempotency_key=str(letter))
            ends = asyncio.gather(*(handle.result(timeout=120) for handle in handles.values()))
            while not ends.done():
                processes.top_up(mortal=False)
                await _lift(handles)
                await asyncio.wait([ends], timeout=0.05)
            results = dict(zip(handles, await ends, strict=True))
        finally:
            processes.end()
        lines = [(int(pid), word, what) for pid, word, what in map(str.split, log.read_text().splitlines())]
        _check_results(results)
        for key, handle in handles.items():
            await _check_rows(key, handle)
    _check_log(lines)
    print(f"{processes.kills} kills while {len(struck)} of {len({what for _, _, what in lines})} steps were made")


async def _lift(handles: dict[str, flovyn.Handle[Any]]) -> None:
    """Be the operator: twenty deaths in a row without a commit between put a run into quarantine, as they should."""
    for key, handle in handles.items():
        run = await handle.describe()
        if run.status == "PAUSED":
            assert run.wait_reason == "quarantined", f"{key} is paused: {run.wait_reason}"
            print(f"{key} was quarantined: {run.failure}")
            await handle.resume()


def _places(key: str) -> list[str]:
    agent, count = RUNS[key]
    if agent is wide:
        return [f"{key}.{number}.{branch}" for number in range(count) for branch in range(3)]
    return [] if agent is listener else [f"{key}.{number}" for number in range(count)]


def _check_results(results: dict[str, Any]) -> None:
    for key in ("line", "other", "fan"):
        assert results[key] == [place.upper() for place in _places(key)]
    assert results["loop"] == STEPS
    assert results["mail"] == list(range(LETTERS))


async def _check_rows(key: str, handle: flovyn.Handle[Any]) -> None:
    """Each entry is there once, and each step has one row with one result."""
    agent, count = RUNS[key]
    said = list(range(count)) if agent in (wide, listener) else _places(key)
    assert [entry.content for entry in await handle.entries()] == said
    assert [message.content for message in await handle.messages()] == said
    tasks = await handle.tasks()
    assert {task["status"] for task in tasks} <= {"COMPLETED"}
    assert len(tasks) == len(_places(key))


def _check_log(lines: list[tuple[int, str, str]]) -> None:
    """A step runs again only if it was in flight, and only after the death of the process that ran it."""
    done: set[str] = set()
    runners: defaultdict[str, list[int]] = defaultdict(list)
    last_line = {pid: at for at, (pid, _, _) in enumerate(lines)}
    for at, (pid, word, what) in enumerate(lines):
        if word == "done":
            done.add(what)
        if word != "start":
            continue
        assert what not in done, f"{what} had finished and was run again"
        for other in runners[what]:
            assert last_line[other] < at, f"{what} was run again while the process that ran it was alive"
        runners[what].append(pid)
    assert set(runners) == {place for key in RUNS for place in _places(key)}
    again = {what for what, pids in runners.items() if len(pids) > 1}
    assert again, "no step was in flight when its process was killed"
    charged = {place for key in ("line", "other") for place in _places(key)[2::3]}
    assert not again & charged, "a step that can be asked for was run again"
