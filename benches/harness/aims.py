"""Owns the aims: what was promised, how it is read off the samples, and whether it is met."""

from __future__ import annotations

from collections.abc import Iterator

from harness.aim import Aim, Reader, times
from harness.plan import CANCELS, DISK, RAM, Families, Scale
from harness.samples import Samples
from harness.sides import DBOS, FLOVYN_NODE, FLOVYN_PYTHON, FLOVYN_RUST


def _aims_of(who: str, read: Reader, scale: Scale) -> Iterator[Aim]:
    python = who == FLOVYN_PYTHON
    alone, (agents, steps) = scale.steps[0], scale.agents[0]
    turns = f"T = {max(scale.turns)} against T = {min(scale.turns)}"

    def aim(text: str, limit: float, unit: str, measured: float | None, medium: str = RAM, at_most: bool = True) -> Aim:
        return Aim(text, who, medium, limit, unit, measured, at_most)

    step_ratio = read.median("w1", alone, "floor_ratio", DISK)
    yield aim("W1 sequential step against the raw commit", 2.0 if python else 1.3, "x", step_ratio, medium=DISK)
    software = read.median("w1", alone, "p50_us")
    yield aim("W1 software cost of a step (fsync is free)", 150 if python else 60, "us", software)
    rate = read.median("w2", agents * steps, "steps_per_s")
    yield aim(f"W2 {agents} agents x {steps} steps", 6000 if python else 20_000, "steps/s", rate, at_most=False)
    yield aim(f"W3 turn time flat: {turns}", 1.25, "x", read.growth("w3", scale.turns, "turn_last_ms"))
    yield aim(f"W3 recovery flat: {turns}", 1.5, "x", read.growth("w3", scale.turns, "recover_ms"))
    ratios = [read.median("w3", size, "stored_ratio") for size in scale.turns if size >= 200]
    known = [ratio for ratio in ratios if ratio is not None]
    yield aim("W3 bytes stored against content, worst of T >= 200", 1.3, "x", max(known) if known else None)
    for form in ("text", "bytes"):
        yield aim(f"W4 32 MiB output, {form}", 80, "ms", read.median("w4", 32, "step_ms", form=form))
    for form, limit in (("bytes", 320), ("file", 64)):
        grown = read.median("w4", 256, "rss_growth_mb", form=form)
        yield aim(f"W4 256 MiB output, {form}: memory beside the output itself", limit, "MB", grown)
    crowd, total = min(scale.crowds), scale.crash[1]
    yield aim(f"W5 signal to resumed, p50, {crowd} waiting", 1.0, "ms", read.median("w5", crowd, "paced_p50_ms"))
    # In the large crowd, where the database's page caches have their full size and no longer count as agents.
    most = max(scale.crowds)
    yield aim(f"W5 a parked agent, of {most:,}", 10, "KB", read.median("w5", most, "kb_per_agent"))
    evicted = read.median("w5", scale.evicted, "kb_per_evicted", form="evicted")
    yield aim("W5 an evicted agent (0 within what memory use can resolve)", 0.25, "KB", evicted)
    yield aim("W5 10,000 waiting agents, whole process", 250, "MB", read.median("w5", 10_000, "rss_mb"))
    idle = read.median("w5", most, "idle_cpu_percent")
    yield aim(f"W5 CPU while {most:,} agents wait", 1.0, "% of a core", idle)
    yield aim("W6 process start to first new step after kill -9", 150, "ms", read.median("w6", total, "first_step_ms"))
    if python:
        yield aim("W6 of which import", 60, "ms", read.median("w6", total, "import_ms"))
    for medium in (DISK, RAM):
        for figure, text in (("lost", "finished steps run again"), ("missing", "steps never run")):
            lost = read.worst("w6", total, figure, medium)
            yield aim(f"W6 {text} after kill -9, any round", 0, "steps", lost, medium=medium)
    most, fewest = max(scale.work), min(scale.work)
    stored = [read.median("w7", size, "stored_mb") for size in (fewest, most)]
    grown = stored[1] * fewest / stored[0] / most if stored[0] and stored[1] else None
    yield aim(f"W7 bytes stored per turn flat: T = {most} against T = {fewest}", 1.1, "x", grown)
    flat = f"W7 turn time flat, whatever the model reads: T = {most} against T = {fewest}"
    yield aim(flat, 1.5, "x", read.growth("w7", scale.work, "turn_p50_ms"))
    yield aim(
        f"W7 bytes stored against the text stored raw, T = {most}", 1.3, "x", read.median("w7", most, "text_ratio")
    )


