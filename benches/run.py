"""Owns a run of the benchmarks: who takes part, the rounds, the progress shown, and where results go.

All participants are interleaved round by round, each sample in a new directory between two measurements of the raw
SQLite floor, on the disk and on a RAM disk. `make bench` calls this file; see README.md.
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
from harness.execute import measure
from harness.plan import DISK, FULL, QUICK, RAM, WORKLOADS, Cell, plan
from harness.report import TABLES, number, render
from harness.samples import Samples
from harness.sides import BENCHES, DBOS, LANGGRAPH, WORK, Side, flovyn_python, flovyn_rust, peer

RAM_DISK = Path("/dev/shm")
GIVE_UP_AFTER = 2  # failures of one cell on one medium


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Flovyn beside the raw SQLite floor, DBOS and LangGraph.")
    parser.add_argument("--rounds", type=int, help="samples per cell that have to count (default 5; quick: 1)")
    parser.add_argument("--only", default=",".join(WORKLOADS), help="workloads, e.g. w1,w2")
    parser.add_argument("--medium", choices=(DISK, RAM), help="measure on one medium alone")
    parser.add_argument("--quick", action="store_true", help="tiny counts: shows that everything works")
    parser.add_argument("--no-peers", action="store_true", help="leave out DBOS and LangGraph")
    parser.add_argument("--no-build", action="store_true", help="use our release builds as they are")
    parser.add_argument("--python", type=Path, help="an interpreter that has flovyn, instead of a release build")
    parser.add_argument("--disk", type=Path, default=WORK / "data", help="a directory on the disk to measure")
    parser.add_argument("--output", type=Path, help="where the report goes (default: RESULTS.md of a full run)")
    parser.add_argument("--render", type=Path, metavar="SAMPLES", help="only write the report of an earlier run")
    options = parser.parse_args()
    options.workloads = tuple(name.strip().lower() for name in options.only.split(","))
    unknown = set(options.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"unknown workloads: {', '.join(sorted(unknown))}; known: {', '.join(WORKLOADS)}")
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.scale = QUICK if options.quick else FULL
    whole = not options.quick and options.workloads == WORKLOADS and options.medium is None and not options.no_peers
    options.output = options.output or (BENCHES / "RESULTS.md" if whole else WORK / "results-partial.md")
    return options


def _sides(options: argparse.Namespace) -> dict[str, Side]:
    """Set up everyone who takes part, and say who cannot."""
    sides = [
        flovyn_python(options.python, build=not options.no_build),
        flovyn_rust(build=not options.no_build),
    ]
    if not options.no_peers:
        subprocess.run([sys.executable, BENCHES / "peers" / "setup.py"], check=True)
        sides += [peer(DBOS), peer(LANGGRAPH)]
    for side in sides:
        print(f"{side.name} {side.version}" if side.launch else f"{side.name}: left out, {side.absent}", flush=True)
    return {side.name: side for side in sides}


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
    return machine.describe(options.disk, versions, left_out, options.rounds)


def _write(options: argparse.Namespace, samples: Samples, preamble: str) -> None:
    options.output.write_text(render(samples, options.scale, preamble))
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
    cells = plan(sides, options.scale, options.workloads)
    directories = {}
    try:
        for medium, parent in media.items():
            parent.mkdir(parents=True, exist_ok=True)
            directories[medium] = Path(tempfile.mkdtemp(prefix="flovyn-bench-", dir=parent))
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
