"""Owns W6: kill a program in the middle of its run, start it again, and count what it did twice.

Usage: python -m harness.crash KILL_AT COMMAND ...

COMMAND runs one agent of N steps in `BENCH_DIR` and is started twice; `BENCH_LIFE` tells it whether this is
life 1 or 2. It notes its progress (`harness.progress`): `begun`, `imported`, `connected` as it gets there, `step`
with the number of the step when that step's code runs, `finished` when the agent has ended.

A step counts as finished once the next one has begun. The step in flight at the kill may run again anywhere;
a finished one that runs again is lost work.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass

from harness.measure import emit
from harness.progress import log_path

LIMIT_S = 120.0


@dataclass(frozen=True)
class Note:
    """One line of progress: what was reached, and when on the wall clock."""

    word: str
    number: int
    at: float


def _read() -> list[Note]:
    if not log_path().exists():
        return []
    complete = log_path().read_bytes().rpartition(b"\n")[0].decode()
    fields = [line.split() for line in complete.splitlines()]
    return [Note(word, int(number), float(at)) for word, number, at in fields]


def _live(life: int, command: list[str], until: str, number: int) -> tuple[float, list[Note]]:
    """Run one life until `until` is noted, kill it, and return when it was spawned and what it noted."""
    before, spawned = len(_read()), time.time()
    environment = os.environ | {"BENCH_LIFE": str(life), "BENCH_SPAWNED": repr(spawned)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        while time.time() - spawned < LIMIT_S:
            notes = _read()[before:]
            if any(each.word == until and each.number >= number for each in notes):
                break
            if process.poll() is not None:
                raise SystemExit(f"life {life} ended with {process.returncode} before `{until} {number}`")
            time.sleep(0.0005)
        else:
            raise SystemExit(f"life {life} did not reach `{until} {number}` in {LIMIT_S:.0f} s")
    finally:
        process.kill()
        process.wait()
    return spawned, _read()[before:]


def main(arguments: list[str]) -> None:
    kill_at, command = int(arguments[0]), arguments[1:]
    _, first = _live(1, command, "step", kill_at)
    spawned, second = _live(2, command, "finished", 0)

    if any(each.word == "finished" for each in first):
        raise SystemExit("the run had finished before the kill")
    ran = [each.number for each in first if each.word == "step"]
    again = [each for each in second if each.word == "step"]
    finished = set(ran[:-1])
    missing = set(range(max(each.number for each in again) + 1)) - set(ran) - {each.number for each in again}
    reached = {each.word: each.at for each in reversed(second)}
    emit(
        killed_at=ran[-1],
        repeated=len(set(ran) & {each.number for each in again}),
        lost=len(finished & {each.number for each in again}),
        missing=len(missing),
        process_ms=(reached["begun"] - spawned) * 1e3,
        import_ms=(reached["imported"] - reached["begun"]) * 1e3,
        connect_ms=(reached["connected"] - reached["imported"]) * 1e3,
        first_step_ms=(again[0].at - spawned) * 1e3,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
