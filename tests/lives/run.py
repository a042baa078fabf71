"""Lives of random agents: killed for real, put away, edited; every decision must be the same in all of them.

Usage: run.py [--language python|typescript|rust]… [--programs N] [--first SEED] [--lives N] [--batch N] [--keep FOLDER]
Needs both packages built, and cargo. README.md says what is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import store
from generate import Program, crashable, edited, program

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
#: Things that a failed batch tells of; with --keep all of them are in a file beside the database.
SHOWN = 3


class Wrong(Exception):
    """A run was not what it had to be."""


def live(language: str, life: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Give programs one life; return what was told of each that ended in it, and what was said beside."""
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
        said = (error.stderr or b"").decode(errors="replace")[-20_000:]
        raise Wrong(f"life {life['number']} did not end: {said}") from None
    if done.returncode not in (0, -signal.SIGKILL):
        raise Wrong(
            f"life {life['number']} ended with {done.returncode}: {done.stderr.strip()[-3000:]}"
        )
    if done.returncode and life["kill_ms"] is None and life["kill_at"] is None:
        raise Wrong(f"life {life['number']} was killed by somebody else")
    # What lived in a process that goes on is thrown away with its tasks pending.
    lasting = (
        () if life["url"] is None else ("Exception in callback", "Exception ignored")
    )
    if any(word in done.stderr for word in (*lasting, "panicked")):
        raise Wrong(f"life {life['number']} said: {done.stderr.strip()[-20_000:]}")
    told = [json.loads(line) for line in done.stdout.split("\n") if line]
    return {one["name"]: one for one in told}, done.stderr


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
    unedited = programs
    base = folder / f"{language}-{seeds.start}"
    url, log = f"sqlite:{base}.db", f"{base}.log"
    edits = seeds.start // len(seeds) % 4 == 3
    told: dict[str, Any] = {}
    said = ""
    for life in lives(count, rng):
        if edits and life["number"] == count:
            programs = [
                edited(one, seed) for one, seed in zip(programs, seeds, strict=True)
            ]
            life["version"] = "2"
        ends, said = live(
            language, life | {"url": url, "log": log, "programs": programs}
        )
        told |= ends
    seen = check(programs, told, Path(log), said, f"{base}.db", edits)
    return seen + die(language, unedited, base, rng)


def die(
    language: str, programs: list[Program], base: Path, rng: random.Random
) -> Counter[str]:
    """Let those programs that wait for little die once more, at commits and within one process."""
    programs = [one | {"fork": None} for one in programs if crashable(one)]
    life = next(lives(1, rng)) | {"url": None, "log": f"{base}.crashes.log"}
    told, said = live(language, life | {"programs": programs})
    seen = check(programs, told, Path(life["log"]), said, None, False)
    return Counter(
        crashed=seen["programs"], decide=seen["decide"], crashes=seen["lives"]
    )


def check(
    programs: list[Program],
    told: dict[str, Any],
    log: Path,
    said: str,
    database: str | None,
    edits: bool,
) -> Counter[str]:
    """Compare what the lives wrote down, what their agents returned, and what the store says of them."""
    seen: Counter[str] = Counter(
        programs=len(programs), edited=len(programs) if edits else 0
    )
    lines: dict[str, list[list[Any]]] = defaultdict(list)
    for line in log.read_text().split("\n"):
        if line:
            lives_number, what, run, *rest = json.loads(line)
            lines[run].append([lives_number, what, *rest])
            seen[what] += 1
    kept = {} if database is None else store.inherited(database)
    wrongs: list[str] = []
    for one in programs:
        runs = [(one["name"], one["cancel"] is not None)]
        if one["fork"] is not None:
            runs.append((f"{one['name']}/fork", False))
        for name, cancels in runs:
            ended = told.get(name)
            try:
                _check_run(cancels, ended, lines[name], edits)
                if name in kept and not edits:
                    seen["forks"] += 1
                    seen["kept"] += len(kept[name])
                    _check_fork(ended or {}, lines[name], kept[name])
            except Wrong as wrong:
                wrongs.append(
                    f"{name}: {wrong}\n{json.dumps(one)}\n"
                    + "\n".join(map(str, lines[name]))
                    + _known(name, ended, said, database)
                )
            seen["lives"] += len({line[0] for line in lines[name]})
            seen["cancelled"] += bool((ended or {}).get("cancelled"))
    if not edits and database is not None:
        names = {one["name"] for one in programs if one["cancel"] is None}
        names |= {f"{one['name']}/fork" for one in programs}
        wrongs += store.warnings(database, names, WARNINGS)
    if wrongs:
        report = log.with_suffix(".failed")
        report.write_text("\n\n".join(wrongs))
        raise Wrong(f"{len(wrongs)} things\n" + "\n".join(wrongs[:SHOWN]))
    return seen


def _known(
    name: str, told: dict[str, Any] | None, said: str, database: str | None
) -> str:
    """Say what is known of a run that went wrong: by the store, and by the process of its last life."""
    known = "" if database is None else "\n" + store.story(database, name)
    own = [line for line in said.split("\n") if line.startswith(f"[{name}]")]
    others = [line for line in said.split("\n") if line and not line.startswith("[")]
    return "\n".join([known, f"told: {json.dumps(told)}", *own[-80:], *others[-20:]])


def _check_run(
    cancels: bool, told: dict[str, Any] | None, lines: list[list[Any]], edits: bool
) -> None:
    if told is None or "error" in told:
        raise Wrong(f"it ended as {told}")
    if "cancelled" in told and not cancels:
        raise Wrong("nobody cancelled it")
    decided: dict[int, list[Any]] = {}
    for life, what, number, *rest in lines:
        if what == "decide":
            first = decided.setdefault(number, [life, *rest])
            if first[1:] != rest and not edits:
                raise Wrong(
                    f"decision {number} was {first[1]} in life {first[0]} and is {rest[0]} in life {life}"
                )
    # The last life came to each decision again, by replay or in earnest.
    last = {} if "result" not in told or edits else told["result"]["decided"]
    for number, (life, was) in decided.items():
        if str(number) in last and last[str(number)] != was:
            raise Wrong(
                f"decision {number} was {was} in life {life} and is {last[str(number)]} on the last replay"
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


def _check_fork(
    told: dict[str, Any],
    lines: list[list[Any]],
    kept: list[tuple[str, Any]],
) -> None:
    """Look whether a fork has of its parent what had ended before its place, and decided alike."""
    began = {(what, number) for _, what, number, *_ in lines}
    for kind, given in kept:
        number = given["number"] if isinstance(given, dict) else int(kind.split()[-1])
        what = "decide" if kind == "decide" else "start"
        if (what, number) in began:
            raise Wrong(
                f"its parent had ended {kind} {number}, and it began there again"
            )
        decided = told["result"]["decided"].get(str(number))
        if kind == "decide" and decided != given["seen"]:
            raise Wrong(
                f"its parent decided {number} by {given['seen']}, and it by {decided}"
            )


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
        folder.mkdir(parents=True, exist_ok=True)
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
        f"{seen['start']} attempts, {seen['cancelled']} cancelled, {seen['edited']} edited, "
        f"{seen['forks']} forks that kept {seen['kept']} results, {seen['crashed']} that crashed at commits in "
        f"{seen['crashes']} lives; {failed} batches failed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
