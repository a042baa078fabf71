"""Owns what of a journal does not depend on when and by whom it was written; reads it from SQLite and PostgreSQL."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections import defaultdict
from typing import Any

from backends import PSQL

Journal = dict[str, list[Any]]
"""The rows of a run by their table."""

_JSON = b"\x04"
"""The tag of JSON that is not packed, in a cell of PostgreSQL."""
_AT = "segment, sequence"
_NAMED = "label_name, label_key, seen, once_name, once_n"
_ENTRY = "id, parent_id, depth, thread, role, entry_type, turn_id, metadata"
_TASK = "id, status, placement, attempt, kind, queue"
_ROWS = {
    "agent_op": f"{_AT}, kind, {_NAMED}, count, data, {{target}}, value",
    "agent_entry": f"{_AT}, {_ENTRY}, {_NAMED}, content",
    "task_execution": f"{_AT}, {_TASK}, {_NAMED}, options, input, output",
    "agent_checkpoint": "sequence, leaves, metadata, usage, state",
    "agent_signal": "name, delivery, idempotency_key, consumed_segment, consumed_sequence, payload",
}
_ROLE = 6
_RUN = "id, status, kind, segment, leaf, step_count, input, output"


def _queries(target: str) -> dict[str, str]:
    """Return for each table a query whose first column is the run's key."""
    made = {"agent_execution": f"SELECT key AS run_key, {_RUN} FROM agent_execution"}
    for table, columns in _ROWS.items():
        named = ", ".join(f"t.{column.strip()}" for column in columns.format(target=target).split(","))
        order = "t.number" if table == "agent_signal" and target == "target" else "1, 2, 3"
        if table == "agent_signal" and target != "target":
            order = "t.key"
        made[table] = (
            f"SELECT x.key AS run_key, {named} FROM {table} t JOIN agent_execution x ON x.run = t.run ORDER BY {order}"
        )
    made["failure"] = (
        "SELECT x.key AS run_key, t.segment, t.sequence, t.failure FROM task_execution t "
        "JOIN agent_execution x ON x.run = t.run WHERE t.failure IS NOT NULL ORDER BY 1, 2, 3"
    )
    return made


def _told(failure: str) -> dict[str, Any]:
    """Leave out what is of one language only: where in its code it was raised."""
    return {name: value for name, value in json.loads(failure).items() if name != "traceback"}


def journals(url: str) -> dict[str, Journal]:
    """Read the journals of all runs of a database, by key."""
    found: dict[str, Journal] = defaultdict(lambda: defaultdict(list))
    rows = _of_sqlite if url.startswith("sqlite:") else _of_postgres
    for table, columns in rows(url):
        for key, *values in columns:
            if table == "failure":
                values[-1] = _told(values[-1])
            elif table == "agent_signal" and values[0].startswith("flovyn.child."):
                end = json.loads(values[-1])
                values[-1] = end | ({"failure": _told(json.dumps(end["failure"]))} if "failure" in end else {})
            found[key][table].append(values)
    return dict(found)


def _of_sqlite(url: str) -> Any:
    with sqlite3.connect(f"file:{url.removeprefix('sqlite:')}?mode=ro", uri=True) as store:
        for table, query in _queries("task_id").items():
            yield table, store.execute(query).fetchall()


def _of_postgres(url: str) -> Any:
    for table, query in _queries("target").items():
        text = f"SELECT coalesce(json_agg(row_to_json(q)), '[]') FROM ({query}) q"
        # Without the setting, row-level security shows no row.
        asked = [PSQL, "-X", "-q", "-A", "-t", "-d", url, "-c", "SET flovyn.org = '*'", "-c", text]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"psql ended with {done.returncode}: {done.stderr.strip()}")
        yield table, [[_bytes(value) for value in row.values()] for row in json.loads(done.stdout)]


def _bytes(value: Any) -> Any:
    """Return a value of PostgreSQL's JSON: of JSON that is stored as bytes, what follows its tag."""
    if not isinstance(value, str) or not value.startswith("\\x"):
        return value
    found = bytes.fromhex(value[2:])
    return found[1:] if found[:1] == _JSON else found


def said(journal: Journal) -> list[list[Any]]:
    """Return the entries of a journal of SQLite: role and content."""
    return [[row[_ROLE], json.loads(row[-1])] for row in journal.get("agent_entry", []) if row[-1] is not None]


def difference(one: Journal, other: Journal, names: tuple[str, str]) -> str | None:
    """Tell the first difference of two journals; none where they are equal."""
    for table in sorted(one.keys() | other.keys()):
        wanted, found = one.get(table, []), other.get(table, [])
        for number, (left, right) in enumerate(zip(wanted, found, strict=False)):
            if left != right:
                return f"row {number} of {table} is {right} in {names[1]}, but {left} in {names[0]}"
        if len(wanted) != len(found):
            return f"{table} has {len(found)} rows in {names[1]}, but {len(wanted)} in {names[0]}"
    return None


def spoil(database: str) -> None:
    """Damage the last checkpoint of a SQLite file, as a bad disk would."""
    with sqlite3.connect(database) as store:
        last = "(SELECT max(key) FROM agent_checkpoint)"
        changed = store.execute(f"UPDATE agent_checkpoint SET state = '{{\"at\":0}}' WHERE key = {last}").rowcount
    assert changed == 1, "there is no checkpoint to spoil"
