"""Owns how a measured program looks at itself: percentiles, memory, CPU, files, and the line it prints.

Imported by our side and by the peers' side, so it needs nothing but the standard library, and little of
that: what it imports counts as start-up time of the program that is measured.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

#: Every measured program prints its figures as one line: this mark, then a JSON object.
MARK = "@@"


def directory() -> Path:
    """Return the directory the runner made for this sample (`BENCH_DIR`), on the medium being measured."""
    path = Path(os.environ.get("BENCH_DIR", "."))
    path.mkdir(parents=True, exist_ok=True)
    return path


def url() -> str:
    """Return where our runs are kept: what the runner started (`BENCH_URL`), else a SQLite file in the directory."""
    return os.environ.get("BENCH_URL") or f"sqlite:{directory() / 'flovyn.db'}"


def servers() -> list[int]:
    """Return the process ids of the servers that the runner started (`BENCH_SERVERS`)."""
    return [int(pid) for pid in os.environ.get("BENCH_SERVERS", "").split()]


def spawned_at() -> float:
    """Return the wall-clock time at which the runner started this process (`BENCH_SPAWNED`)."""
    return float(os.environ.get("BENCH_SPAWNED") or time.time())


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of `values` lie; 0.5 is the median. NaN when there are none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def emit(**figures: object) -> None:
    """Print one line of figures for the runner. Units are in the names: `_us`, `_ms`, `_s`, `_mb`, `_kb`."""
    rounded = {name: round(value, 6) if isinstance(value, float) else value for name, value in figures.items()}
    print(MARK + json.dumps(rounded), flush=True)


def rss_mb(*, peak: bool = False, of: int | str = "self") -> float:
    """Return the resident memory of this process, or of another one, in MiB, or the most it ever was."""
    wanted = "VmHWM:" if peak else "VmRSS:"
    with open(f"/proc/{of}/status") as status:
        for line in status:
            if line.startswith(wanted):
                return int(line.split()[1]) / 1024
    raise LookupError(wanted)


def reset_peak() -> None:
    """Forget how much memory this process once used, so that the peak is of what comes now (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def cpu_s() -> float:
    """Return the CPU seconds this process has used, all threads, user and system."""
    return time.process_time()


def cpu_of(pid: int) -> float:
    """Return the CPU seconds another process has used, those of its children that have ended included."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def stored_bytes(directory: Path) -> int:
    """Return the size of all files in `directory`: the database with its log and side files."""
    return sum(entry.stat().st_size for entry in directory.rglob("*") if entry.is_file())


def settled_bytes(directory: Path) -> int:
    """Return the size of the files in `directory` once every write-ahead log is folded into its database.

    Works on a copy, so the engine that is being measured keeps its files as they are. No VACUUM.
    """
    import shutil
    import sqlite3
    import tempfile

    with tempfile.TemporaryDirectory(prefix="settled-", dir=directory.parent) as copy:
        shutil.copytree(directory, copy, dirs_exist_ok=True)
        for log in Path(copy).rglob("*-wal"):
            connection = sqlite3.connect(str(log).removesuffix("-wal"))
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()
        return stored_bytes(Path(copy))


def die() -> NoReturn:
    """End this process as `kill -9` does: no handler runs, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


class Span:
    """Wall-clock and CPU time from its construction on."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), cpu_s()

    @property
    def wall_s(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._wall

    @property
    def cpu_s(self) -> float:
        """CPU seconds of this process since the start."""
        return cpu_s() - self._cpu


def growth(turns_s: Sequence[float]) -> dict[str, float]:
    """Return the median of the first and of the last turns in ms, and how many times longer the last take."""
    window = max(5, len(turns_s) // 20)
    first, last = percentile(turns_s[:window], 0.5), percentile(turns_s[-window:], 0.5)
    return {"turn_first_ms": first * 1e3, "turn_last_ms": last * 1e3, "turn_growth": last / first}
