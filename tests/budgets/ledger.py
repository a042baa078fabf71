"""Owns the checks of a family that has ended: what the model's server was paid for, beside what the books say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import flovyn
from flovyn.events import Lifecycle
from flovyn.testing.scripted import ModelCall

import books
from plan import Child, Family, Models

FAKE = "fake/"
DIMENSIONS = {"tokens": "max_tokens", "calls": "max_calls"}
LIMITS = {"tokens": "maxTokens", "calls": "maxCalls"}
ENDS = {"COMPLETED": "Completed", "CANCELLED": "BudgetExceeded"}


@dataclass
class Evidence:
    """What is known of the families of a batch beside their runs."""

    models: Models
    asked: list[ModelCall]
    heard: dict[str, set[str]]
    """What parents have noted of each child, in all lives."""
    url: str

    @cached_property
    def books(self) -> books.Books:
        """The books of the store."""
        return books.read(self.url)

    @cached_property
    def requests(self) -> dict[str, list[ModelCall]]:
        """The requests of each run, by its marker, in the order of their arrival."""
        found: dict[str, list[ModelCall]] = defaultdict(list)
        for call in self.asked:
            found[call.body["messages"][0]["content"][0]["text"]].append(call)
        return found


class Run:
    """A run of a family that has ended."""

    def __init__(self, facts: Any, plan: Child, given: dict[str, int], evidence: Evidence) -> None:
        self.marker: str = plan["marker"]
        self.id, self.parent, self.status = str(facts.id), facts.parent and str(facts.parent), facts.status
        self.usage: dict[str, Any] = facts.usage
        self.budget = given
        self.purse = evidence.books.purses.get(self.id, {})
        self.calls = [call for call in evidence.books.calls[self.id] if call.is_recorded]
        self.open = len(evidence.books.calls[self.id]) - len(self.calls)
        self.model: str | None = plan.get("model")
        self.answers = evidence.models.usage.get(self.model or "", [])
        self.children: list[Run] = []

    @property
    def used(self) -> Counter[str]:
        """What its own calls have used, as the books say."""
        used: Counter[str] = Counter()
        for of in self.usage.values():
            used["tokens"] += of["input_tokens"] + of["output_tokens"]
            used["tokens"] += of["cache_read_tokens"] + of["cache_write_tokens"]
            used["calls"] += of["calls"]
        return used

    @property
    def beyond(self) -> Counter[str]:
        """What its last call has used beyond its reservation. Those before were booked when the last was begun."""
        if not self.calls:
            return Counter()
        reserved = self.calls[-1].reserved
        tokens = sum(self.answers[len(self.calls) - 1])
        return Counter(tokens=max(0, tokens - reserved), calls=0 if reserved else 1)

    def all(self) -> Iterator[Run]:
        """Yield it and all below it."""
        yield self
        for child in self.children:
            yield from child.all()

    def sum(self, what: str) -> Counter[str]:
        """Add something up over it and all below it."""
        total: Counter[str] = Counter()
        for run in self.all():
            total.update(getattr(run, what))
        return total


@dataclass
class Seen:
    """What families have shown."""

    faults: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    over: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """For each budget, by how many tokens it was overspent, and by how many calls went beyond their reservations."""


async def check(client: flovyn.Client, family: Family, was_paused: bool, evidence: Evidence, seen: Seen) -> None:
    """Look whether a family is as it has to be; note what is not, and what it has shown."""
    handle = await client.handle(family.name)
    facts = await handle.describe()
    faults: list[str] = []
    root = Run(facts, {"marker": family.name, "model": family.input["report"]}, family.budget, evidence)
    plans = {plan["marker"]: plan for plan in _plans(family.input["children"])}
    runs = {root.id: root}
    async for below in client.runs(root=handle.id):
        given = await (await client.handle(below.id)).input()
        marker = given.get("userPrompt") or given.get("marker")
        if marker not in plans:
            faults.append(f"a child was started that is none of the family: {given}")
            continue
        plan = plans.pop(marker)
        runs[str(below.id)] = Run(below, plan, plan.get("budget", {}), evidence)
    faults += [f"the child {marker} was not started" for marker in plans]
    for run in list(runs.values())[1:]:
        runs[str(run.parent)].children.append(run)
    if facts.status != "COMPLETED":
        faults.append(f"the root ended as {facts.status}: {facts.failure}")
    else:
        faults += _of_total(facts, root)
        for run in runs.values():
            faults += [f"{run.marker}: {fault}" for fault in _of_calls(run, evidence, seen)]
            faults += [f"{run.marker}: {fault}" for fault in _of_books(run, seen)]
            if run.children:
                faults += [f"{run.marker}: {fault}" async for fault in _of_parent(client, run, runs, evidence)]
        output: Any = await handle.output()
        faults += _of_root(family, root, output, was_paused)
    seen.counts.update(families=1, runs=len(runs), stopped=sum(run.status == "CANCELLED" for run in runs.values()))
    seen.faults += [f"{family.name} ({family.kind}, {family.budget}): {fault}" for fault in faults]


def _plans(children: list[Child]) -> Iterator[Child]:
    for child in children:
        yield child
        yield from _plans(child.get("children", []))


def _of_total(facts: Any, root: Run) -> Iterator[str]:
    """The roll-up is the sum of what the runs have recorded."""
    total, used = facts.total_usage, root.sum("used")
    tokens = total["input_tokens"] + total["output_tokens"] + total["cache_read_tokens"] + total["cache_write_tokens"]
    if (tokens, total["calls"]) != (used["tokens"], used["calls"]):
        yield f"its total usage is {tokens} tokens in {total['calls']} calls, and that of its runs {dict(used)}"


def _of_calls(run: Run, evidence: Evidence, seen: Seen) -> Iterator[str]:
    """Each call that has ended is in the ledger once, as it was paid; what was paid beside was lost in an attempt."""
    requests = evidence.requests[run.marker]
    asked = Counter(call.turn for call in requests)
    paid = Counter(call.turn for call in requests if call.is_paid)
    count = len(run.calls)
    booked = Counter(tokens=sum(map(sum, run.answers[:count])), calls=count)
    # Each model has answers of its own, so a call that is not of this one is found by what it has used.
    wanted: set[str] = {f"{FAKE}{run.model}"} if count else set()
    if set(run.usage) != wanted or run.used != +booked:
        yield f"the ledger has {dict(run.used)} of {sorted(run.usage)}, and its {count} calls have used {dict(booked)}"
    refused = [call.reason for call in requests if call.outcome in ("refused", "faulted")]
    if refused:
        yield f"the model has refused: {refused}"
    if run.open or any(place > count for place in asked):
        yield f"{run.open} calls are open, and the requests were {dict(asked)} of {count} recorded calls"
    # A request with n answers in its conversation says that these are recorded.
    order = [call.turn for call in requests]
    if order != sorted(order):
        yield f"a recorded answer was asked for again: {order}"
    for place, call in enumerate(run.calls, 1):
        if not 1 <= paid[place] <= asked[place] <= call.attempts:
            yield f"call {place} was paid {paid[place]} times in {asked[place]} requests and {call.attempts} attempts"
        seen.counts["lost"] += paid[place] - 1
        seen.counts["tokens_lost"] += (paid[place] - 1) * sum(run.answers[place - 1])
    seen.counts.update(recorded=count, asked=len(requests), tokens=run.used["tokens"], paid=sum(paid.values()))


def _of_books(run: Run, seen: Seen) -> Iterator[str]:
    """No budget is overspent by more than calls went beyond their reservations, and what was drawn is what was used."""
    used, beyond = run.sum("used"), run.sum("beyond")
    slices, lent = run.purse.get("slice", {}), run.purse.get("lent", {})
    for of, limit in DIMENSIONS.items():
        kept = slices.get(LIMITS[of], run.used[of])
        if kept != run.used[of]:
            yield f"it has kept {kept} {of} and used {run.used[of]}"
        if limit not in run.budget:
            continue
        over = used[of] - run.budget[limit]
        if over > beyond[of]:
            yield f"{used[of]} {of} of {run.budget[limit]} were used, and calls went {beyond[of]} beyond reservations"
        if of == "tokens":
            seen.over.append((over, beyond[of]))
        if lent.get(of, 0) != used[of]:
            yield f"its books have {lent.get(of)} {of} lent, and {used[of]} were used"
        backed = run.purse.get("backed", {}).get(LIMITS[of], used[of])
        if backed != used[of]:
            yield f"its books have {backed} {of} from above, and {used[of]} were used"


async def _of_parent(client: flovyn.Client, run: Run, runs: dict[str, Run], evidence: Evidence) -> AsyncIterator[str]:
    """It has heard of each child one end, the same in all lives, and the one that the child had."""
    handle = await client.handle(run.id)
    told: Counter[str] = Counter()
    async for event in handle.stream():
        if isinstance(event, Lifecycle) and event.name == "signal":
            told[event.data["name"].removeprefix("flovyn.child.")] += 1
    output: Any = await handle.output()
    ends = {end[1]: end for end in output["ends"]}
    if not len(ends) == len(output["ends"]) == len(run.children):
        yield f"it has heard {len(output['ends'])} ends of {len(run.children)} children"
    for child in run.children:
        end = ends.get(child.id)
        if told[child.id] != 1 or len(evidence.heard[child.marker]) != 1 or end is None:
            yield f"it was told {told[child.id]} times of {child.marker}, and heard {evidence.heard[child.marker]}"
            continue
        if end[2] != ENDS.get(child.status):
            yield f"{child.marker} ended as {child.status}, and it has heard {end}"
        if end[3] is not None:
            used = child.sum("used")
            limit = _pool(child, runs)
            if any(end[3][0][of] != used[of] for of in DIMENSIONS) or end[3][1] != limit:
                yield f"it has heard {end[3]} of {child.marker}, which has used {dict(used)} of {limit}"


def _pool(run: Run, runs: dict[str, Run]) -> dict[str, int]:
    """Return the limits that a run draws from, as events tell them."""
    above = _pool(runs[run.parent], runs) if run.parent else {}
    return above | {LIMITS[of]: run.budget[limit] for of, limit in DIMENSIONS.items() if limit in run.budget}


def _of_root(family: Family, root: Run, output: dict[str, Any], was_paused: bool) -> Iterator[str]:
    """What a kind of family has to show."""
    below: Counter[str] = Counter()
    for child in root.children:
        below.update(child.sum("used"))
    for of, limit in DIMENSIONS.items():
        told = output["books"].get(of, {})
        if limit in family.budget and (told["used"], told["limit"]) != (below[of], family.budget[limit]):
            yield f"its budget is told as {told}, and its children have used {below[of]} of {family.budget[limit]}"
    if family.is_modest and root.sum("beyond")["tokens"] > 0:
        yield "its models keep to their limits, and calls went beyond their reservations"
    stopped = [run.marker for run in root.all() if run.status == "CANCELLED"]
    if family.kind == "ample" and (stopped or was_paused):
        yield f"its budget is ample, and these were stopped: {stopped}"
    if family.kind != "ample" and not stopped:
        yield "its budget is small, and no child was stopped"
    if bool(family.input["refused"]) != output["refused"]:
        yield "a child that asked for more than there is was started"
    # After the report the root asks for one more of everything.
    used = root.sum("used")
    is_short = any(used[of] >= family.budget[limit] for of, limit in DIMENSIONS.items() if limit in family.budget)
    if was_paused != (is_short and family.input["report"] is not None):
        yield f"its root was {'' if was_paused else 'not '}paused, and {dict(used)} were used"
