"""Runs every scenario in Python and in Node on a SQLite file each and compares the rows of the run, byte for byte.

Then once more as one run of both, by turns: each process is killed in a step, and one of the other language goes on.
Needs both packages built. Usage: run.py [NAME…]
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import flovyn

HERE = Path(__file__).resolve().parent
LANGUAGES = {
    "Python": [sys.executable, str(HERE / "interpreter.py")],
    "Node": ["node", str(HERE / "interpreter.mjs")],
}
MAX_LIVES = 40

NAMED = ("label_name", "label_key", "seen", "once_name", "once_n")
JOURNAL = {
    "agent_op": ("kind", *NAMED, "fired", "count", "data", "task_id", "value"),
    "agent_entry": (
        *("id", "parent_id", "depth", "thread", "role", "entry_type", "turn_id", "metadata"),
        *(*NAMED, "content"),
    ),
    "task_execution": ("id", "status", "placement", "kind", "queue", *NAMED, "options", "input", "output"),
}
"""What of a journal does not depend on when and by whom it was written, beside segment and sequence."""

Rows = dict[str, list[Any]]


def rows(database: Path) -> Rows:
    """Read what a run has left behind."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as store:
        found: Rows = {
            table: store.execute(
                f"SELECT segment, sequence, {', '.join(columns)} FROM {table} ORDER BY 1, 2"
            ).fetchall()
            for table, columns in JOURNAL.items()
        }
        found["checkpoint"] = store.execute(
            "SELECT sequence, leaves, metadata, usage, state FROM agent_checkpoint"
        ).fetchall()
        found["run"] = store.execute(
            "SELECT id, status, kind, segment, leaf, input, output FROM agent_execution"
        ).fetchall()
        failures = store.execute(
            "SELECT sequence, failure FROM task_execution WHERE failure IS NOT NULL ORDER BY 1"
        ).fetchall()
        found["failure"] = [(sequence, told(json.loads(text))) for sequence, text in failures]
    return found


def told(failure: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is of one language only: where in its code it was raised."""
    return {name: value for name, value in failure.items() if name != "traceback"}


async def begin(url: str, scenario: dict[str, Any]) -> None:
    """Start the run and send its signals."""
    async with flovyn.connect(url) as client:
        handle = await client.start(scenario["agent"], program(scenario), id=scenario["name"])
        for number, (name, value) in enumerate(scenario.get("signals", [])):
            await handle.signal(name, value, idempotency_key=str(number))


def program(scenario: dict[str, Any]) -> dict[str, Any]:
    """Return the input of the agent."""
    return {"agent": scenario["agent"], "ops": scenario["ops"]}


def live(language: str, url: str, scenario: dict[str, Any], *kill_at: str) -> subprocess.CompletedProcess[str]:
    """Give the run one life in a language."""
    command = [*LANGUAGES[language], url, scenario["name"], json.dumps(program(scenario)), *kill_at]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def check_result(what: str, scenario: dict[str, Any], done: subprocess.CompletedProcess[str]) -> None:
    """Compare with what the scenario expects."""
    assert done.returncode == 0, f"{what} ended with {done.returncode}: {done.stderr}"
    if "result" in scenario:
        found = json.loads(done.stdout)
        assert found == scenario["result"], f"{what} gave {found}, but {scenario['result']} is expected"


def alone(folder: Path, language: str, scenario: dict[str, Any]) -> Rows:
    """Run a scenario in one language, undisturbed."""
    database = folder / f"{language}.db"
    asyncio.run(begin(f"sqlite:{database}", scenario))
    check_result(language, scenario, live(language, f"sqlite:{database}", scenario))
    return rows(database)


def by_turns(folder: Path, scenario: dict[str, Any], first: str) -> int:
    """Run a scenario in both languages: the n-th life is killed in its n-th step. Return the number of lives."""
    database = folder / f"turns-{first}.db"
    url = f"sqlite:{database}"
    asyncio.run(begin(url, scenario))
    turns = [first, *(language for language in LANGUAGES if language != first)]
    for number in range(MAX_LIVES):
        # Later with every life: steps side by side are repeated together, and one of them must come to its end.
        done = live(turns[number % 2], url, scenario, str(number + 1))
        if done.returncode != -signal.SIGKILL:
            check_result(f"life {number + 1} ({turns[number % 2]})", scenario, done)
            entries = [(role, json.loads(content)) for role, content in said(database)]
            expected = [tuple(entry) for entry in scenario.get("entries", [])]
            assert entries == expected, f"the conversation is {entries}, but {expected} is expected"
            return number + 1
    raise AssertionError(f"the run has not ended after {MAX_LIVES} lives")


def said(database: Path) -> list[tuple[str, Any]]:
    """Read the conversation of a run, as stored."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as store:
        return store.execute("SELECT role, content FROM agent_entry ORDER BY segment, sequence").fetchall()


def compare(expected: Rows, found: Rows) -> None:
    """Tell the first difference of two journals."""
    for table, wanted in expected.items():
        for number, (one, other) in enumerate(zip(wanted, found[table], strict=False)):
            assert one == other, f"row {number} of {table} is {other} in Node, but {one} in Python"
        assert len(wanted) == len(found[table]), (
            f"{table} has {len(found[table])} rows in Node, but {len(wanted)} in Python"
        )


def main() -> None:
    """Run the scenarios one by one."""
    scenarios = json.loads((HERE / "programs.json").read_text(encoding="utf-8"))
    names = sys.argv[1:]
    chosen = [scenario for scenario in scenarios if not names or scenario["name"] in names]
    failed = lives = 0
    for scenario in chosen:
        try:
            with tempfile.TemporaryDirectory(prefix="flovyn-scenario-") as folder:
                journals = [alone(Path(folder), language, scenario) for language in LANGUAGES]
                compare(*journals)
                lives += sum(by_turns(Path(folder), scenario, first) for first in LANGUAGES)
        except AssertionError as error:
            failed += 1
            print(f"  FAILED {scenario['name']}: {error}", flush=True)
    print(
        f"{len(chosen) - failed} scenarios passed, {failed} failed; {lives} lives of runs that changed their language"
    )
    sys.exit(1 if failed or not chosen else 0)


if __name__ == "__main__":
    main()
