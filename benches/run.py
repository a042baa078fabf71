"""Owns a run of the benchmarks: who takes part, the rounds, the progress shown, and where results go.

All participants are interleaved round by round, each sample in a new directory between two measurements of the raw
storage floor, on the disk and on a RAM disk. `make bench` and `make bench-server` call this file; see README.md.
"""

from __future__ import annotations

import argparse
import datetime
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import machine
from harness.aims import aims
from harness.aims_server import server_aims
from harness.execute import measure
from harness.plan import DISK, FULL, QUICK, RAM, WORKLOADS, Cell, plan
from harness.plan_server import FULL_SERVER, QUICK_SERVER, SERVER_WORKLOADS, plan_server
from harness.report import number, render
from harness.samples import Samples
from harness.sides import (
    BENCHES,
    DBOS,
    LANGGRAPH,
    WORK,
    Side,
    flovyn_cli,
    flovyn_node,
    flovyn_python,
    flovyn_rust,
    peer,
    restate,
)
from harness.tables import TABLES

RAM_DISK = Path("/dev/shm")
GIVE_UP_AFTER = 2  # failures of one cell on one medium


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Flovyn beside the storage's raw floor and its peers.")
    parser.add_argument("--server", action="store_true", help="measure on PostgreSQL and through servers (S) instead")
    parser.add_argument("--rounds", type=int, help="samples per cell that have to count (5; server: 3; quick: 1)")
    parser.add_argument("--only", help="workloads, e.g. w1,w2 or s1,s2 (all)")
    parser.add_argument("--medium", choices=(DISK, RAM), help="measure on one medium alone")
    parser.add_argument("--quick", action="store_true", help="tiny counts: shows that everything works")
    parser.add_argument("--no-peers", action="store_true", help="leave out DBOS, LangGraph, Restate")
    parser.add_argument("--no-build", action="store_true", help="use our release builds as they are")
    parser.add_argument("--python", type=Path, help="an interpreter that has flovyn, instead of a release build")
    parser.add_argument("--disk", type=Path, default=WORK / "data", help="a directory on the disk to measure")
    parser.add_argument("--output", type=Path, help="where the report goes (default: RESULTS.md of a full run)")
    parser.add_argument("--render", type=Path, metavar="SAMPLES", help="only write the report of an earlier run")
    options = parser.parse_args()
    only = tuple(name.strip().lower() for name in options.only.split(",")) if options.only else None
    # A workload with servers says so by its name.
    options.server = options.server or bool(only and only[0].startswith("s"))
    known = SERVER_WORKLOADS if options.server else WORKLOADS
    options.workloads = only or known
    unknown = set(options.workloads) - set(known)
    if unknown:
        parser.error(f"unknown workloads: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    options.rounds = options.rounds or (1 if options.quick else 3 if options.server else 5)
    whole = not options.quick and options.workloads == known and options.medium is None and not options.no_peers
    report = BENCHES / ("RESULTS-SERVER.md" if options.server else "RESULTS.md")
    options.output = options.output or (report if whole else WORK / "results-partial.md")
    return options


def _sides(options: argparse.Namespace) -> dict[str, Side]:
    """Set up everyone who takes part, and say who cannot."""
    sides = [
        flovyn_python(options.python, build=not options.no_build),
        flovyn_rust(build=not options.no_build),
        flovyn_node(build=not options.no_build),
    ]
    if not options.no_peers:
        names = ("dbos", "restate") if options.server else ("dbos", "langgraph")
        subprocess.run([sys.executable, BENCHES / "peers" / "setup.py", *names], check=True)
        sides += [peer(DBOS), restate() if options.server else peer(LANGGRAPH)]
    for side in sides:
        print(f"{side.name} {side.version}" if side.launch else f"{side.name}: left out, {side.absent}", flush=True)
    return {side.name: side for side in sides}


def _cells(options: argparse.Namespace, sides: dict[str, Side]) -> list[Cell]:
    if not options.server:
        return plan(sides, QUICK if options.quick else FULL, options.workloads)
    program, absent = flovyn_cli(build=not options.no_build)
    if absent:
        raise SystemExit(f"the servers cannot be measured: {absent}")
    return plan_server(sides, QUICK_SERVER if options.quick else FULL_SERVER, options.workloads, program)


class Run:
    """One run over all cells: measures, shows progress, keeps every sample."""

    def __init__(self, cells: list[Cell], media: dict[str, Path], rounds: int, lines: Path) -> None:
        self._cells, self._media, self._rounds, self._lines = cells, media, rounds, lines
        self._start, self._done = time.perf_counter(), 0
        self.samples = Samples()

    def _wants(self, cell: Cell, medium: str) -> bool:
        """Return whether a cell needs another sample on this medium."""
        taken = self.samples.of(cell.workload, cell.size, cell.who, cell.form, medium)
        if sum(bool(sample.error) for sample in taken) >= GIVE_UP_AFTER:
            return False
        return medium in cell.media and sum(sample.counts for sample in taken) < min(self._rounds, cell.rounds)

    def go(self) -> None:
        """Measure round by round; up to as many rounds again replace what a noisy disk made worthless."""
        expected = sum(min(self._rounds, cell.rounds) for cell in self._cells for m in cell.media if m in self._media)
        for round_number in range(1, 2 * self._rounds + 1):
            for medium, parent in self._media.items():
                due = [cell for cell in self._cells if self._wants(cell, medium)]
                # Nobody shall always run first, nor always after the same neighbour.
                ordered = due if round_number % 2 else list(reversed(due))
                for cell in ordered:
                    self._measure(cell, medium, parent, round_number, expected)

    def _measure(self, cell: Cell, medium: str, parent: Path, round_number: int, expected: int) -> None:
        self._done += 1
        head = f"[{self._done:3}/{max(expected, self._done)}] {self._clock()} round {round_number}"
        print(f"{head} {medium:4} {cell.workload} {cell.size:>6,}  {cell.variant:28}", end=" ", flush=True)
        sample = measure(cell, medium, parent, round_number)
        self.samples.add(sample, self._lines)
        if sample.error:
            print(f"FAILED: {sample.error.splitlines()[-1][-120:]}", flush=True)
            return
        shown = [column for column in TABLES[cell.workload].columns if column[0] in sample.figures]
        headline = next((column for column in shown if column[0] != "floor_ratio"), None)
        figure = f"{number(sample.figures[headline[0]]):>7} {headline[1]}" if headline else ""
        ratio = sample.figures.get("floor_ratio")
        times = f", {number(ratio)} x floor" if ratio else ""
        noisy = "" if sample.quiet else "  (discarded: the disk is not steady)"
        print(f"{figure}{times}{noisy}", flush=True)

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.perf_counter() - self._start), 60)
        return f"{minutes:3}:{seconds:02}"


