"""One wait for the ends of several steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .step import Step


class Join(asyncio.Future[None]):
    """Done once all of several steps have ended, or one has failed where that ends the wait.

    ``asyncio.gather`` makes a task for each of them, which takes four times the memory of the step.
    """

    def __init__(self, *, settled: bool, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._settled = settled
        self._open = 0
        self.failed: Step[Any] | None = None
        """The first step that has failed, where that ends the wait."""

    def begin(self, steps: list[Step[Any]]) -> None:
        """Await these."""
        for step in dict.fromkeys(steps):
            if step.done():
                self._took(step)
            else:
                self._open += 1
                step.begin(self)
        self._look()

    def ended(self, step: Step[Any]) -> None:
        """Take the end of one of them."""
        self._open -= 1
        self._took(step)
        self._look()

    def _took(self, step: Step[Any]) -> None:
        if self.failed is None and step.failed and not self._settled:
            self.failed = step

    def _look(self) -> None:
        if not self.done() and (self._open == 0 or self.failed is not None):
            self.set_result(None)


class Waiters:
    """The futures that the outcomes of an agent's steps end. Gathered once one is asked for that is no join."""

    def __init__(self, steps: Iterable[Step[Any]]) -> None:
        self._steps = steps
        self._found: set[object] | None = None

    def __contains__(self, future: object) -> bool:
        if isinstance(future, Join):
            return True
        if self._found is None:
            self._found = {waiter for step in self._steps for waiter in step.waiters}
        return future in self._found
