"""Runs every scenario in Rust, Python and TypeScript on memory, SQLite, PostgreSQL and a server; compares the journals.

Each language runs all programs on a backend of its own; what was answered must be as expected and the rows of the three
equal, byte for byte. Programs that are killed or edited run life by life on SQLite. Then once more as one run of all
three, by turns: every life is killed one place further, and the next language goes on.

Needs both packages built, and cargo. Usage: run.py [--backend NAME]… [NAME…]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from backends import KINDS, Backend, Postgres, fresh
from journal import Journal, difference, journals, said, spoil

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
MAX_LIVES = 60
#: Beside a run's own story: when it was claimed, put away and woken, and what shared a commit.
OF_ITS_HOLDERS = {
    "resumed",
    "waiting",
    "woken",
    "task_scheduled",
    "task_started",
    "task_retry",
    "lease_lost",
    "retract",
    "token",
}

Program = dict[str, Any]
Told = dict[str, Any]


def programs() -> list[Program]:
    """Read all programs."""
    files = sorted((HERE / "programs").glob("*.json"))
    return [program for file in files for program in json.loads(file.read_text(encoding="utf-8"))]


def languages() -> dict[str, list[str]]:
    """Return how to start each language's interpreter; builds the one in Rust, with all tests of Rust."""
    tests = "--workspace --exclude flovyn-python --exclude flovyn-node --features flovyn-core/testing"
    subprocess.run(["cargo", "test", "--quiet", "--no-run", *tests.split()], cwd=REPOSITORY, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return {
        "Rust": [str(target / "debug" / "interpreter")],
        "Python": [sys.executable, str(HERE / "interpreter.py")],
        "TypeScript": ["node", str(HERE / "interpreter.mjs")],
    }


LANGUAGES = languages()


class Wrong(Exception):
    """A scenario is not as expected."""


def run(language: str, backend: Backend, given: list[Program], kill_at: int = 0) -> tuple[int, dict[str, Told]]:
    """Give programs one life; return how the process ended, and what it told of each."""
    done = subprocess.run(
        [*LANGUAGES[language], backend.url, str(kill_at)],
        input="\n".join(json.dumps(program) for program in given),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | backend.environment,
    )
    if done.returncode not in (0, -signal.SIGKILL):
        raise Wrong(f"{language} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    told = [json.loads(line) for line in done.stdout.split("\n") if line]
    return done.returncode, {one["name"]: one for one in told}


def check(what: str, program: Program, told: Told) -> None:
    """Compare what was told of a run with what the program expects."""
    for name, found in (("result", "result"), ("error", "error"), ("answers", "after")):
        if name in program and program[name] != told.get(found):
            raise Wrong(f"{what}: {found} is {told.get(found)}, but {program[name]} is expected; told: {told}")
    if "error" not in program and "error" in told:
        raise Wrong(f"{what}: it ended with {told['error']} {told['failure']}")
    if "code" in program and "error" in program and program["code"] != (told["failure"] or [None])[0]:
        raise Wrong(f"{what}: the failure is {told['failure']}, but {program['code']} is expected")
    if "resolve" in program and program["code"] != told.get("doubt"):
        raise Wrong(f"{what}: nothing was in doubt; told: {told}")
    if "events" in program and program["events"] != own_events(told):
        raise Wrong(f"{what}: the events are {own_events(told)}, but {program['events']} are expected")


def own_events(told: Told) -> list[str]:
    """Return the events of the run's own story."""
    return [event for event in told.get("events", []) if event not in OF_ITS_HOLDERS]


def comparable(told: Told) -> Told:
    """Leave out what depends on when something happened."""
    return told | {"events": sorted(own_events(told))}


def compare(what: str, told: dict[str, Told], rows: dict[str, Journal] | None) -> None:
    """Compare what each language told, and the journals they left."""
    first, *others = told
    for other in others:
        if comparable(told[first]) != comparable(told[other]):
            raise Wrong(f"{what}: {other} told {comparable(told[other])}, but {first} {comparable(told[first])}")
        found = rows and difference(rows[first], rows[other], (first, other))
        if found:
            raise Wrong(f"{what}: {found}")


def check_said(what: str, program: Program, journal: Journal) -> None:
    """Compare the conversation in a journal with what is expected."""
    found = said(journal)
    if "entries" in program and found != program["entries"]:
        raise Wrong(f"{what}: the conversation is {found}, but {program['entries']} is expected")


# ── all programs at once ─────────────────────────────────────────────────────────────────────────────────────────────


def together(kind: str, given: list[Program], folder: Path, postgres: Postgres) -> Iterator[tuple[str, str | None]]:
    """Run undisturbed programs on one kind of backend; yield each one's name with what is wrong."""

    def alone(language: str) -> tuple[dict[str, Told], dict[str, Journal]]:
        with fresh(kind, folder, postgres) as backend:
            told = run(language, backend, given)[1]
            return told, journals(backend.database) if backend.database else {}

    with ThreadPoolExecutor(2) as pool:
        ran = dict(zip(LANGUAGES, pool.map(alone, LANGUAGES), strict=True))
    for program in given:
        name = program["name"]
        try:
            for language, (told, _) in ran.items():
                check(f"{language} on {kind}", program, told[name])
                if kind == "sqlite":
                    check_said(language, program, ran[language][1][name])
            rows = {language: found[name] for language, (_, found) in ran.items()} if kind != "memory" else None
            compare(f"on {kind}", {language: told[name] for language, (told, _) in ran.items()}, rows)
        except Wrong as wrong:
            yield name, str(wrong)
        else:
            yield name, None


# ── life by life ─────────────────────────────────────────────────────────────────────────────────────────────────────


def first_life(program: Program) -> Program:
    """Return the program as its first lives have it."""
    kept = {name: program[name] for name in ("name", "agent", "input", "options") if name in program}
    return kept | {"ops": program.get("before", program["ops"])}


def in_lives(program: Program, language: str, folder: Path, postgres: Postgres) -> tuple[Told, Journal]:
    """Run a program that is killed, put away or edited, in one language; return the last life's words and the rows."""
    with fresh("sqlite", folder, postgres) as backend:
        for life in program["lives"]:
            if isinstance(life, str):
                run(language, backend, [first_life(program) | {"until": life}])
            elif run(language, backend, [first_life(program)], life)[0] == 0:
                raise Wrong(f"{language}: the run ended before its place {life}")
        if program.get("spoils"):
            spoil(backend.database.removeprefix("sqlite:"))
        told = run(language, backend, [program])[1][program["name"]]
        check(language, program, told)
        journal = journals(backend.database)[program["name"]]
        if "before" not in program:
            check_said(language, program, journal)
        return told, journal


def lives(program: Program, folder: Path, postgres: Postgres) -> int:
    """Run a program in lives in every language and compare; return the number of lives."""
    ran = {language: in_lives(program, language, folder, postgres) for language in LANGUAGES}
    compare(
        "in lives", {name: told for name, (told, _) in ran.items()}, {name: rows for name, (_, rows) in ran.items()}
    )
    return 0


def by_turns(number: int, program: Program, folder: Path, postgres: Postgres) -> int:
    """Run a program in all languages by turns, the n-th life killed in its n-th place. Return how many there were."""
    names = list(LANGUAGES)
    with fresh("sqlite", folder, postgres) as backend:
        for life in range(1, MAX_LIVES + 1):
            # Later with every life: steps side by side are repeated together, and one of them must come to its end.
            language = names[(number + life) % len(names)]
            code, told = run(language, backend, [program], life)
            if code == 0:
                check(f"life {life} ({language})", program, told[program["name"]])
                check_said(f"life {life} ({language})", program, journals(backend.database)[program["name"]])
                return life
    raise Wrong(f"the run has not ended after {MAX_LIVES} lives")


def in_order(kind: str, given: list[Program], folder: Path, postgres: Postgres) -> Iterator[tuple[str, str | int]]:
    """Run programs one by one, two at a time; yield each one's name with the number of its lives or what is wrong."""

    def one(numbered: tuple[int, Program]) -> tuple[str, str | int]:
        number, program = numbered
        try:
            if kind == "lives":
                return program["name"], lives(program, folder, postgres)
            return program["name"], by_turns(number, program, folder, postgres)
        except (Wrong, AssertionError, subprocess.TimeoutExpired) as wrong:
            return program["name"], str(wrong)

    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(one, enumerate(given))


def main() -> int:
    """Run the scenarios."""
    parser = argparse.ArgumentParser(description="Run the scenarios in every language.")
    parser.add_argument("--backend", action="append", choices=(*KINDS, "lives", "turns"), help="only these parts")
    parser.add_argument("names", nargs="*", help="only these scenarios")
    options = parser.parse_args()
    parts = options.backend or (*KINDS, "lives", "turns")
    given = [program for program in programs() if not options.names or program["name"] in options.names]
    whole = [program for program in given if "lives" not in program]
    failed, count = Counter[str](), 0
    with tempfile.TemporaryDirectory(prefix="flovyn-scenarios-") as home:
        folder = Path(home)
        folder.chmod(0o755)  # PostgreSQL runs as another user
        postgres = Postgres(folder)
        try:
            for part in parts:
                if part in KINDS:
                    ended: Iterator[tuple[str, Any]] = together(part, whole, folder, postgres) if whole else iter(())
                elif part == "lives":
                    ended = in_order(part, [program for program in given if "lives" in program], folder, postgres)
                else:
                    turning = [program for program in whole if program.get("turns", True)]
                    ended = in_order(part, turning, folder, postgres)
                for name, found in ended:
                    if isinstance(found, int):
                        count += found
                    elif found:
                        failed[name] += 1
                        print(f"  FAILED {name} ({part}): {found}", flush=True)
        finally:
            postgres.stop()
    print(
        f"{len(given) - len(failed)} scenarios passed, {len(failed)} failed, in {', '.join(LANGUAGES)} on "
        f"{', '.join(parts)}; {count} lives of runs that changed their language"
    )
    return 1 if failed or not given else 0


if __name__ == "__main__":
    sys.exit(main())