def _preamble(options: argparse.Namespace, sides: dict[str, Side]) -> str:
    left_out = [f"{side.name} ({side.absent})" for side in sides.values() if side.launch is None]
    versions = [f"{side.name} {side.version}".strip() for side in sides.values() if side.launch]
    command = "make bench-server" if options.server else "make bench"
    return machine.describe(options.disk, versions, left_out, options.rounds, command)


def _write(options: argparse.Namespace, samples: Samples, preamble: str) -> None:
    if options.server:
        promised = list(server_aims(samples, QUICK_SERVER if options.quick else FULL_SERVER))
    else:
        promised = aims(samples, QUICK if options.quick else FULL)
    options.output.write_text(render(samples, promised, preamble))
    print(f"report: {options.output}")


def main() -> int:
    options = _arguments()
    WORK.mkdir(exist_ok=True)
    if options.render:
        _write(options, Samples.read(options.render), options.render.with_suffix(".md").read_text())
        return 0
    sides = _sides(options)
    media = {DISK: options.disk, RAM: RAM_DISK}
    if options.medium:
        media = {options.medium: media[options.medium]}
    if RAM in media and not RAM_DISK.is_dir():
        print(f"no RAM disk at {RAM_DISK}: measuring on the disk alone")
        del media[RAM]
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    lines = WORK / f"samples-{stamp}.jsonl"
    preamble = _preamble(options, sides)
    lines.with_suffix(".md").write_text(preamble)
    cells = _cells(options, sides)
    directories = {}
    try:
        for medium, parent in media.items():
            parent.mkdir(parents=True, exist_ok=True)
            directories[medium] = Path(tempfile.mkdtemp(prefix="flovyn-bench-", dir=parent))
            directories[medium].chmod(0o755)  # PostgreSQL runs as another user
        run = Run(cells, directories, options.rounds, lines)
        try:
            run.go()
        except KeyboardInterrupt:
            print("\nstopped; the report holds what was measured so far")
    finally:
        for directory in directories.values():
            shutil.rmtree(directory, ignore_errors=True)
    if not any(run.samples):
        print("nothing was measured")
        return 1
    _write(options, run.samples, preamble)
    print(f"samples: {lines}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
