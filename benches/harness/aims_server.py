"""Owns the aims of the servers: what was promised, and how it is read off the samples."""

from __future__ import annotations

from collections.abc import Iterator

from harness.aim import Aim, Reader, times
from harness.aims import cancelled, fan_out
from harness.plan import CANCELS, DISK, RAM
from harness.plan_server import LIBRARY, ON_POSTGRES, ON_SQLITE, ServerScale
from harness.samples import Samples
from harness.sides import DBOS, FLOVYN_PYTHON, FLOVYN_RUST, RESTATE


def _of_both(who: str, read: Reader, scale: ServerScale) -> Iterator[Aim]:
    for medium in (DISK, RAM):
        over = read.median("s1", scale.steps, "over_floor_ms", medium, ON_POSTGRES.shown)
        yield Aim("S1 remote step beyond the raw PostgreSQL commit", who, medium, 1.0, "ms", over)
    for figure, limit in (("paced_p50_ms", 3.0), ("paced_p99_ms", 6.0)):
        measured = read.median("s5", scale.crowd, figure, RAM, ON_POSTGRES.shown)
        yield Aim(f"S5 signal to resumed, {figure[6:9]}, remote on PostgreSQL", who, RAM, limit, "ms", measured)


def server_aims(samples: Samples, scale: ServerScale) -> Iterator[Aim]:
    """Yield every aim of both sides with what was measured."""
    python, rust = Reader(samples, FLOVYN_PYTHON), Reader(samples, FLOVYN_RUST)
    yield from _of_both(FLOVYN_PYTHON, python, scale)
    yield from _of_both(FLOVYN_RUST, rust, scale)

    agents, steps = scale.agents
    rate = "steps_per_s"
    dbos = Reader(samples, DBOS).median("s2", agents * steps, rate, RAM, LIBRARY.shown)
    restate = Reader(samples, RESTATE).median("s2", agents * steps, rate, RAM, "its server")
    for stack in (LIBRARY, ON_POSTGRES):
        ours = python.median("s2", agents * steps, rate, RAM, stack.shown)
        for peer, theirs, limit in ((f"{DBOS} on PostgreSQL", dbos, 10.0), (RESTATE, restate, 3.0)):
            text = f"S2 {agents} agents x {steps} steps, {stack.shown}, against {peer}"
            yield Aim(text, FLOVYN_PYTHON, RAM, limit, "x", times(ours, theirs), at_most=False)
    for size in scale.payloads:
        for stack in (ON_SQLITE, ON_POSTGRES):
            wrong = python.worst("s4", size, "wrong", RAM, stack.shown)
            text = f"S4 a step output of {size} MiB is read back by another worker, {stack.shown}"
            yield Aim(text, FLOVYN_PYTHON, RAM, 0, "wrong", wrong)
    for stack in (ON_SQLITE, ON_POSTGRES):
        taken = python.median("s10", scale.kills, "takeover_p99_ms", RAM, stack.shown)
        text = f"S10 kill -9 of a worker to another that goes on, p99, {stack.shown}"
        yield Aim(text, FLOVYN_PYTHON, RAM, 1_000, "ms", taken)
        for mode in CANCELS:
            yield cancelled("s12", scale.trees[0], python, f"{mode}, {stack.shown}", 1_000)
        for figure, text, limit, unit in (
            ("server_start_mb", "memory of a server before any work", 60.0, "MB"),
            ("server_idle_percent", "CPU of a server with an idle worker", 1.0, "% of a core"),
            ("idle_cpu_percent", "CPU of an idle worker", 1.0, "% of a core"),
        ):
            measured = python.median("s9", 1, figure, RAM, stack.shown)
            yield Aim(f"S9 {text}, {stack.shown}", FLOVYN_PYTHON, RAM, limit, unit, measured)
    peers = {
        f"{DBOS} on PostgreSQL": (Reader(samples, DBOS), LIBRARY.shown, 10.0),
        RESTATE: (Reader(samples, RESTATE), "its server", 3.0),
    }
    for stack in (LIBRARY, ON_SQLITE, ON_POSTGRES):
        yield from fan_out("s11", scale.families, python, stack.shown, peers)
