"""Owns measuring one cell once: a fresh directory, the stack beside it, the floor around it, its processes' figures."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import floor
from floor import Floor
from harness.measure import MARK
from harness.plan import DISK, Cell
from harness.samples import Sample
from harness.sides import BENCHES
from harness.stack import Running

FLOOR_COMMITS = 300

_SAME_FLOOR = {"s1": "w1", "s2": "w2", "s5": "w5", "s11": "w8"}


class CellFailed(Exception):
    """A program of the cell failed, took too long, or returned something wrong."""


def _run(command: tuple[str, ...], directory: Path, limit_s: float, beside: dict[str, str]) -> dict[str, float]:
    """Run one process to its end and return the figures it printed."""
    environment = (
        os.environ
        | beside
        | {
            "BENCH_DIR": str(directory),
            "BENCH_SPAWNED": repr(time.time()),
            "PYTHONPATH": str(BENCHES),
            "LANGSMITH_TRACING": "false",
            # Modules are imported as anybody's are: compiled once. Where this is set, each import would compile again.
            "PYTHONDONTWRITEBYTECODE": "",
        }
    )
    # Output goes to a file: a reader on a pipe would share the two cores with what is measured.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as complaints:
        try:
            process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=complaints, start_new_session=True, cwd=directory
            )
        except OSError as unavailable:
            raise CellFailed(str(unavailable)) from None
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise CellFailed(f"not done after {limit_s:.0f} s") from None
        finally:
            _end(process)
        output.seek(0)
        lines = [line[len(MARK) :] for line in output if line.startswith(MARK)]
        complaints.seek(0)
        last_words = complaints.read().strip()[-600:]
    # A program may end itself by kill -9 once it has printed its figures: that is how a crash is prepared.
    if process.returncode not in (0, -signal.SIGKILL):
        raise CellFailed(f"ended with {process.returncode}: {last_words}")
    figures: dict[str, float] = {}
    for line in lines:
        figures |= json.loads(line)
    return figures


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a process and of the children in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _step_floor(parent: Path, running: Running | None) -> Floor:
    """Measure one row per commit on what the cell is kept in."""
    if running and running.database:
        return running.database.floor(FLOOR_COMMITS)
    return floor.step(parent, FLOOR_COMMITS)


def _own_floor(cell: Cell, directory: Path, running: Running | None) -> dict[str, float]:
    """Measure the raw floor of the cell's own shape of work, beside the one-row floor that every cell has."""
    if cell.workload in ("s2", "s8", "s11") and running and running.database:
        return {"group_floor_per_s": running.database.grouped_per_s()}
    if cell.workload in ("w2", "s2", "w8", "s11"):
        return {"group_floor_per_s": floor.group(directory).rows_per_s}
    if cell.workload == "w3":
        return {"turn_floor_us": floor.turn(directory).p50_us}
    if cell.workload == "w7":
        text = floor.work(directory, cell.size)
        return {"turn_floor_us": text.p50_us, "text_mb": text.stored / 2**20}
    if cell.workload == "w4":
        return {"payload_floor_ms": floor.payload(directory, cell.size).p50_us / 1e3}
    return {}


def _ratios(cell: Cell, figures: dict[str, float], steps: Floor) -> dict[str, float]:
    """Relate the cell's headline figure to its floor: how many times the floor's time, or what share of its rate."""
    workload = _SAME_FLOOR.get(cell.workload, cell.workload)
    if workload == "w1":
        over = (figures["p50_us"] - steps.p50_us) / 1e3
        return {"floor_ratio": figures["p50_us"] / steps.p50_us, "over_floor_ms": over}
    if workload in ("w2", "w8"):
        rate = figures["steps_per_s" if workload == "w2" else "children_per_s"]
        ratios = {"floor_ratio": rate / steps.rows_per_s, "group_floor_ratio": rate / figures["group_floor_per_s"]}
        if "spawn_p50_ms" in figures:
            ratios["spawn_ratio"] = figures["spawn_p50_ms"] / figures["start_p50_ms"]
        return ratios
    if cell.workload == "w3":
        return {"floor_ratio": figures["turn_last_ms"] * 1e3 / figures["turn_floor_us"]}
    if cell.workload == "w7":
        times = figures["turn_p50_ms"] * 1e3 / figures["turn_floor_us"]
        return {"floor_ratio": times, "text_ratio": figures["stored_mb"] / figures["text_mb"]}
    if cell.workload == "w4":
        return {"floor_ratio": figures["step_ms"] / figures["payload_floor_ms"]}
    waits = ("paced_p50_ms", "evicted_p50_ms", "dispatch_p50_ms")
    wait = next((figures[name] for name in waits if name in figures), None)
    return {} if wait is None else {"floor_ratio": wait * 1e3 / steps.p50_us}


@contextlib.contextmanager
def _beside(cell: Cell, directory: Path) -> Iterator[Running | None]:
    """Start what the cell's programs need, and end it."""
    own = directory / "own"
    own.mkdir()
    directory.chmod(0o755)  # PostgreSQL runs as another user
    if cell.stack is None:
        yield None
        return
    with cell.stack.up(directory) as running:
        yield running


def measure(cell: Cell, medium: str, parent: Path, round_number: int) -> Sample:
    """Measure `cell` once in a new directory under `parent`, which lies on `medium`."""
    start = time.perf_counter()
    figures: dict[str, float] = {}
    error = ""
    steps = Floor([], 0, 0)
    directory = Path(tempfile.mkdtemp(prefix=f"{cell.workload}-", dir=parent))
    try:
        with _beside(cell, directory) as running:
            steps += _step_floor(parent, running)
            beside = running.environment if running else {}
            for command in cell.commands:
                figures |= _run(command, directory / "own", cell.limit_s, beside)
            if running:
                figures |= running.figures()
            shutil.rmtree(directory / "own")
            steps += _step_floor(parent, running)
            figures |= _own_floor(cell, parent, running)
        figures |= _ratios(cell, figures, steps)
        if figures.get("wrong"):
            error = f"{figures['wrong']:.0f} wrong or missing results"
    except (CellFailed, RuntimeError, OSError) as failure:
        error = str(failure)
    except KeyError as missing:
        error = f"printed no {missing}"
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if medium == DISK:
        os.sync()  # what this cell left to be written back shall not slow the next one
    return Sample(
        workload=cell.workload,
        size=cell.size,
        form=cell.form,
        who=cell.who,
        medium=medium,
        round=round_number,
        took_s=round(time.perf_counter() - start, 2),
        floor_p50_us=round(steps.p50_us, 2) if steps.rows else 0.0,
        floor_p99_us=round(steps.p99_us, 2) if steps.rows else 0.0,
        figures=figures,
        error=error,
        floor="PostgreSQL" if cell.stack and cell.stack.postgres else "SQLite",
    )
