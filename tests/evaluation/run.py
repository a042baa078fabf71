"""Owns the evaluation: sixty bugs are mended by `flovyn chat -p`, with a scripted model under kills or with a real one.

Without a model: a scripted one makes the mistakes of models, and the command is killed at random moments and resumed. All
sixty end alike, and no answer that a run had recorded is asked for again. With one: the same tasks, and what was solved,
for how many tokens, how many dollars and how long. Without a model that mode is tried too, against a scripted one.

Usage: run.py [--model MODEL] [--only NAME,NAME] [--seed SEED]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flovyn.testing import fake_llm, tool_call, turn
from flovyn.testing.scripted import FakeLlm
from script import plan
from tasks import BUGS, Bug

FLOVYN = Path(sys.executable).parent / "flovyn"
WIRES = ("anthropic/claude-sonnet-5-5", "openai/gpt-5.5", "local/any")
BUGS_IN_ALL = 60
KILLS = 3
FEWEST_KILLS = BUGS_IN_ALL * KILLS // 2
"""Of all bugs together: it is all of them as a rule. Where most commands end before they are killed, little was tested."""
PATIENCE_S = 120.0
REPORT = re.compile(
    r"(?P<solved>\d+) of (?P<tasks>\d+) tasks solved, (?P<calls>\d+) model calls, (?P<tokens>\d+) tokens, "
    r"(?P<cost>\$\d+\.\d\d|cost unknown), (?P<seconds>\d+) s with (?P<model>\S+)"
)
"""What is printed of a real model."""


@dataclass
class Solved:
    """What became of a task."""

    name: str
    faults: list[str]
    kills: int = 0
    calls: int = 0
    tokens: int = 0
    cost: float | None = None
    seconds: float = 0.0


def endpoints(fake: FakeLlm) -> dict[str, str]:
    """Return the variables by which a scripted model stands for real ones."""
    urls = {
        "ANTHROPIC": fake.url,
        "OPENAI": fake.openai_url,
        "LOCAL": fake.openai_url,
    }
    addresses = {f"{name}_BASE_URL": url for name, url in urls.items()}
    return addresses | {f"{name}_API_KEY": "none" for name in urls}


class Place:
    """A repository with a bug, and a user who works in it."""

    def __init__(self, bug: Bug, folder: Path) -> None:
        self.bug = bug
        self.repository = folder / "repository"
        self.home = folder / "home"
        self.repository.mkdir()
        self.home.mkdir()
        bug.write(self.repository)
        (self.repository / ".gitignore").write_text("__pycache__/\n")

    def command(self, model: str, *more: str) -> list[str]:
        """Return the command that answers the prompt, or with more words goes on with it."""
        given = [
            str(FLOVYN),
            "chat",
            "-p",
            *(more or (self.bug.prompt,)),
            "--yes",
            "--json",
            "--model",
            model,
        ]
        return [*given, "--db", str(self.home / "chat.db")]

    def environment(self, fake: FakeLlm | None) -> dict[str, str]:
        """Return the variables of the command."""
        given = {
            **os.environ,
            "FLOVYN_HOME": str(self.home),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return given if fake is None else given | endpoints(fake)

    def has_session(self, environment: dict[str, str]) -> bool:
        """Tell whether the prompt has begun a session."""
        database = self.home / "chat.db"
        if not database.exists():
            return False
        listed = [str(FLOVYN), "chat", "--list", "--db", str(database)]
        found = subprocess.run(
            listed,
            cwd=self.repository,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return bool(found.stdout.strip()) and "no session" not in found.stdout.lower()

    def faults(self) -> list[str]:
        """Tell what is wrong with the repository."""
        found: list[str] = []
        if (self.repository / self.bug.module).read_text() != self.bug.mended:
            found.append(
                f"{self.bug.module} is\n{(self.repository / self.bug.module).read_text()}"
            )
        if not self.passes():
            found.append("the check fails")
        return found

    def passes(self) -> bool:
        """Tell whether the bug is mended, and the check is the one that was given."""
        given = self.repository / "check.py"
        if not given.exists() or given.read_text() != self.bug.check_module:
            return False
        check = [sys.executable, "-B", "check.py"]
        return (
            subprocess.run(
                check, cwd=self.repository, capture_output=True, timeout=30, check=False
            ).returncode
            == 0
        )


def under_kills(bug: Bug, number: int, seed: int) -> Solved:
    """Have the scripted model mend a bug while the command is killed."""
    planned = plan(bug, number)
    chance = random.Random(f"{seed}/{number}")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, fake_llm(planned.turns) as fake:
        place = Place(bug, Path(folder))
        environment = place.environment(fake)
        solved = Solved(bug.name, [])
        command = place.command(WIRES[number % len(WIRES)])
        while True:
            process = subprocess.Popen(
                command,
                cwd=place.repository,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            moment = chance.uniform(0.1, 0.7) if solved.kills < KILLS else PATIENCE_S
            try:
                told, beside = process.communicate(timeout=moment)
                break
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                if solved.kills == KILLS:
                    return Solved(
                        bug.name,
                        [f"it did not end within {PATIENCE_S:.0f} s"],
                        solved.kills,
                    )
                solved.kills += 1
            is_begun = place.has_session(environment)
            command = place.command(
                WIRES[number % len(WIRES)], *(["--resume"] if is_begun else [])
            )
        solved.seconds = time.monotonic() - begun
        solved.faults += ended(process.returncode, told, beside, planned.answer)
        solved.faults += place.faults()
        solved.faults += paid(
            fake, len(planned.turns), planned.paid_beside, solved.kills
        )
        solved.calls = fake.paid
        return solved


def ended(code: int, told: str, beside: str, answer: str) -> list[str]:
    """Tell what is wrong with how the command ended."""
    try:
        result: dict[str, Any] = json.loads(told)
    except json.JSONDecodeError:
        return [f"exit {code}: {told}{beside}"]
    if code != 0 or result["text"] != answer:
        return [
            f"exit {code}, and it said {result['text']!r} instead of {answer!r}: {beside}"
        ]
    return []


def paid(fake: FakeLlm, turns: int, beside: int, kills: int) -> list[str]:
    """Tell which answers were asked for although the run had them."""
    found: list[str] = []
    asked = [call.turn for call in fake.calls]
    # A request with n answers in its conversation says that these are recorded.
    if asked != sorted(asked):
        found.append(f"a recorded answer was asked for again: {asked}")
    complete = Counter(call.turn for call in fake.calls if call.is_paid)
    if sorted(complete) != list(range(1, turns + 1)):
        found.append(f"of {turns} answers these were given: {sorted(complete)}")
    # What had arrived when the process was killed, and was not recorded, is lost.
    more = sum(complete.values()) - len(complete)
    if more > beside + kills:
        found.append(f"{more} answers were paid more than once, with {kills} kills")
    return found


def with_model(bug: Bug, model: str) -> Solved:
    """Have a real model mend a bug."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(bug, Path(folder))
        command = [*place.command(model), "--max-turns", "30"]
        run = subprocess.run(
            command,
            cwd=place.repository,
            env=place.environment(None),
            capture_output=True,
            text=True,
            check=False,
        )
        solved = Solved(bug.name, [] if place.passes() else ["the check fails"])
        solved.seconds = time.monotonic() - begun
        try:
            usage: dict[str, Any] = json.loads(run.stdout)["usage"]
        except (json.JSONDecodeError, KeyError):
            solved.faults.append(f"exit {run.returncode}: {run.stderr}")
            return solved
        solved.calls = usage["calls"]
        solved.tokens = usage["inputTokens"] + usage["outputTokens"]
        solved.cost = (
            None if usage.get("costMicros") is None else usage["costMicros"] / 1_000_000
        )
        return solved


