"""The kill loop of an installation: families over servers, workers and machines, which are killed again and again.

Usage: run.py [--kills N] [--seed SEED] [--spare KIND] [--keep FOLDER] [--flovyn PROGRAM].
README.md says what is checked.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import flovyn

from installation import Installation, Member
from ledger import ENDED, Evidence, check, runs_of
from plan import Node, below, family

#: Families that live at a time.
AT_ONCE = 6
#: Seconds between kills, on average and at most; and how long a killed one stays away at most.
PAUSE_S, PAUSE_MOST_S, AWAY_S = 0.7, 2.5, 1.0
#: What has to happen before the next kill, within that time: a slow machine that does nothing but start again shows
#: nothing.
NOTES_BETWEEN = 4
#: How long nothing may happen once nothing is killed any more, while there are runs that have not ended. How long it
#: takes until all have is shown, since it is the machine's pace too.
STUCK_S = 60.0
#: Only processes are killed, not the machine, so a RAM disk keeps what a disk does, at the pace of the software.
RAM_DISK = Path("/dev/shm")
LOOK_EVERY_S = 0.1
TERMINAL = (*ENDED, "FAILED")

Asked = Callable[[flovyn.Client], Coroutine[Any, Any, Any]]


class Clients:
    """Clients of all servers: where one does not answer, another is asked the same again."""

    def __init__(self, urls: list[str]) -> None:
        self._urls, self._next = urls, 0
        self._open: dict[str, flovyn.Client] = {}

    async def ask(self, what: Asked) -> Any:
        """Return the first answer."""
        while True:
            self._next += 1
            url = self._urls[self._next % len(self._urls)]
            try:
                if url not in self._open:
                    self._open[url] = await flovyn.connect(url)
                return await what(self._open[url])
            except flovyn.StorageUnavailable:
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Close all."""
        for client in self._open.values():
            await client.close()


class Families:
    """The families: started while there are kills, followed until they have ended."""

    def __init__(self, clients: Clients, seed: int) -> None:
        self._clients, self._seed = clients, seed
        self.plans: dict[str, Node] = {}
        self.resumed = 0
        self._alive: set[asyncio.Task[None]] = set()
        self.is_over = False

    async def go_on(self) -> None:
        """Keep so many alive until it is over, then wait for the last."""
        while not self.is_over:
            while len(self._alive) < AT_ONCE:
                plan = family(self._seed, len(self.plans))
                self.plans[plan["name"]] = plan
                self._alive.add(asyncio.create_task(self._live(plan)))
            done, self._alive = await asyncio.wait(
                self._alive, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED
            )
            for one in done:
                one.result()
        await asyncio.gather(*self._alive)

    async def _live(self, plan: Node) -> None:
        name, begun = plan["name"], time.monotonic()
        given = {"name": name, "steps": plan["steps"]}

        async def start(client: flovyn.Client) -> None:
            await client.start("node", given, id=name)

        async def go(client: flovyn.Client) -> None:
            await (await client.handle(name)).signal("go", "go", idempotency_key=name)

        async def cancel(client: flovyn.Client) -> None:
            await (await client.handle(name)).cancel(plan["cancel"][0], timeout=5)

        async def status(client: flovyn.Client) -> str:
            return str(await (await client.handle(name)).status())

        await self._clients.ask(start)
        if plan["steps"][0]["do"] == "wait":
            await self._clients.ask(go)
        is_cancelled = plan["cancel"] is None
        while (now := await self._clients.ask(status)) not in TERMINAL:
            if not is_cancelled and time.monotonic() - begun > plan["cancel"][1]:
                await self._clients.ask(cancel)
                is_cancelled = True
            if now == "PAUSED":
                raise AssertionError(f"the family {name} is paused")
            await asyncio.sleep(LOOK_EVERY_S)

    async def left(self) -> list[str]:
        """Return what has not ended, children that nobody waits for too."""

        async def ask(client: flovyn.Client) -> list[str]:
            found: list[str] = []
            for status in ("PENDING", "RUNNING", "WAITING", "PAUSED"):
                found += [f"{run.kind} {run.id} is {run.status}" async for run in client.runs(status=status)]
            return found

        return list(await self._clients.ask(ask))


