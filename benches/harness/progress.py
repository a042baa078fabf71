"""Owns the progress log of W6: what the killed program leaves behind for `harness.crash`.

A module of its own because it is imported by programs whose start-up is measured.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from harness.measure import directory


def log_path() -> Path:
    """Return the log's place, the same for both lives of a program."""
    return directory() / "progress.log"


def life() -> int:
    """Return 1 before the kill and 2 after it."""
    return int(os.environ.get("BENCH_LIFE", "1"))


def note(word: str, number: int = 0, at: float | None = None) -> None:
    """Append one line of progress in a single write, which survives the kill of this process."""
    line = f"{word} {number} {time.time() if at is None else at!r}\n"
    with open(log_path(), "ab", buffering=0) as log:
        log.write(line.encode())
