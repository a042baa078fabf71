"""Random concurrent agents as data: what README.md says they are made of.

A program must be one whose decisions the engine promises to repeat. So what is written down follows an outcome of the
context directly, never a wait outside of it; a timer of the host races nothing that may end; and calls that cannot be told
apart are made only where nothing waits outside, since such waits may end in another order in another life.
"""

from __future__ import annotations

import random
from typing import Any

Node = list[Any]
Program = dict[str, Any]

OUTSIDE = ("timer", "spin", "thread", "future", "event", "foreign", "executor")
#: What a run may do in one of its crashes: the commit is not made, is made and not heard of, or only its answer is lost.
CRASHES = ("before", "after", "after", "answer_lost")


class Maker:
    """Makes the nodes of one program; every step has a number of its own."""

    def __init__(self, rng: random.Random, *, pure: bool) -> None:
        self.rng = rng
        self.pure = pure
        """Nothing in it waits outside of the context."""
        self.steps = 0

    def number(self) -> int:
        """Return the number of another step."""
        self.steps += 1
        return self.steps

    def step(self) -> Node:
        """One step that ends: soon, later or with an error."""
        if self.rng.random() < 0.1:
            return ["fail", self.number()]
        return ["step", self.number(), self.rng.choice((0, 0, 0, 1, 3, 10, 25))]

    def wait(self) -> Node:
        """A wait outside of the context, which may be longer than any other."""
        how = self.rng.choice(OUTSIDE)
        return ["outside", how, self.rng.choice((0, 1, 2, 5, 10, 20, 40, 80))]

    def leaf(self) -> Node:
        """Something without branches."""
        roll = self.rng.random()
        if roll < 0.36:
            return self.step()
        if roll < 0.53:
            return ["decide", self.number()]
        if roll < 0.61:
            return [
                "sleep",
                self.rng.choice((1, 5, 20)) * 1_000
                + (0 if self.pure else self.number()),
            ]
        if roll < 0.71:
            return [
                "signal",
                self.rng.choice("pq") if self.pure else f"s{self.number()}",
            ]
        if roll < 0.77:
            # Its place in the conversation is written down: it follows an outcome, too.
            return ["seq", [self.step(), ["entry", self.number()]]]
        if roll < 0.8:
            # And so it does what a read finds.
            return ["seq", [self.step(), ["drain", f"d{self.number()}"]]]
        if roll < 0.83:
            return [self.rng.choice(("run", "once")), self.number()]
        if roll < 0.85:
            return ["within", self.rng.choice((1, 10)) * 1_000, self.number()]
        return self.step() if self.pure else self.wait()

    def members(self, depth: int) -> list[Node]:
        """Branches; half of them begin outside of the context."""
        members = [self.node(depth) for _ in range(self.rng.randint(2, 4))]
        return [
            ["seq", [self.wait(), one]]
            if not self.pure and self.rng.random() < 0.5
            else one
            for one in members
        ]

    def racer(self, at: int) -> Node:
        """A member of a race: its last outcome is one of the context, and a wait of it outside does not win."""
        slow = at > 0 and not self.pure and self.rng.random() < 0.3
        before = [["outside", self.rng.choice(OUTSIDE), 1_500]] if slow else []
        return [
            "seq",
            [*before, *([self.step()] if self.rng.random() < 0.3 else []), self.step()],
        ]

    def node(self, depth: int) -> Node:
        """Any node, with branches down to a depth."""
        if depth == 0:
            return self.leaf()
        roll = self.rng.random()
        if roll < 0.3:
            return [
                "seq",
                [self.node(depth - 1) for _ in range(self.rng.randint(2, 4))],
            ]
        if roll < 0.55:
            return ["all", self.rng.randrange(840), self.members(depth - 1)]
        if roll < 0.65:
            racers = [self.racer(at) for at in range(self.rng.randint(2, 3))]
            return ["race", self.rng.randrange(840), racers]
        if roll < 0.75:
            return [
                "pool",
                self.rng.randrange(840),
                self.rng.randint(2, 3),
                [self.leaf() for _ in range(self.rng.randint(3, 6))],
            ]
        if roll < 0.8:
            return [
                "timeout",
                self.rng.choice((3, 15)),
                ["never", self.number()],
                self.number(),
            ]
        if roll < 0.84:
            return ["timeout", 60_000, self.node(depth - 1), self.number()]
        if roll < 0.88:
            return [
                "limit",
                self.rng.choice((5, 15)) * 1_000 + self.number(),
                ["never", self.number()],
            ]
        if roll < 0.92:
            return ["nest", self.rng.choice((2, 8, 30)), self.node(depth - 1)]
        return self.leaf()


def program(seed: int) -> Program:
    """Make the program of a seed."""
    rng = random.Random(seed)
    maker = Maker(rng, pure=rng.random() < 0.25)
    begin = maker.step if maker.pure else maker.wait
    background = [["seq", [begin(), maker.node(1)]] for _ in range(rng.randint(0, 2))]
    body = [maker.node(2) for _ in range(rng.randint(2, 4))]
    # Whoever waits in the root while branches have not begun: the kind that was missing.
    body.insert(rng.randrange(len(body) + 1), ["decide", maker.number()])
    body.append(["decide", maker.number()])
    leaves = _leaves([*body, *background])
    names = [one[1] for one in leaves if one[0] in ("signal", "drain")]
    signals = [
        [rng.choice((0, 10, 50, 150)), name, f"{name}{number}"]
        for number, name in enumerate(names)
    ]
    return {
        "name": f"run-{seed}",
        "background": background,
        "body": body,
        "signals": signals,
        "cancel": rng.choice((5, 40, 120)) if rng.random() < 0.1 else None,
        "fork": _fork(rng) if rng.random() < 0.2 else None,
        "crashes": [
            [1 + min(int(rng.paretovariate(0.7)), 40), rng.choice(CRASHES)]
            for _ in range(rng.randint(2, 5))
        ],
    }


def _fork(rng: random.Random) -> dict[str, Any]:
    """Say when a run is forked, after so many ms or at its end, and at which of its entries or steps by then."""
    when = rng.choice((0, 20, 60, 150, None))
    return {
        "when": when,
        "by": rng.choice(("entry", "op")),
        "at": rng.randrange(1000),
    }


def crashable(given: Program) -> bool:
    """Whether it has no long waits of the host, and so may die many times in little time."""
    waits = [
        one[2]
        for one in _leaves([*given["body"], *given["background"]])
        if one[0] == "outside"
    ]
    return max(waits, default=0) <= 20


def _leaves(nodes: list[Node]) -> list[Node]:
    found: list[Node] = []
    for node in nodes:
        found.append(node)
        for part in node[1:]:
            if isinstance(part, list):
                found += _leaves([part] if part and isinstance(part[0], str) else part)
    return found


def edited(given: Program, seed: int) -> Program:
    """Return the program with a step put in, taken out or moved, as its author might."""
    rng = random.Random(seed)
    body = list(given["body"])
    at = rng.randrange(len(body))
    match rng.randrange(3):
        case 0:
            body.insert(at, ["step", 10_000 + seed % 1_000, 0])
        case 1 if len(body) > 1:
            del body[at]
        case _:
            body.insert(rng.randrange(len(body)), body.pop(at))
    return given | {"body": body}
