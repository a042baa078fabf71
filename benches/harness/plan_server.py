"""Owns what is measured with servers: every cell of those tables, and the counts of a full and of a quick run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.plan import CANCELS, FULL, QUICK, RAM, Cell, Families, family
from harness.sides import DBOS, FLOVYN_NODE, FLOVYN_PYTHON, FLOVYN_RUST, RESTATE, Launcher, Side
from harness.stack import Stack

SERVER_WORKLOADS = ("s1", "s2", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12")

LIBRARY = Stack()
ON_SQLITE = Stack(postgres=False, servers=1)
ON_POSTGRES = Stack(servers=1)


@dataclass(frozen=True)
class ServerScale:
    """How much of everything."""

    steps: int
    agents: tuple[int, int]
    payloads: tuple[int, ...]
    crowd: int
    starts: int
    readers: tuple[int, int]
    replicas: tuple[int, ...]
    idle_s: int
    kills: int
    families: Families
    trees: tuple[int, int]


FULL_SERVER = ServerScale(
    200, (200, 10), (32, 200), 500, 200, (1_000, 100), (1, 2, 3), 10, 50, FULL.families, FULL.trees
)
QUICK_SERVER = ServerScale(30, (20, 5), (8,), 30, 20, (50, 20), (1, 2), 2, 5, QUICK.families, QUICK.trees)


def _ours(who: str, run: Launcher, scale: ServerScale) -> Iterator[Cell]:
    agents, steps = scale.agents

    def cell(workload: str, size: int, stack: Stack, *commands: list[str], form: str = "") -> Cell:
        return Cell(workload, size, who, tuple(map(tuple, commands)), form or stack.shown, stack=stack)

    for stack in (LIBRARY, ON_SQLITE, ON_POSTGRES):
        yield cell("s1", scale.steps, stack, run("w1", scale.steps))
        yield cell("s2", agents * steps, stack, run("w2", agents, steps))
        yield cell("s5", scale.crowd, stack, run("w5", scale.crowd))
    if who == FLOVYN_PYTHON:
        for stack in (ON_SQLITE, ON_POSTGRES):
            for size in scale.payloads:
                halves = [run(half, size, "bytes") for half in ("w4", "w4_read")]
                yield cell("s4", size, stack, *halves)
            yield cell("s6", scale.starts, stack, run("dispatch", scale.starts))
            yield cell("s9", 1, stack, run("idle", scale.idle_s))
            yield cell("s10", scale.kills, stack, run("takeover", scale.kills))
            runs, trees = scale.trees
            for mode in CANCELS:
                yield cell("s12", runs, stack, run("w9", runs, trees, mode), form=f"{mode}, {stack.shown}")
        for stack in (LIBRARY, ON_SQLITE, ON_POSTGRES):
            for children, times in scale.families:
                yield cell("s11", children, stack, *map(list, family(run, children, times)))
    else:
        readers, tokens = scale.readers
        for stack in (ON_SQLITE, ON_POSTGRES):
            yield cell("s7", readers, stack, run("fanout", readers, tokens))
        for servers in scale.replicas:
            stack = Stack(servers=servers)
            yield cell("s8", servers, stack, run("replicas", agents, steps), form=stack.shown)


def _ours_in_node(who: str, run: Launcher, scale: ServerScale) -> Iterator[Cell]:
    agents, steps = scale.agents
    for workload, size, command in (
        ("s1", scale.steps, run("w1", scale.steps)),
        ("s2", agents * steps, run("w2", agents, steps)),
        ("s5", scale.crowd, run("w5", scale.crowd)),
    ):
        yield Cell(workload, size, who, (tuple(command),), ON_POSTGRES.shown, stack=ON_POSTGRES)


def _dbos(run: Launcher, scale: ServerScale) -> Iterator[Cell]:
    agents, steps = scale.agents
    for workload, size, command in (
        ("s1", scale.steps, run("w1", scale.steps, "async")),
        ("s2", agents * steps, run("w2", agents, steps)),
        ("s5", scale.crowd, run("w5", scale.crowd)),
    ):
        yield Cell(workload, size, DBOS, (tuple(command),), LIBRARY.shown, stack=LIBRARY)
    for children, times in scale.families:
        how: dict[str, Any] = {"media": (RAM,), "rounds": 1, "limit_s": 900.0} if children > 1_000 else {}
        yield Cell("s11", children, DBOS, family(run, children, times), LIBRARY.shown, stack=LIBRARY, **how)


def _restate(run: Launcher, scale: ServerScale) -> Iterator[Cell]:
    agents, steps = scale.agents
    for workload, size, command in (
        ("s1", scale.steps, run("w1", scale.steps)),
        ("s2", agents * steps, run("w2", agents, steps)),
        ("s5", scale.crowd, run("w5", scale.crowd)),
        ("s9", 1, run("idle", scale.idle_s)),
    ):
        yield Cell(workload, size, RESTATE, (tuple(command),), "its server")
    for children, times in scale.families:
        how: dict[str, Any] = {"media": (RAM,), "rounds": 1, "limit_s": 900.0} if children > 1_000 else {}
        yield Cell("s11", children, RESTATE, (tuple(run("w8", children, times)),), "its server", **how)


def plan_server(sides: Mapping[str, Side], scale: ServerScale, workloads: tuple[str, ...], program: str) -> list[Cell]:
    """Return the cells of the given workloads for every side that can take part; `program` is the `flovyn` command."""
    cells: list[Cell] = []
    for name, side in sides.items():
        if side.launch is None:
            continue
        if name in (FLOVYN_PYTHON, FLOVYN_RUST):
            cells += _ours(name, side.launch, scale)
        elif name == FLOVYN_NODE:
            cells += _ours_in_node(name, side.launch, scale)
        elif name in (DBOS, RESTATE):
            cells += {DBOS: _dbos, RESTATE: _restate}[name](side.launch, scale)
    chosen = [
        replace(cell, stack=cell.stack and replace(cell.stack, program=program))
        for cell in cells
        if cell.workload in workloads
    ]
    return sorted(chosen, key=lambda cell: (cell.workload, cell.size))
