"""Several ops at once: what the contexts of ``async def`` and ``def`` agents share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, cast

from .errors import InvalidArgument
from .join import Join
from .step import LocalStep, Step
from .task import Task


def listed(steps: tuple[Any, ...]) -> list[Any]:
    """Return the steps of a call that takes several, or one list of them."""
    if len(steps) == 1 and isinstance(steps[0], (list, tuple)):
        return list(steps[0])  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return list(steps)


def some(steps: tuple[Any, ...], call: str) -> list[Any]:
    """Return the steps of a call that waits for one of several."""
    found = listed(steps)
    if not found:
        raise InvalidArgument(f"{call} waits for one of several, and was given none")
    return found


async def joined(steps: list[Any], *, settled: bool) -> list[Any]:
    """Wait for all and return their outcomes in order; a failure is raised, or `settled` has it in its place."""
    ours = cast(
        "list[Step[Any]]", [step for step in steps if isinstance(step, Step) and not isinstance(step, LocalStep)]
    )
    activation = ours[0].activation if ours else None
    if activation is None or len(ours) < len(steps) or len(steps) == 1 or activation.sealed:
        return list(await asyncio.gather(*steps, return_exceptions=settled))
    activation.branched()
    wait = Join(settled=settled, loop=activation.loop)
    try:
        wait.begin(ours)
        await wait
    except BaseException as error:
        for step in ours:
            step.leave(wait)
        stops = any(step.stops for step in ours) if wait.failed is None else wait.failed.stops
        # See `Step.__await__`: whoever set a timer would take that for a wait of too long.
        if not wait.done() or wait.cancelled() or not stops or isinstance(error, GeneratorExit):
            raise
    if wait.failed is not None:
        wait.failed.outcome()
    return [step.outcome_or_error() if settled else step.outcome() for step in ours]


class Mapped:
    """How far a task has come over its items."""

    def __init__(self, task: Any, items: Iterable[Any], limit: int, settled: bool) -> None:
        if not isinstance(task, (Task, str)):
            raise InvalidArgument(f"ctx.map takes a function declared with @task, or a kind, not {task!r}")
        if limit < 1:
            raise InvalidArgument(f"ctx.map has limit={limit}; at least one item is run at a time")
        self._task = cast("Task[..., Any] | str", task)
        self._settled = settled
        self._failed: dict[int, Exception] = {}
        self._next = 0
        self.items: list[Any] = list(items)
        self.results: list[Any] = [None] * len(self.items)
        self.lanes: int = min(limit, len(self.items))

    def task(self, index: int) -> Any:
        """Return the task of an item; a key names each of its calls."""
        task = self._task
        if isinstance(task, str) or task.key is None:
            return task
        return task.options(key=f"{task.key}[{index}]")

    def begun(self) -> Iterator[int]:
        """Give the items to begin, each once."""
        while self._next < len(self.items) and (self._settled or not self._failed):
            self._next += 1
            yield self._next - 1

    def fails(self, index: int, error: Exception) -> None:
        """Note the failure of an item."""
        self._failed[index] = error

    def ended(self) -> list[Any]:
        """Return the results, or raise the first failure."""
        if self._failed and not self._settled:
            raise self._failed[min(self._failed)]
        for index, error in self._failed.items():
            self.results[index] = error
        return self.results
