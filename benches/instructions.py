"""Counts the instructions of one durable step in Rust on SQLite, by callgrind.

A time moves with the machine and what else it does; a count moves by a few percent, with how threads meet. So it shows
what a change of the code costs a step where times cannot. W1 runs with a few steps and with many: the difference is
steps alone.

Usage: instructions.py [BINARY] [--rounds N]     prints the count of each round and the median. Needed: valgrind.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

FEW, MANY = 200, 1200
RAM = Path("/dev/shm")


def instructions(binary: Path, steps: int) -> int:
    """The instructions of the whole process with so many steps."""
    with tempfile.TemporaryDirectory(dir=RAM if RAM.is_dir() else None) as directory:
        out = Path(directory) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", binary, "w1", str(steps)]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "BENCH_DIR": directory})
        counts = re.findall(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
        return int(counts[-1])


def main() -> None:
    """Counts a few rounds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("binary", nargs="?", type=Path, default=Path("target/release/flovyn-benches"))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    counts = []
    for _ in range(options.rounds):
        few, many = instructions(options.binary, FEW), instructions(options.binary, MANY)
        counts.append((many - few) // (MANY - FEW))
        print(f"{counts[-1]:,} instructions a step", flush=True)
    print(f"median {int(statistics.median(counts)):,}")


if __name__ == "__main__":
    main()
