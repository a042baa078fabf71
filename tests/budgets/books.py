"""Owns what the store itself says of a family: the purses of its runs, and what their model calls had reserved."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from backends import PSQL

TASK_COMPLETED = 2
_PURSES = "SELECT id, purse FROM agent_execution"
_CALLS = (
    "SELECT x.id, t.status, t.attempt, t.options FROM task_execution t JOIN agent_execution x ON x.run = t.run "
    "WHERE t.kind = 'llm.generate' ORDER BY x.run, t.segment, t.sequence"
)


@dataclass(frozen=True)
class Call:
    """A model call of a run."""

    is_recorded: bool
    attempts: int
    reserved: int


@dataclass
class Books:
    """What the store says, by the ids of runs."""

    purses: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    calls: dict[str, list[Call]] = field(default_factory=lambda: defaultdict[str, list[Call]](list))


def read(url: str) -> Books:
    """Read the books of all runs of a database."""
    rows = _of_sqlite if url.startswith("sqlite:") else _of_postgres
    books = Books({run: json.loads(purse) for run, purse in rows(url, _PURSES) if purse is not None})
    for run, status, attempts, options in rows(url, _CALLS):
        reserved = json.loads(options).get("reserve", 0) if options else 0
        books.calls[run].append(Call(status == TASK_COMPLETED, attempts, reserved))
    return books


def _of_sqlite(url: str, query: str) -> list[list[Any]]:
    with sqlite3.connect(f"file:{url.removeprefix('sqlite:')}?mode=ro", uri=True) as store:
        return [[str(UUID(bytes=run)), *rest] for run, *rest in store.execute(query)]


def _of_postgres(url: str, query: str) -> list[list[Any]]:
    text = f"SELECT coalesce(json_agg(row_to_json(q)), '[]') FROM ({query}) q"
    # Without it, row-level security shows no row.
    asked = [PSQL, "-X", "-q", "-A", "-t", "-d", url, "-c", "SET flovyn.org = '*'", "-c", text]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    return [list(row.values()) for row in json.loads(done.stdout)]
