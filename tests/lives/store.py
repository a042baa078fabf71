"""What the store knows of the generator's runs, for checks and for who has to explain a failure."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

STATUS = (
    "PENDING",
    "RUNNING",
    "WAITING",
    "PAUSED",
    "CANCELLING",
    "COMPLETED",
    "FAILED",
    "CANCELLED",
)
EVENTS = (
    "created resumed waiting woken paused cancelling completed failed cancelled checkpoint entry task_scheduled task_started "
    "task_completed task_failed task_cancelled task_retry task_in_doubt task_quarantined signal timer usage warning retract "
    "lease_lost forked continued no_worker progress"
)
SHOWN = 20
TASK_COMPLETED = 2


def opened(database: str) -> sqlite3.Connection:
    """Open the store of a batch that has ended, to read."""
    store = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    store.row_factory = sqlite3.Row
    return store


def warnings(database: str, names: set[str], told: tuple[str, ...]) -> Iterator[str]:
    """Yield what unedited code was told of itself."""
    with opened(database) as store:
        rows = store.execute(
            "SELECT x.key, e.data FROM event e JOIN agent_execution x ON x.run = e.run WHERE e.data LIKE '%\"warning\"%'"
        ).fetchall()
    for key, data in rows:
        if key in names and json.loads(data).get("warning") in told:
            yield f"{key}: nobody edited the code, but the run warns {data}"


def inherited(database: str) -> dict[str, list[tuple[str, Any]]]:
    """Return for each fork the tasks, by kind and input, whose results it has from its parent."""
    with opened(database) as store:
        rows = store.execute(
            "SELECT x.key, t.kind, t.input FROM agent_execution x JOIN task_execution t ON t.run = x.forked_run "
            "AND t.sequence <= x.forked_sequence AND t.ended_number <= x.forked_high AND t.status = ? "
            "WHERE x.forked_run IS NOT NULL",
            [TASK_COMPLETED],
        ).fetchall()
        forks = store.execute(
            "SELECT key FROM agent_execution WHERE forked_run IS NOT NULL"
        )
        found: dict[str, list[tuple[str, Any]]] = {key: [] for (key,) in forks}
    for key, kind, given in rows:
        text = given.decode() if isinstance(given, bytes) else given
        found[key].append((kind, json.loads(text)))
    return found


def story(database: str, key: str) -> str:
    """Say all that the store knows of a run."""
    with opened(database) as store:
        run = store.execute(
            "SELECT * FROM agent_execution WHERE key = ?", [key]
        ).fetchone()
        if run is None:
            return f"the store has no run {key}"
        at = run["created_at"]
        lines = [
            f"the store on {key}, which is {STATUS[run['status']]}; times in ms since its start:"
        ]
        lines.append("  run: " + _columns(run, at))
        if run["worker"] is not None:
            holder = store.execute(
                "SELECT * FROM worker WHERE id = ?", [run["worker"]]
            ).fetchone()
            lines.append(
                "  its worker: "
                + ("is not registered" if holder is None else _columns(holder, at))
            )
        for what, query in (
            ("task", "SELECT * FROM task_execution WHERE run = ? ORDER BY place"),
            (
                "op",
                "SELECT * FROM agent_op WHERE run = ? AND value IS NULL AND fired IS NULL ORDER BY place",
            ),
            (
                "signal that nobody took",
                "SELECT * FROM agent_signal WHERE run = ? AND consumed_commit IS NULL ORDER BY key",
            ),
            (
                "event",
                f"SELECT * FROM (SELECT * FROM event WHERE run = ? ORDER BY key DESC LIMIT {SHOWN}) ORDER BY key",
            ),
        ):
            lines += [
                f"  {what}: {_columns(row, at)}"
                for row in store.execute(query, [run["run"]])
            ]
        return "\n".join(lines)


def _columns(row: sqlite3.Row, since: int) -> str:
    told: list[str] = []
    columns = dict(row)
    for name, value in columns.items():
        if value is None or name in ("org_id", "input_digest", "key", "run", "digest"):
            continue
        if name == "status":
            value = STATUS[value] if "step_count" in columns else value
        elif name == "kind" and "commit_number" in columns:
            value = EVENTS.split()[value - 1]
        elif isinstance(value, bytes):
            value = value.hex()[:8] if len(value) <= 32 else f"{len(value)} bytes"
        elif isinstance(value, int) and abs(value - since) < 10**9 * 3600:
            value = f"{(value - since) / 1e3:+.1f}"
        told.append(f"{name}={str(value)[:160]}")
    return " ".join(told)
