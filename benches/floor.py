"""Owns the raw SQLite floors: what the storage itself costs at the durability the engines promise.

Every floor is WAL with synchronous=FULL: a transaction is on stable storage when COMMIT returns.

* step:    one row of 200 bytes per transaction. Nothing that acknowledges each step can be faster.
* group:   200 such rows per transaction. The bound for many agents that share a commit.
* turn:    three rows, 2 + 4 + 4 KiB, per transaction: one conversation turn.
* work:    two rows, 4 + 4 KiB, per transaction: one turn of an agent that works with a tool, after a row of 2 KiB.
* payload: one value of n MiB as rows of 64 KiB in one transaction (faster than one long row).

Usage: floor.py [DIRECTORY] [MiB ...]     prints one line per floor. The runner imports it instead.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.content import ANSWER_BYTES, TOOL_BYTES, USER_BYTES, noise_bytes, prose
from harness.measure import emit, percentile, stored_bytes

STEP_BYTES = 200
GROUP_ROWS = 200
CHUNK_BYTES = 64 << 10


@dataclass(frozen=True)
class Floor:
    """The commit times of one floor, in seconds, and what it left on the medium."""

    commits_s: list[float]
    rows: int
    stored: int

    @property
    def p50_us(self) -> float:
        return percentile(self.commits_s, 0.5) * 1e6

    @property
    def p99_us(self) -> float:
        return percentile(self.commits_s, 0.99) * 1e6

    @property
    def rows_per_s(self) -> float:
        return self.rows / sum(self.commits_s)

    def __add__(self, other: Floor) -> Floor:
        return Floor(self.commits_s + other.commits_s, self.rows + other.rows, self.stored + other.stored)


@contextmanager
def _database(parent: Path) -> Iterator[tuple[sqlite3.Connection, Path]]:
    """Open a new database under `parent`, so that it lies on the medium being measured; remove it after."""
    with tempfile.TemporaryDirectory(prefix="floor-", dir=parent) as directory:
        connection = sqlite3.connect(f"{directory}/floor.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE step(seq INTEGER PRIMARY KEY, body)")
        try:
            yield connection, Path(directory)
        finally:
            connection.close()


def _commit(connection: sqlite3.Connection, first: int, bodies: Sequence[str | memoryview]) -> float:
    """Insert `bodies` as rows in one transaction and return how long that took, in seconds."""
    rows = [(first + offset, body) for offset, body in enumerate(bodies)]
    start = time.perf_counter()
    connection.execute("BEGIN IMMEDIATE")
    if len(rows) == 1:
        connection.execute("INSERT INTO step VALUES(?, ?)", rows[0])
    else:
        connection.executemany("INSERT INTO step VALUES(?, ?)", rows)
    connection.execute("COMMIT")
    return time.perf_counter() - start


def _floor(parent: Path, commits: int, bodies: list[str]) -> Floor:
    with _database(parent) as (connection, directory):
        times = [_commit(connection, i * len(bodies), bodies) for i in range(commits)]
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Floor(times, commits * len(bodies), stored_bytes(directory))


def step(parent: Path, commits: int = 300) -> Floor:
    """Measure one row of 200 bytes per transaction."""
    return _floor(parent, commits, ["x" * STEP_BYTES])


def group(parent: Path, commits: int = 20) -> Floor:
    """Measure 200 rows of 200 bytes per transaction."""
    return _floor(parent, commits, ["x" * STEP_BYTES] * GROUP_ROWS)


def turn(parent: Path, commits: int = 100) -> Floor:
    """Measure one conversation turn per transaction."""
    return _floor(parent, commits, [prose(USER_BYTES, 0), prose(ANSWER_BYTES, 1), prose(TOOL_BYTES, 2)])


def work(parent: Path, turns: int) -> Floor:
    """Measure the text of W7 alone: the prompt, then an answer and a tool result per transaction."""
    with _database(parent) as (connection, directory):
        _commit(connection, 0, [prose(USER_BYTES, 0)])
        times = [
            _commit(connection, 1 + 2 * turn, [prose(ANSWER_BYTES, 2 * turn + 1), prose(TOOL_BYTES, 2 * turn + 2)])
            for turn in range(turns)
        ]
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Floor(times, 2 * turns, stored_bytes(directory))


def payload(parent: Path, mebibytes: int, commits: int = 3) -> Floor:
    """Measure one incompressible value of `mebibytes` MiB per transaction."""
    body = memoryview(noise_bytes(mebibytes << 20))
    chunks = [body[start : start + CHUNK_BYTES] for start in range(0, len(body), CHUNK_BYTES)]
    with _database(parent) as (connection, directory):
        times = []
        for _ in range(commits):
            times.append(_commit(connection, 0, chunks))
            connection.execute("DELETE FROM step")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Floor(times, commits, stored_bytes(directory))


def main(arguments: list[str]) -> None:
    parent = Path(arguments[0] if arguments else ".")
    floors = {"step": step(parent), "group": group(parent), "turn": turn(parent)}
    floors |= {f"payload-{size}": payload(parent, int(size)) for size in arguments[1:] or ["1", "8"]}
    for name, floor in floors.items():
        emit(floor=name, p50_us=floor.p50_us, p99_us=floor.p99_us, rows_per_s=floor.rows_per_s, bytes=floor.stored)


if __name__ == "__main__":
    main(sys.argv[1:])
