"""Owns what is drawn by a seed: families, what their models answer and use, and how much each family may use."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from flovyn.testing.scripted import Turn, tool_call, turn

CHILDREN = 20
#: What every model call asks for at most. A budget shortens an answer to no less than 256 tokens, so none of these.
MAX_TOKENS = 200
#: Tokens of a first prompt, fewer than any estimate of one.
FIRST_PROMPT = 3
KINDS = ("ample", "shared", "carved", "greedy", "deep")
#: Parts of what a family needs that it gets.
RATIO = {"ample": 12.0, "shared": 0.6, "carved": 0.7, "greedy": 0.5, "deep": 0.6}
LOOK = "look"

Child = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """A family to be started."""

    name: str
    kind: str
    budget: dict[str, int]
    input: dict[str, Any]

    @property
    def is_modest(self) -> bool:
        """Whether no call of it uses more than it has reserved: its models keep to their limits."""
        return self.kind != "greedy" and self.input["report"] is None


class Models:
    """The scripted models: what each answers and uses, by the place in its conversation."""

    def __init__(self, chance: random.Random) -> None:
        self.usage: dict[str, list[tuple[int, int]]] = {}
        """Input and output tokens of each answer of a model."""
        self.turns: list[Turn] = []
        for number in range(4):
            self._add(f"modest-{number}", chance, 2 + number % 3, calls=True, most=MAX_TOKENS)
        for number in range(4):
            self._add(f"greedy-{number}", chance, 2 + number % 3, calls=True, most=5 * MAX_TOKENS)
        for number in range(2):
            self._add(f"plain-{number}", chance, 2 + number, calls=False, most=3 * MAX_TOKENS)
        self._add("report", chance, 1, calls=False, most=20 * MAX_TOKENS)

    def _add(self, model: str, chance: random.Random, length: int, *, calls: bool, most: int) -> None:
        used: list[tuple[int, int]] = []
        prompt = FIRST_PROMPT
        for place in range(1, length + 1):
            output = chance.randrange(most // 4, most + 1)
            used.append((prompt, output))
            is_last = place == length
            answer = turn("That is all.") if is_last or not calls else tool_call(LOOK, {"word": f"{model} {place}"})
            script = {**answer.script, "usage": {"input": prompt, "output": output}}
            scripted = Turn(script).when(model=model, turn=place)
            self.turns.append(scripted.slowly(first_ms=chance.randrange(30, 150), chunk_ms=chance.randrange(8)))
            prompt += output
        self.usage[model] = used

    def needs(self, model: str) -> int:
        """Return the tokens of all answers of a model."""
        return sum(map(sum, self.usage[model]))

    def named(self, begin: str) -> list[str]:
        """Return the models of a sort."""
        return [model for model in self.usage if model.startswith(begin)]


def families(models: Models, chance: random.Random, numbers: range) -> list[Family]:
    """Draw families; their kinds take turns."""
    return [_family(models, chance, f"f{number}", KINDS[number % len(KINDS)]) for number in numbers]


def _family(models: Models, chance: random.Random, name: str, kind: str) -> Family:
    children = [_child(models, chance, f"{name}.{number}", kind, number) for number in range(CHILDREN)]
    needed = sum(_needs(models, child) for child in children)
    budget = {"max_tokens": max(int(needed * RATIO[kind]), sum(_given(child) for child in children) * 3 // 2)}
    if kind == "shared" and chance.random() < 0.5:
        budget = {"max_tokens": 2 * needed, "max_calls": sum(_calls(models, child) for child in children) * 2 // 3}
    report = "report" if chance.random() < 0.4 and kind != "ample" else None
    refused = kind != "ample" and chance.random() < 0.3
    given = {"name": name, "children": children, "report": report, "refused": refused and budget["max_tokens"] + 1}
    return Family(name, kind, budget, given)


def _child(models: Models, chance: random.Random, marker: str, kind: str, number: int) -> Child:
    if kind == "deep" and number < 3:
        below = [_child(models, chance, f"{marker}.{one}", "shared", one) for one in range(4)]
        child: Child = {"kind": "desk", "marker": marker, "children": below}
        if number < 2:
            child["budget"] = {"max_tokens": int(_needs(models, child) * chance.choice((0.5, 2.0)))}
        return child
    if kind == "greedy" and chance.random() < 0.3:
        model = chance.choice(models.named("plain"))
        return {"kind": "plain", "marker": marker, "model": model, "turns": len(models.usage[model])}
    model = chance.choice(models.named("greedy" if kind == "greedy" else "modest"))
    child = {"kind": "react", "marker": marker, "model": model}
    if kind in ("carved", "greedy") and number % 3 == 0:
        child["budget"] = {"max_tokens": int(models.needs(model) * chance.choice((0.4, 0.8, 2.0)))}
    elif kind == "ample" and number % 5 == 0:
        child["budget"] = {"max_tokens": models.needs(model) * 4}
    return child


def _needs(models: Models, child: Child) -> int:
    if child["kind"] == "desk":
        return sum(_needs(models, below) for below in child["children"])
    return models.needs(child["model"])


def _calls(models: Models, child: Child) -> int:
    if child["kind"] == "desk":
        return sum(_calls(models, below) for below in child["children"])
    return len(models.usage[child["model"]])


def _given(child: Child) -> int:
    return int(child.get("budget", {}).get("max_tokens", 0))
