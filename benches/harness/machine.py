"""Owns the words at the top of a report: when, on what machine, with which versions, and by what method."""

from __future__ import annotations

import datetime
import os
import platform
import sqlite3
from pathlib import Path

from harness.sides import run_quietly

_METHOD = (
    "* All participants are interleaved round by round. The floor is the raw storage at the same durability (SQLite:"
    " WAL, synchronous=FULL; PostgreSQL: fsync and synchronous_commit on), measured before and after each sample on the"
    " same medium.",
    "* On the RAM disk an fsync costs nothing: what is left is software cost, and it repeats. On the disk read the"
    " ratios to the floor. Peers run with their defaults, W3 to W5 and 1,000 children on the RAM disk only.",
)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _file_system(path: Path) -> str:
    """Return the type of the file system that holds `path`."""
    best, kind = "", "unknown file system"
    try:
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mount, found, *_ = line.split()
            if path.resolve().is_relative_to(mount) and len(mount) >= len(best):
                best, kind = mount, found
    except OSError:
        pass
    return kind


def _revision() -> str:
    try:
        return run_quietly("git", "describe", "--always", "--dirty")
    except (RuntimeError, OSError):
        return "unknown"


def describe(disk: Path, versions: list[str], left_out: list[str], rounds: int, command: str) -> str:
    """Return the paragraph that lets a reader judge the figures."""
    today = datetime.date.today().strftime("%d %b %Y").lstrip("0")
    processor = f"{_processor()}, {os.cpu_count()} CPUs, {_memory_gb():.0f} GB"
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    everyone = ", ".join([*versions, f"Python {platform.python_version()}", f"SQLite (floor) {sqlite3.sqlite_version}"])
    lines = [
        f"Measured {today} at revision `{_revision()}` by `{command}`.\n",
        f"* Machine: {processor}; {system}; disk: {_file_system(disk)}; RAM disk: tmpfs.",
        f"* Versions: {everyone}.",
        f"* Cells are **median (minimum–maximum)** over up to {rounds} samples that count (column n).",
        *_METHOD,
    ]
    if left_out:
        lines.append(f"* Not measured: {'; '.join(left_out)}.")
    return "\n".join(lines) + "\n"
