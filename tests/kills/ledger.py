"""Owns the checks of a family that has ended: what its runs returned, beside their plans, effects and notes."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flovyn

from plan import MACHINES, Node, below

ENDED = ("COMPLETED", "CANCELLED")


@dataclass
class Run:
    """A run as the store has it."""

    name: str
    id: str
    parent: str | None
    status: str
    failure: Any
    output: Any
    handed_to: str | None


async def runs_of(client: flovyn.Client, name: str) -> list[Run]:
    """Return all runs of a family, its root first."""
    root = await client.handle(name)
    handles = [root, *[await client.handle(run.id) async for run in client.runs(root=root.id)]]
    found: list[Run] = []
    for handle in handles:
        given, facts = await handle.input(), await handle.describe()
        output = await handle.output() if facts.status in ENDED else None
        named = given["name"] if "name" in given else given["userPrompt"].split()[1]
        handed_to = facts.handed_to and str(facts.handed_to)
        parent = facts.parent and str(facts.parent)
        found.append(Run(named, str(facts.id), parent, facts.status, facts.failure, output, handed_to))
    return found


@dataclass
class Evidence:
    """What was left outside of the database."""

    #: The idempotency keys under which each effect was made.
    made: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    tries: Counter[str] = field(default_factory=Counter)
    #: What agents have seen of each step, in all their lives.
    saw: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    #: Effects that were tried again when their result had been seen already.
    late: list[str] = field(default_factory=list)
    #: How often a machine has begun each command.
    begun: Counter[str] = field(default_factory=Counter)
    #: Files of machines, and how long they are.
    files: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, work: Callable[[str], Path]) -> Evidence:
        """Read what all processes have left."""
        all_of_it = cls()
        for file in (folder / "effects").iterdir():
            all_of_it.made[file.read_text()].append(file.name)
        recorded: set[str] = set()
        for line in (folder / "notes").read_text().splitlines():
            _, word, name, *rest = json.loads(line)
            if word == "try":
                all_of_it.tries[name] += 1
                if name in recorded:
                    all_of_it.late.append(f"{name} was tried again though its result was recorded: {rest}")
                continue
            found, effect = rest
            all_of_it.saw[name].append(found)
            if effect is not None:
                recorded.add(effect)
        for machine in MACHINES:
            for file in work(machine).iterdir():
                if file.name == "log":
                    all_of_it.begun.update(file.read_text().splitlines())
                else:
                    all_of_it.files[file.name] = file.stat().st_size
        return all_of_it


def check(plan: Node, runs: list[Run], evidence: Evidence) -> Iterator[str]:
    """Tell what is not as it has to be in a family that has ended."""
    root, names = runs[0], Counter(run.name for run in runs)
    yield from (f"{name} was born {count} times" for name, count in names.items() if count > 1)
    yield from (f"{run.name} is {run.status}: {run.failure}" for run in runs if run.status not in ENDED)
    if root.status != "COMPLETED" and plan["cancel"] is None:
        yield f"the root ended as {root.status}: {root.failure}"
    by_name, by_id = {run.name: run for run in runs}, {run.id: run for run in runs}
    planned = {one["name"]: one for one in (plan, *below(plan))}
    for run in runs:
        node = planned.get(run.name)
        if node is None:
            yield f"{run.name} is in no plan"
        elif run.handed_to is not None and run.status == "COMPLETED":
            if run.output != by_id[run.handed_to].output:
                yield f"{run.name} returned {run.output}, and its successor {by_id[run.handed_to].output}"
        elif run.status == "COMPLETED":
            yield from (f"{run.name}: {fault}" for fault in _of_run(node, run, by_name, evidence))
    for one in planned.values():
        for step in one.get("steps", ()):
            keys = evidence.made[step["name"]] if step["do"] == "effect" else []
            if len(keys) > 1:
                yield f"{step['name']} was done {len(keys)} times: {keys}"
    for name in planned:
        for number, found in enumerate(evidence.saw[f"{name} {place}"] for place in range(20)):
            if any(one != found[0] for one in found):
                yield f"step {number} of {name} was not the same in all lives: {found}"


def _of_run(node: Node, run: Run, runs: dict[str, Run], evidence: Evidence) -> Iterator[str]:
    """A run that has completed says what its children said, and what it has done is done."""
    if "machine" in node:
        asked = f"{node['word']} {node['name']}"
        if run.output["text"] != f"done {asked}":
            yield f"it returned {run.output}"
        if evidence.begun[asked] > 1:
            yield f"its command was begun {evidence.begun[asked]} times"
        if node["word"] == "write" and evidence.files.get(asked, 0) < 20_000:
            yield f"its file has {evidence.files.get(asked, 0)} bytes"
        return
    if run.output["name"] != node["name"] or len(run.output["did"]) != len(node["steps"]):
        yield f"it returned {run.output}"
        return
    for step, did in zip(node["steps"], run.output["did"], strict=True):
        missing = [child["name"] for child in step.get("children", ()) if child["name"] not in runs]
        if missing:
            yield f"{missing} were not born"
            continue
        expected = _expected(step, did, [runs[child["name"]] for child in step.get("children", ())])
        if did != expected:
            yield f"its step {step['do']} {step.get('name')} is {did} and had to be {expected}"
        if step["do"] == "effect" and len(evidence.made[step["name"]]) != 1:
            yield f"{step['name']} was done {len(evidence.made[step['name']])} times"


def _expected(step: dict[str, Any], did: Any, children: list[Run]) -> Any:
    """Return what a step had to give, by what its children have returned."""
    outputs = [child.output for child in children]
    found: Any = None
    match step["do"]:
        case "effect":
            found = step["name"]
        case "wait":
            # From outside, or from the parent with the id of the run.
            found = did if isinstance(did, str) and did.startswith("go ") else "go"
        case "ask":
            found = f"answer to {step['name']}"
        case "join":
            found = outputs
        case "settle":
            stopped = zip(children, step["stop"], strict=True)
            found = [_settled(child, is_asked=mode is not None) for child, mode in stopped]
        case "select":
            found = [[index, outputs[index]] for index in dict.fromkeys(index for index, _ in did)]
        case "talk":
            reports = step["children"][0]["steps"][0]["count"]
            found = [*range(reports), f"{step['name']}.ask", *outputs]
        case "steer":
            (found,) = outputs
    return found


def _settled(child: Run, *, is_asked: bool) -> Any:
    if child.status == "CANCELLED" and is_asked:
        return ["ChildCancelled", None]
    return ["Completed", child.output]
