"""Owns how the commits of a store are counted from outside, whoever writes to it and by whatever engine.

SQLite with a write-ahead log: `iChange` of the wal-index (`-shm`), which grows by one with each commit. SQLite with a
rollback journal: the change counter of the database's header, which does the same. PostgreSQL: the next transaction
id, which grows by one with each transaction that writes, whether it commits or not; reads take none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness.measure import directory

# Where the counters stand: https://sqlite.org/walformat.html and https://sqlite.org/fileformat2.html.
_SHM_CHANGES, _HEADER_CHANGES = 8, 24
_NEXT_ID = "SELECT pg_snapshot_xmax(pg_current_snapshot())"


def commits() -> int:
    """Return a counter of the store that this program uses; the difference of two is the commits in between."""
    postgres = os.environ.get("BENCH_PG")
    if postgres:
        return _next_transaction(postgres)
    folder = Path(os.environ.get("BENCH_STORED") or directory())
    return sum(_changes(path) for path in sorted(folder.glob("*.db")))


def _changes(path: Path) -> int:
    log = path.with_name(f"{path.name}-shm")
    if log.exists():
        return _word(log, _SHM_CHANGES, sys.byteorder)
    return _word(path, _HEADER_CHANGES, "big")


def _word(path: Path, offset: int, order: str) -> int:
    with path.open("rb") as file:
        file.seek(offset)
        return int.from_bytes(file.read(4), order)  # type: ignore[arg-type]


def _next_transaction(url: str) -> int:
    from harness.postgres import programs

    psql = (programs() or Path()) / "psql"
    asked = [psql, "-X", "-A", "-t", "-q", "-d", url, "-c", _NEXT_ID]
    return int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
