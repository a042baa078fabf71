"""Families of agents on one budget, whose processes are killed: every call is in the books once, and the books close.

Usage: run.py [--families N] [--seed SEED] [--postgres] [--batch N]. README.md says what is checked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scenarios"))

import flovyn
from backends import Postgres, ending_with_us, fresh
from flovyn.testing import fake_llm
from flovyn.testing.scripted import FakeLlm

from families import AT_ONCE
from ledger import Evidence, Seen, check
from plan import Models, families

HERE = Path(__file__).resolve().parent
FAMILIES = 30
BATCH = 10
KILLS_PER_FAMILY = 2.2
AT_A_TIME = 2
LOOK_EVERY_S = 0.1
POLL_S = 0.003
#: How long a batch may take after its last kill: a store without locks of processes waits for leases of half a minute.
PATIENCE_S = 150.0
#: What a root gets that waits for more.
MORE = {"max_tokens": 10_000, "max_calls": 10}


class Processes:
    """Processes that serve the families, each with a death of its own."""

    def __init__(self, command: list[str], said: Path, fake: FakeLlm, chance: random.Random, kills: int) -> None:
        self._command, self._said, self._fake, self._chance, self._kills = command, said, fake, chance, kills
        self._alive: dict[subprocess.Popen[bytes], int | None] = {}
        """Each with the number of paid answers at which it is killed from here."""
        self.kills = 0

    def go_on(self) -> None:
        """Kill whose moment has come, bury the dead and start others for them."""
        paid = self._fake.paid
        for process, moment in list(self._alive.items()):
            if moment is not None and paid >= moment:
                process.kill()
                process.wait()
            if process.poll() is None:
                continue
            del self._alive[process]
            _let_go(process)
            if process.returncode != -signal.SIGKILL:
                raise AssertionError(f"a process ended with {process.returncode}: {self._said.read_text()[-3000:]}")
            self.kills += 1
        while len(self._alive) < AT_A_TIME:
            self._start(paid)

    def _start(self, paid: int) -> None:
        is_mortal = self.kills + len(self._alive) < self._kills
        is_killed_here = is_mortal and self._chance.random() < 0.5
        seed = str(self._chance.randrange(1 << 32)) if is_mortal and not is_killed_here else "-"
        command = ending_with_us([*self._command, seed])
        with self._said.open("ab") as said:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=said)
        self._alive[process] = paid + self._chance.randrange(1, 25) if is_killed_here else None

    def end(self) -> None:
        """Let those that live end."""
        for process in self._alive:
            _let_go(process)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """End the input of a process."""
    if process.stdin:
        process.stdin.close()


async def batch(url: str, folder: Path, chance: random.Random, numbers: range) -> Seen:
    """Let families live and die, and check what has become of them."""
    models, seen = Models(chance), Seen()
    given = families(models, chance, numbers)
    log = folder / f"heard-{numbers.start}"
    log.touch()
    with fake_llm(models.turns) as fake:
        command = [sys.executable, str(HERE / "families.py"), url, fake.url, str(log)]
        async with flovyn.connect(url) as client:
            handles = {one.name: await client.start("lead", one.input, id=one.name, budget=one.budget) for one in given}
            said = folder / f"said-{numbers.start}"
            processes = Processes(command, said, fake, chance, round(KILLS_PER_FAMILY * len(given)))
            try:
                paused = await ended(handles, processes, client)
            except AssertionError as wrong:
                return Seen([f"families {numbers.start} to {numbers.stop - 1}: {wrong}"])
            finally:
                processes.end()
            heard: dict[str, set[str]] = defaultdict(set)
            for line in log.read_text().splitlines():
                heard[json.loads(line)[0]].add(line)
            evidence = Evidence(models, fake.calls, heard, url)
            seen.counts.update(kills=processes.kills, paused=len(paused))
            for one in given:
                await check(client, one, one.name in paused, evidence, seen)
            # What was asked again was in flight when its process was killed.
            again = seen.counts["asked"] - seen.counts["recorded"]
            lost = max(call.attempts - 1 for calls in evidence.books.calls.values() for call in calls)
            if again > processes.kills * AT_ONCE or lost > processes.kills:
                told = f"{again} calls were asked again, and {lost} attempts of one call were lost"
                seen.faults.append(f"{told}, with {processes.kills} kills and {AT_ONCE} calls at once")
    return seen


async def ended(handles: dict[str, flovyn.Handle[Any]], processes: Processes, client: flovyn.Client) -> set[str]:
    """Wait for the end of all families; return those whose root has waited for a larger budget."""
    left, paused = dict(handles), set[str]()
    looked, last_kill, kills = 0.0, time.monotonic(), 0
    while left:
        processes.go_on()
        now = time.monotonic()
        if kills != processes.kills:
            kills, last_kill = processes.kills, now
        if now - last_kill > PATIENCE_S:
            states = [await handle.describe() for handle in left.values()]
            raise AssertionError(f"these have not ended: {json.dumps(states, default=str)}")
        if now - looked > LOOK_EVERY_S:
            looked = now
            for name, handle in list(left.items()):
                status = await handle.status()
                if status == "PAUSED":
                    run = await handle.describe()
                    if run.wait_reason != "budget" or name in paused:
                        raise AssertionError(f"the root {name} is paused: {run}")
                    paused.add(name)
                    await handle.resume(budget=MORE)
                elif status in ("COMPLETED", "FAILED", "CANCELLED"):
                    del left[name]
            async for run in client.runs(status="PAUSED"):
                if run.wait_reason == "quarantined":
                    await (await client.handle(run.id)).resume()
        await asyncio.sleep(POLL_S)
    return paused


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--families", type=int, default=FAMILIES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=BATCH, help="how many families share a database and processes")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL of its own, in place of SQLite")
    given = parser.parse_args()
    seen, begun = Seen(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="flovyn-budgets-") as name:
        folder = Path(name)
        postgres: Any = Postgres(folder) if given.postgres else None
        try:
            for first in range(0, given.families, given.batch):
                numbers = range(first, min(first + given.batch, given.families))
                chance = random.Random(f"{given.seed}/{first}")
                with fresh("postgres" if given.postgres else "sqlite", folder, postgres) as backend:
                    one = asyncio.run(batch(backend.url, folder, chance, numbers))
                for fault in one.faults:
                    print(f"  FAILED {fault} (seed {given.seed})", flush=True)
                seen.faults += one.faults
                seen.counts += one.counts
                seen.over += one.over
        finally:
            if postgres is not None:
                postgres.stop()
    again = seen.counts["asked"] - seen.counts["recorded"]
    if not again:
        seen.faults.append("no call was in flight when its process was killed")
        print(f"  FAILED {seen.faults[-1]}")
    counts, (over, beyond) = seen.counts, max(seen.over, default=(0, 0))
    overspent = sum(one > 0 for one, _ in seen.over)
    print(
        f"{counts['families']} families of {counts['runs']} runs, {counts['kills']} kills, "
        f"{counts['recorded']} calls in the books ({counts['tokens']} tokens), {counts['paid']} paid, "
        f"{counts['lost']} of them lost ({counts['tokens_lost']} tokens) of {again} calls in flight at kills; "
        f"{counts['stopped']} children stopped, {counts['paused']} roots paused; "
        f"{overspent} of {len(seen.over)} budgets overspent, by {max(over, 0)} tokens at most, "
        f"where calls went {beyond} beyond their reservations; "
        f"{len(seen.faults)} faults, {time.monotonic() - begun:.0f} s (seed {given.seed})"
    )
    return 1 if seen.faults else 0


if __name__ == "__main__":
    sys.exit(main())