def fan_out(
    workload: str,
    families: Families,
    read: Reader,
    form: str,
    peers: dict[str, tuple[Reader, str, float]],
) -> Iterator[Aim]:
    """Yield the aims of a parent and its children in one form; `peers` say against whom, and how much."""
    one, few, some, most = (children for children, _ in families)
    where = f", {form}" if form else ""

    def aim(text: str, limit: float, unit: str, measured: float | None, at_most: bool = True) -> Aim:
        return Aim(f"{workload.upper()} {text}{where}", FLOVYN_PYTHON, RAM, limit, unit, measured, at_most)

    rate = read.median(workload, some, "children_per_s", form=form)
    for peer, (theirs, their_form, limit) in peers.items():
        ratio = times(rate, theirs.median(workload, some, "children_per_s", form=their_form))
        yield aim(f"{some:,} children a second against {peer}", limit, "x", ratio, at_most=False)
    grown = times(*(read.median(workload, size, "us_per_child", form=form) for size in (most, few)))
    yield aim(f"a child flat: of {most:,} against of {few:,}", 1.3, "x", grown)
    yield aim(
        "spawn to the child's first line against a start",
        1.5,
        "x",
        read.median(workload, one, "spawn_ratio", form=form),
    )
    held = read.median(workload, most, "kb_per_child", form=form)
    yield aim(f"a waiting parent of {most:,}, memory per child", 2.0, "KB", held)


def cancelled(workload: str, runs: int, read: Reader, form: str, limit_ms: float) -> Aim:
    """Return the aim of a tree that is cancelled in one form."""
    text = f"{workload.upper()} cancelling a tree of {runs} runs to its last stream and command, p99, {form}"
    return Aim(text, FLOVYN_PYTHON, RAM, limit_ms, "ms", read.median(workload, runs, "gone_p99_ms", form=form))


def _aims_of_node(samples: Samples, scale: Scale) -> Iterator[Aim]:
    """Yield what Node may cost beside Rust."""
    read, rust = Reader(samples, FLOVYN_NODE), Reader(samples, FLOVYN_RUST)
    cells = [(f"W1 {steps:,} steps", "w1", steps, "p50_us") for steps in scale.steps]
    cells += [(f"W2 {some} agents x {steps} steps", "w2", some * steps, "step_p50_ms") for some, steps in scale.agents]
    for text, workload, size, figure in cells:
        ours, theirs = read.median(workload, size, figure), rust.median(workload, size, figure)
        yield Aim(f"{text}, a step in Node against one in Rust", FLOVYN_NODE, RAM, 2.0, "x", times(ours, theirs))


def aims(samples: Samples, scale: Scale) -> list[Aim]:
    """Return every aim of our sides with what was measured."""
    sides = (FLOVYN_PYTHON, FLOVYN_RUST)
    ours = [aim for who in sides for aim in _aims_of(who, Reader(samples, who), scale)]
    peers = {DBOS: (Reader(samples, DBOS), "", 10.0)}
    families = fan_out("w8", scale.families, Reader(samples, FLOVYN_PYTHON), "", peers)
    python = Reader(samples, FLOVYN_PYTHON)
    cancels = [cancelled("w9", scale.trees[0], python, mode, 250) for mode in CANCELS]
    return [*ours, *families, *cancels, *_aims_of_node(samples, scale)]
