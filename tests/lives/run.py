"""Lives of random agents: killed for real, put away, edited; every decision must be the same in all of them.

Usage: run.py [--language python|typescript|rust]… [--programs N] [--first SEED] [--lives N] [--seed SEED]
Needs both packages built, and cargo. README.md says what is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from generate import Program, edited, program

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
LANGUAGES = {
    "python": [sys.executable, str(HERE / "agents.py")],
    "typescript": ["node", str(HERE / "agents.mjs")],
    "rust": [str(TARGET / "debug" / "lives")],
}
WARNINGS = ("diverged", "reworded", "orphaned")
#: How long a run may take in its last life; the slowest wait of a program is far shorter.
TIMEOUT_S = 30
BATCH = 120


class Wrong(Exception):
    """A run was not what it had to be."""


def live(language: str, life: dict[str, Any]) -> dict[str, Any]:
    """Give programs one life; return what was told of each that ended in it."""
    command = LANGUAGES[language]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(life) + "\n",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S * 2,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Wrong(f"life {life['number']} did not end: {error.stderr}") from None
    if done.returncode not in (0, -signal.SIGKILL):
        raise Wrong(
            f"life {life['number']} ended with {done.returncode}: {done.stderr.strip()[-3000:]}"
        )
    if done.returncode and life["kill_ms"] is None and life["kill_at"] is None:
        raise Wrong(f"life {life['number']} was killed by somebody else")
    if any(
        word in done.stderr
        for word in ("Exception in callback", "Exception ignored", "panicked")
    ):
        raise Wrong(f"life {life['number']} said: {done.stderr.strip()[-3000:]}")
    told = [json.loads(line) for line in done.stdout.split("\n") if line]
    return {one["name"]: one for one in told}


def lives(count: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Say how each life ends but the last: killed at a place of its log, or at a moment."""
    for number in range(1, count + 1):
        last = number == count
        at_place = rng.random() < 0.6
        yield {
            "number": number,
            "kill_at": None
            if last or not at_place
            else int(rng.paretovariate(0.6)) + rng.randrange(120),
            "kill_ms": None
            if last or at_place
            else rng.choice((5, 30, 80, 150, 250, 400)) + rng.randrange(40),
            "max_parked": rng.choice((None, None, 0, 3)),
            "timeout": TIMEOUT_S,
            "version": "1",
        }


def batch(language: str, seeds: range, count: int, folder: Path) -> Counter[str]:
    """Let programs live; return what was seen, or raise what was wrong."""
    rng = random.Random(f"{language} {seeds.start}")
    programs = [program(seed) for seed in seeds]
    base = folder / f"{language}-{seeds.start}"
    url, log = f"sqlite:{base}.db", f"{base}.log"
    edits = seeds.start // len(seeds) % 4 == 3
    told: dict[str, Any] = {}
    for life in lives(count, rng):
        if edits and life["number"] == count:
            programs = [
                edited(one, seed) for one, seed in zip(programs, seeds, strict=True)
            ]
            life["version"] = "2"
        told |= live(language, life | {"url": url, "log": log, "programs": programs})
    return check(programs, told, Path(log), f"{base}.db", edits)


def check(
    programs: list[Program], told: dict[str, Any], log: Path, database: str, edits: bool
) -> Counter[str]:
    """Compare what the lives wrote down, and what the store says of them."""
    seen: Counter[str] = Counter(
        programs=len(programs), edited=len(programs) if edits else 0
    )
    lines: dict[str, list[list[Any]]] = defaultdict(list)
    for line in log.read_text().split("\n"):
        if line:
            lives_number, what, run, *rest = json.loads(line)
            lines[run].append([lives_number, what, *rest])
            seen[what] += 1
    wrongs: list[str] = []
    for one in programs:
        name = one["name"]
        try:
            _check_run(one, told.get(name), lines[name], edits)
        except Wrong as wrong:
            wrongs.append(
                f"{name}: {wrong}\n{json.dumps(one)}\n"
                + "\n".join(map(str, lines[name]))
            )
        seen["lives"] += len({line[0] for line in lines[name]})
        seen["cancelled"] += bool((told.get(name) or {}).get("cancelled"))
    if not edits:
        wrongs += warnings(
            database, {one["name"] for one in programs if one["cancel"] is None}
        )
    if wrongs:
        raise Wrong(f"{len(wrongs)} things\n" + "\n".join(wrongs[:3]))
    return seen


def _check_run(
    one: Program, told: dict[str, Any] | None, lines: list[list[Any]], edits: bool
) -> None:
    if told is None or "error" in told:
        raise Wrong(f"it ended as {told}")
    if "cancelled" in told and one["cancel"] is None:
        raise Wrong("nobody cancelled it")
    decided: dict[int, list[Any]] = {}
    used: set[int] = set()
    for life, what, number, *rest in lines:
        if what == "decide":
            first = decided.setdefault(number, [life, *rest])
            if first[1:] != rest and not edits:
                raise Wrong(
                    f"decision {number} was {first[1]} in life {first[0]} and is {rest[0]} in life {life}"
                )
    # A step whose result was seen by a decision had ended: it does not begin again in a later life.
    seen_by_life: dict[int, int] = {}
    for life, what, number, *rest in lines:
        if what == "decide":
            for step in rest[0]:
                if isinstance(step, int):
                    seen_by_life.setdefault(step, life)
        elif number in seen_by_life and life > seen_by_life[number]:
            raise Wrong(
                f"step {number} had ended by life {seen_by_life[number]} and began again in life {life}"
            )
        used.add(number)


def warnings(database: str, names: set[str]) -> Iterator[str]:
    """Yield what unedited code was told of itself."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as store:
        rows = store.execute(
            "SELECT x.key, e.data FROM event e JOIN agent_execution x ON x.run = e.run WHERE e.data LIKE '%\"warning\"%'"
        ).fetchall()
    for key, data in rows:
        if key in names and json.loads(data).get("warning") in WARNINGS:
            yield f"{key}: nobody edited the code, but the run warns {data}"


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--language", action="append", choices=LANGUAGES)
    parser.add_argument("--programs", type=int, default=720, help="for each language")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--lives", type=int, default=5)
    parser.add_argument(
        "--keep", type=Path, help="a folder that keeps databases and logs"
    )
    parser.add_argument("--batch", type=int, default=BATCH)
    given = parser.parse_args()
    seen: Counter[str] = Counter()
    failed, began = 0, time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="flovyn-lives-") as temporary,
        ThreadPoolExecutor(2) as pool,
    ):
        folder = given.keep or Path(temporary)
        starts = range(given.first, given.first + given.programs, given.batch)
        jobs = [
            (
                language,
                range(first, min(first + given.batch, given.first + given.programs)),
            )
            for first in starts
            for language in given.language or LANGUAGES
        ]
        work = [(job, pool.submit(batch, *job, given.lives, folder)) for job in jobs]
        for number, ((language, seeds), future) in enumerate(work, 1):
            try:
                seen += future.result()
            except Wrong as wrong:
                failed += 1
                print(
                    f"  FAILED {language} from seed {seeds.start}: {wrong}", flush=True
                )
            if number % 50 == 0:
                print(
                    f"  {number} of {len(work)} batches after {time.monotonic() - began:.0f} s",
                    flush=True,
                )
    print(
        f"{seen['programs']} programs, {seen['lives']} lives with work in them, {seen['decide']} decisions, "
        f"{seen['start']} attempts, {seen['cancelled']} cancelled, {seen['edited']} edited; {failed} batches failed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
