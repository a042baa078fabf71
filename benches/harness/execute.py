"""Owns measuring one cell once: a fresh directory, the floor around it, its processes, and their lines as figures."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import floor
from floor import Floor
from harness.measure import MARK
from harness.plan import DISK, Cell
from harness.samples import Sample
from harness.sides import BENCHES

FLOOR_COMMITS = 300


class CellFailed(Exception):
    """A program of the cell failed, took too long, or returned something wrong."""


def _run(command: tuple[str, ...], directory: Path, limit_s: float) -> dict[str, float]:
    """Run one process to its end and return the figures it printed."""
    environment = os.environ | {
        "BENCH_DIR": str(directory),
        "BENCH_SPAWNED": repr(time.time()),
        "PYTHONPATH": str(BENCHES),
        "LANGSMITH_TRACING": "false",
        # Modules are imported as anybody's are: compiled once. Where this is set, each import would compile them again.
        "PYTHONDONTWRITEBYTECODE": "",
    }
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


def _own_floor(cell: Cell, directory: Path) -> dict[str, float]:
    """Measure the raw floor of the cell's own shape of work, beside the one-row floor that every cell has."""
    if cell.workload == "w2":
        return {"group_floor_per_s": floor.group(directory).rows_per_s}
    if cell.workload == "w3":
        return {"turn_floor_us": floor.turn(directory).p50_us}
    if cell.workload == "w4":
        return {"payload_floor_ms": floor.payload(directory, cell.size).p50_us / 1e3}
    return {}


def _ratios(cell: Cell, figures: dict[str, float], steps: Floor) -> dict[str, float]:
    """Relate the cell's headline figure to its floor: how many times the floor's time, or what share of its rate."""
    if cell.workload == "w1":
        return {"floor_ratio": figures["p50_us"] / steps.p50_us}
    if cell.workload == "w2":
        rate = figures["steps_per_s"]
        return {"floor_ratio": rate / steps.rows_per_s, "group_floor_ratio": rate / figures["group_floor_per_s"]}
    if cell.workload == "w3":
        return {"floor_ratio": figures["turn_last_ms"] * 1e3 / figures["turn_floor_us"]}
    if cell.workload == "w4":
        return {"floor_ratio": figures["step_ms"] / figures["payload_floor_ms"]}
    if cell.workload == "w5":
        paced = figures.get("paced_p50_ms", figures.get("evicted_p50_ms"))
        return {} if paced is None else {"floor_ratio": paced * 1e3 / steps.p50_us}
    return {}


def measure(cell: Cell, medium: str, parent: Path, round_number: int) -> Sample:
    """Measure `cell` once in a new directory under `parent`, which lies on `medium`."""
    start = time.perf_counter()
    figures: dict[str, float] = {}
    error = ""
    steps = floor.step(parent, FLOOR_COMMITS)
    directory = Path(tempfile.mkdtemp(prefix=f"{cell.workload}-", dir=parent))
    try:
        for command in cell.commands:
            figures |= _run(command, directory, cell.limit_s)
        shutil.rmtree(directory)
        steps += floor.step(parent, FLOOR_COMMITS)
        figures |= _own_floor(cell, parent)
        figures |= _ratios(cell, figures, steps)
        if figures.get("wrong"):
            error = f"{figures['wrong']:.0f} wrong or missing results"
    except CellFailed as failure:
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
        floor_p50_us=round(steps.p50_us, 2),
        floor_p99_us=round(steps.p99_us, 2),
        figures=figures,
        error=error,
    )
