"""Owns what is measured: every cell of the result tables, and the counts of a full and of a quick run."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harness.sides import DBOS, FLOVYN_PYTHON, FLOVYN_RUST, LANGGRAPH, Launcher, Side
from harness.stack import Stack

DISK, RAM = "disk", "ram"
WORKLOADS = ("w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9")

#: How an end is asked for.
CANCELS = ("hard", "graceful")

#: How many children a parent has, and how many such families follow each other: one child, few, some, most.
Families = tuple[tuple[int, int], tuple[int, int], tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    steps: tuple[int, int]  # the second for what a process runs once its code is warm, on the RAM disk only
    agents: tuple[tuple[int, int], tuple[int, int]]
    turns: tuple[int, ...]
    entries_turns: int
    payloads: tuple[int, ...]
    crowds: tuple[int, ...]
    evicted: int
    crash: tuple[int, int]
    work: tuple[int, ...]
    families: Families
    trees: tuple[int, int]  # runs of one, and how many


FULL = Scale(
    steps=(200, 2_000),
    agents=((200, 10), (200, 50)),
    turns=(50, 200, 800, 5000),
    entries_turns=800,
    payloads=(1, 8, 32, 256),
    crowds=(500, 10_000),
    evicted=10_000,
    crash=(100, 200),
    work=(25, 50, 100, 200),
    families=((1, 100), (100, 10), (1_000, 2), (10_000, 1)),
    trees=(50, 20),
)
QUICK = Scale(
    steps=(50, 100),
    agents=((20, 5), (20, 10)),
    turns=(20, 50),
    entries_turns=50,
    payloads=(1, 8),
    crowds=(50,),
    evicted=50,
    crash=(30, 60),
    work=(25, 50, 100),
    families=((1, 20), (10, 3), (20, 2), (40, 1)),
    trees=(10, 3),
)


@dataclass(frozen=True)
class Cell:
    """One thing to measure: a workload at one size by one participant, in processes that follow each other."""

    workload: str
    size: int
    who: str
    commands: tuple[tuple[str, ...], ...]
    form: str = ""
    media: tuple[str, ...] = (DISK, RAM)
    rounds: int = 1_000_000
    limit_s: float = 300.0
    stack: Stack | None = None

    @property
    def variant(self) -> str:
        """The participant, with what tells its variants apart."""
        return f"{self.who}, {self.form}" if self.form else self.who


def _crash(command: list[str], kill_at: int) -> tuple[str, ...]:
    return (sys.executable, "-m", "harness.crash", str(kill_at), *command)


def _steps_of_ours(who: str, run: Launcher, scale: Scale) -> Iterator[Cell]:
    for steps in scale.steps:
        yield Cell("w1", steps, who, (tuple(run("w1", steps)),), media=_media(steps, scale))
    for agents, steps in scale.agents:
        media = (DISK, RAM) if (agents, steps) == scale.agents[0] else (RAM,)
        yield Cell("w2", agents * steps, who, (tuple(run("w2", agents, steps)),), media=media)


def _media(steps: int, scale: Scale) -> tuple[str, ...]:
    return (DISK, RAM) if steps == scale.steps[0] else (RAM,)


def family(run: Launcher, children: int, times: int) -> tuple[tuple[str, ...], ...]:
    """Return the programs of one fan-out: how fast, and what the parent costs while it waits."""
    fast, waiting = tuple(run("w8", children, times)), tuple(run("w8_waiting", children))
    return (fast, waiting) if children > 1 else (fast,)


def _ours(who: str, run: Launcher, scale: Scale) -> Iterator[Cell]:
    yield from _steps_of_ours(who, run, scale)
    conversations = [(turns, "stepwise") for turns in scale.turns] + [(scale.entries_turns, "entries")]
    for turns, form in conversations:
        grow, recover = run("w3", turns, form), run("w3_recover", turns, form)
        shown = "" if form == "stepwise" else "entries only"
        yield Cell("w3", turns, who, (tuple(grow), tuple(recover)), shown)
    for size in scale.payloads:
        for form in ("text", "bytes", "file"):
            if (form == "text" and size == 256) or (form == "file" and size != max(scale.payloads)):
                continue  # as JSON, 256 MiB of text is at the ceiling anyway
            write, read = run("w4", size, form), run("w4_read", size, form)
            yield Cell("w4", size, who, (tuple(write), tuple(read)), form)
    for crowd in scale.crowds:
        yield Cell("w5", crowd, who, (tuple(run("w5", crowd)),))
    evicted = [tuple(run("w5_evicted", scale.evicted, half)) for half in ("begin", "resume")]
    yield Cell("w5", scale.evicted, who, tuple(evicted), "evicted")
    kill_at, total = scale.crash
    yield Cell("w6", total, who, (_crash(run("w6_recover", total), kill_at),))
    for turns in scale.work:
        yield Cell("w7", turns, who, (tuple(run("w7", turns)),))
    if who == FLOVYN_PYTHON:
        for children, times in scale.families:
            yield Cell("w8", children, who, family(run, children, times))
        runs, trees = scale.trees
        for mode in CANCELS:
            yield Cell("w9", runs, who, (tuple(run("w9", runs, trees, mode)),), mode)


def _ours_in_node(who: str, run: Launcher, scale: Scale) -> Iterator[Cell]:
    """Return what tells the languages apart: a step alone, many at once, and a signal."""
    yield from _steps_of_ours(who, run, scale)
    for crowd in scale.crowds:
        yield Cell("w5", crowd, who, (tuple(run("w5", crowd)),))


def _dbos(run: Launcher, scale: Scale) -> Iterator[Cell]:
    agents, steps = scale.agents[0]
    for count in scale.steps:
        for api in ("async", "blocking"):
            yield Cell("w1", count, DBOS, (tuple(run("w1", count, api)),), f"{api} API", media=_media(count, scale))
    yield Cell("w2", agents * steps, DBOS, (tuple(run("w2", agents, steps)),))
    for turns in scale.turns:
        halves = tuple(tuple(run("w3", turns, half)) for half in ("grow", "recover"))
        yield Cell("w3", turns, DBOS, halves, media=(RAM,), rounds=1 if turns > 800 else 1_000_000)
    for size in scale.payloads:
        yield Cell("w4", size, DBOS, (tuple(run("w4", size)),), "text", media=(RAM,))
    for crowd in scale.crowds:
        rounds, limit = (1, 900.0) if crowd > 1000 else (1_000_000, 300.0)
        yield Cell("w5", crowd, DBOS, (tuple(run("w5", crowd)),), media=(RAM,), rounds=rounds, limit_s=limit)
    kill_at, total = scale.crash
    yield Cell("w6", total, DBOS, (_crash(run("w6_recover", total), kill_at),))
    for turns in scale.work:
        yield Cell("w7", turns, DBOS, (tuple(run("w7", turns)),), media=(RAM,))
    for children, times in scale.families:
        media = (DISK, RAM) if children <= 100 else (RAM,)
        rounds, limit = (1, 900.0) if children > 1_000 else (1_000_000, 300.0)
        yield Cell("w8", children, DBOS, family(run, children, times), media=media, rounds=rounds, limit_s=limit)


def _langgraph(run: Launcher, scale: Scale) -> Iterator[Cell]:
    agents, steps = scale.agents[0]
    for count in scale.steps:
        for api, shown in (("graph", "graph, sync"), ("task", "@task*")):
            yield Cell("w1", count, LANGGRAPH, (tuple(run("w1", count, api)),), shown, media=_media(count, scale))
    yield Cell("w2", agents * steps, LANGGRAPH, (tuple(run("w2", agents, steps)),), "sync")
    for turns in scale.turns:
        for channel, shown, most in (("full", "add_messages", 200), ("delta", "DeltaChannel", 800)):
            if turns > most:  # the default writes 14 GB at 800 turns
                continue
            halves = tuple(tuple(run("w3", turns, channel, half)) for half in ("grow", "recover"))
            yield Cell("w3", turns, LANGGRAPH, halves, shown, media=(RAM,), rounds=1 if turns > 200 else 1_000_000)
    for size in scale.payloads:
        yield Cell("w4", size, LANGGRAPH, (tuple(run("w4", size)),), "text", media=(RAM,))
    for crowd in scale.crowds:
        rounds, limit = (1, 900.0) if crowd > 1000 else (1_000_000, 300.0)
        yield Cell("w5", crowd, LANGGRAPH, (tuple(run("w5", crowd)),), media=(RAM,), rounds=rounds, limit_s=limit)
    kill_at, total = scale.crash
    for durability in ("sync", "async"):
        shown = "sync" if durability == "sync" else "async (its default)"
        yield Cell("w6", total, LANGGRAPH, (_crash(run("w6_recover", total, durability), kill_at),), shown)
    for turns in scale.work:
        for channel, shown in (("full", "add_messages"), ("delta", "DeltaChannel")):
            yield Cell("w7", turns, LANGGRAPH, (tuple(run("w7", turns, channel)),), shown, media=(RAM,))


def plan(sides: Mapping[str, Side], scale: Scale, workloads: tuple[str, ...]) -> list[Cell]:
    """Return the cells of the given workloads for every side that can take part, ours beside the peers'."""
    cells: list[Cell] = []
    for name, side in sides.items():
        if side.launch is None:
            continue
        if name in (FLOVYN_PYTHON, FLOVYN_RUST):
            cells += _ours(name, side.launch, scale)
        else:
            others = {DBOS: _dbos, LANGGRAPH: _langgraph}
            cells += others[name](side.launch, scale) if name in others else _ours_in_node(name, side.launch, scale)
    chosen = [cell for cell in cells if cell.workload in workloads]
    return sorted(chosen, key=lambda cell: (cell.workload, cell.size))