async def kill(installation: Installation, kills: int, chance: random.Random, spared: str) -> None:
    """Kill at random, and start again what was killed, some at once and some after a while."""

    async def back(victim: Member, after_s: float) -> None:
        await asyncio.sleep(after_s)
        victim.start()

    away: dict[int, asyncio.Task[None]] = {}
    while installation.kills.total() < kills:
        begun, noted = time.monotonic(), installation.noted()
        await asyncio.sleep(min(chance.expovariate(1 / PAUSE_S), PAUSE_MOST_S))
        while installation.noted() - noted < NOTES_BETWEEN and time.monotonic() - begun < PAUSE_MOST_S:
            await asyncio.sleep(LOOK_EVERY_S / 5)
        there = [one for one in installation.members if id(one) not in away or away[id(one)].done()]
        members = [one for one in there if one.kind != spared]
        victim = installation.kill_one(chance, members)
        after_s = 0.0 if chance.random() < 0.5 else chance.uniform(0, AWAY_S)
        away[id(victim)] = asyncio.create_task(back(victim, after_s))
    await asyncio.gather(*away.values())


async def loop(installation: Installation, kills: int, seed: int, spared: str) -> tuple[list[str], Counter[str], float]:
    """Let families live under kills; return what is wrong, what there was, and how long the healing took."""
    clients, chance = Clients(installation.urls), random.Random(seed)
    families, counts = Families(clients, seed), Counter[str]()
    living = asyncio.create_task(families.go_on())
    killing = asyncio.create_task(kill(installation, kills, chance, spared))
    await asyncio.wait([living, killing], return_when=asyncio.FIRST_COMPLETED)
    if not killing.done():
        killing.cancel()
        await living
    await killing
    families.is_over, healed = True, time.monotonic()
    faults: list[str] = []
    noted, moved = installation.noted(), time.monotonic()
    while not living.done() or await families.left():
        await asyncio.sleep(LOOK_EVERY_S)
        if installation.noted() != noted:
            noted, moved = installation.noted(), time.monotonic()
        if time.monotonic() - moved > STUCK_S:
            faults += [f"nothing happened for {STUCK_S:.0f} s, and {one}" for one in await families.left()]
            break
    if living.done():
        await living
    living.cancel()
    took = time.monotonic() - healed
    evidence = Evidence.read(installation.folder, installation.work)
    counts.update(effects=len(evidence.made), tries=evidence.tries.total(), commands=evidence.begun.total())
    faults += evidence.late
    for name, plan in families.plans.items():
        runs = await clients.ask(lambda client, name=name: runs_of(client, name))
        faults += [f"{name}: {fault}" for fault in check(plan, runs, evidence)]
        counts.update(families=1, runs=len(runs), cancelled=sum(run.status == "CANCELLED" for run in runs))
        counts.update(machines=sum("machine" in one for one in below(plan) if one["name"] in {r.name for r in runs}))
    await clients.close()
    return faults + installation.faults(), counts, took


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spare", default="", choices=("server", "worker", "daemon"), help="a kind that is not killed")
    parser.add_argument("--keep", type=Path, help="an empty folder that keeps logs and files")
    parser.add_argument("--flovyn", default=str(Path(sys.executable).with_name("flovyn")), help="the command")
    given = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="flovyn-kills-", dir=RAM_DISK if RAM_DISK.is_dir() else None) as temporary:
        folder = (given.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        installation = Installation(folder, given.flovyn)
        try:
            faults, counts, took = asyncio.run(loop(installation, given.kills, given.seed, given.spare))
        finally:
            installation.end()
    for fault in faults:
        print(f"  FAILED {fault[:2000]} (seed {given.seed})", flush=True)
    kills = installation.kills
    print(
        "| kills of servers | workers | daemons | families | runs | machines | cancelled | effects (tries) | healed |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    print(
        f"| {kills['server']} | {kills['worker']} | {kills['daemon']} | {counts['families']} | {counts['runs']} "
        f"| {counts['machines']} | {counts['cancelled']} | {counts['effects']} ({counts['tries']}) | {took:.1f} s |"
    )
    print(f"{len(faults)} faults, {time.monotonic() - begun:.0f} s (seed {given.seed})")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
