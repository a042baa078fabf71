"""Owns what the families do: trees of nodes three deep, drawn of a seed, as data that every process reads alike.

A node is an agent of our own, which does its steps one after the other, or the built-in agent on a machine, which does
one thing there. `README.md` lists the steps.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

#: Runs below each other: a root, its children and theirs.
DEPTH = 3
MACHINES = ("alpha", "beta")
#: What a machine is asked for: a command that must not begin twice, and a file that is there whole or not at all.
WORDS = ("append", "write")

Node = dict[str, Any]


def family(seed: int, number: int) -> Node:
    """Draw a family."""
    chance = random.Random(f"{seed}/{number}")
    root = _node(chance, f"f{number}", 1)
    if chance.random() < 0.3:
        root["steps"].insert(0, {"do": "wait"})
    # How it is cancelled from outside, and after how many seconds.
    root["cancel"] = None
    if chance.random() < 0.12:
        root["cancel"] = [chance.choice(("hard", "graceful")), round(chance.uniform(0.1, 2.0), 2)]
    return root


def below(node: Node) -> Iterator[Node]:
    """Yield the nodes below one, each before those below it."""
    for step in node.get("steps", ()):
        for child in step.get("children", ()):
            yield child
            yield from below(child)


def _node(chance: random.Random, name: str, depth: int) -> Node:
    is_leaf = depth == DEPTH
    steps: list[dict[str, Any]] = []
    for number in range(chance.randrange(2, 4) if depth == 1 else chance.randrange(1, 3)):
        own = f"{name}.{number}"
        kinds = ["effect", "nap"] if is_leaf else ["join", "join", "settle", "select", "talk", "steer", "effect"]
        steps.append(_step(chance, chance.choice(kinds), own, depth))
    if not is_leaf and not any(step.get("children") for step in steps):
        steps.append(_step(chance, "join", f"{name}.{len(steps)}", depth))
    if not is_leaf and chance.random() < 0.15:
        steps.append(_step(chance, "handoff", f"{name}.{len(steps)}", depth))
    return {"name": name, "steps": steps}


def _step(chance: random.Random, kind: str, name: str, depth: int) -> dict[str, Any]:
    step: dict[str, Any] = {"do": kind, "name": name}
    if kind == "effect":
        # One in a worker's own process, beside its run; the other is claimed from the queue by any worker.
        return step | {"queued": chance.random() < 0.5, "ms": chance.randrange(0, 120)}
    if kind == "nap":
        return step | {"ms": chance.randrange(20, 400)}
    count = chance.randrange(2, 4) if kind in ("join", "settle", "select") else 1
    children = [_child(chance, f"{name}.{number}", depth, kind) for number in range(count)]
    step["children"] = children
    if kind == "settle":
        step["stop"] = [chance.choice((None, "hard", "graceful")) for _ in children]
    if kind == "talk":
        reports = [{"do": "report", "count": chance.randrange(1, 4)}, {"do": "ask", "name": f"{name}.ask"}]
        step["children"][0]["steps"][:0] = reports
    if kind == "steer":
        step["children"][0]["steps"].insert(0, {"do": "wait"})
    return step


def _child(chance: random.Random, name: str, depth: int, kind: str) -> Node:
    if kind in ("join", "settle", "select") and chance.random() < 0.3:
        return {"name": name, "machine": chance.choice(MACHINES), "word": chance.choice(WORDS)}
    return _node(chance, name, depth + 1)