def smoke() -> list[str]:
    """Run the mode for real models against a scripted one, and tell what is wrong with what it prints."""
    bug = BUGS[0]
    # The check passes for whoever rewrites it, and that mends nothing.
    cheat = tool_call("bash", {"command": "echo > check.py"})
    found: list[str] = []
    for model, turns, solved, has_price in (
        (WIRES[0], plan(bug, 0).turns, 1, True),
        ("local/any", [cheat, turn("Mended.")], 0, False),
    ):
        with fake_llm(turns) as fake:
            command = [sys.executable, __file__, "--model", model, "--only", bug.name]
            run = subprocess.run(
                command,
                env=os.environ | endpoints(fake),
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            paid = fake.paid
        told = run.stdout.strip().rsplit("\n", 1)[-1]
        report = REPORT.fullmatch(told)
        if report is None:
            found.append(f"with {model} it printed {run.stdout}{run.stderr}")
            continue
        print(f"  against a scripted model: {told}")
        counts = {
            name: int(report[name]) for name in ("solved", "tasks", "calls", "tokens")
        }
        is_right = (
            counts["solved"] == solved
            and counts["tasks"] == 1
            and counts["calls"] == paid > 0
            and counts["tokens"] > paid
            and (report["cost"] not in ("cost unknown", "$0.00")) == has_price
            and report["model"] == model
            and run.returncode == 1 - solved
        )
        if not is_right:
            found.append(
                f"with {model}, {paid} answers paid and exit {run.returncode}: {told}"
            )
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument(
        "--model", help="a real model, provider/model, whose key is in the environment"
    )
    arguments.add_argument(
        "--only", default="", help="tasks by name, separated by commas"
    )
    arguments.add_argument(
        "--seed", type=int, default=1, help="what the moments of kills follow from"
    )
    given = arguments.parse_args()
    names = [name for name in given.only.split(",") if name]
    unknown = set(names) - {bug.name for bug in BUGS}
    if unknown:
        sys.exit(f"there is no task {', '.join(sorted(unknown))}")
    if len({bug.name for bug in BUGS}) != BUGS_IN_ALL:
        sys.exit(f"there are {len(BUGS)} bugs, and not {BUGS_IN_ALL} by their names")
    chosen = [
        (number, bug)
        for number, bug in enumerate(BUGS)
        if not names or bug.name in names
    ]

    def solve(task: tuple[int, Bug]) -> Solved:
        number, bug = task
        solved = (
            with_model(bug, given.model)
            if given.model
            else under_kills(bug, number, given.seed)
        )
        if solved.faults or given.model:
            cost = "" if solved.cost is None else f", ${solved.cost:.4f}"
            state = "solved" if not solved.faults else "; ".join(solved.faults)
            print(
                f"  {solved.name}: {state} ({solved.calls} calls{cost}, {solved.seconds:.1f} s)",
                flush=True,
            )
        return solved

    with ThreadPoolExecutor(1 if given.model else 2) as pool:
        done = list(pool.map(solve, chosen))
    right = sum(not solved.faults for solved in done)
    words = f"{right} of {len(done)} tasks solved, {sum(solved.calls for solved in done)} model calls"
    faults: list[str] = []
    if given.model:
        costs = [solved.cost for solved in done]
        total = (
            "cost unknown"
            if None in costs
            else f"${sum(cost or 0 for cost in costs):.2f}"
        )
        tokens, seconds = (
            sum(solved.tokens for solved in done),
            sum(solved.seconds for solved in done),
        )
        print(f"{words}, {tokens} tokens, {total}, {seconds:.0f} s with {given.model}")
    else:
        kills = sum(solved.kills for solved in done)
        if not names:
            faults += smoke()
            if kills < FEWEST_KILLS:
                faults.append(f"{kills} kills are fewer than {FEWEST_KILLS}")
        print(f"{words} paid, {kills} kills (seed {given.seed})")
    for fault in faults:
        print(f"  {fault}")
    sys.exit(0 if right == len(done) and not faults else 1)


if __name__ == "__main__":
    main()
