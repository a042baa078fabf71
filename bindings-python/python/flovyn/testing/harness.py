"""A backend in memory on a clock that the test moves, and a worker on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar

from .. import _native
from ..agent import Agent
from ..client import Client
from ..handle import Handle
from ..hub import Hub
from ..inputs import NOT_GIVEN
from ..task import Task
from ..worker import Worker
from .fakes import Fakes, fakes_by_kind
from .lives import Lives

R = TypeVar("R")

_PAUSE_S = 0.002
_SETTLE_S = 5.0
_MAX_JUMPS = 100_000


class TestWorld:
    """Time and rows that outlive a process: every process on it finds what was durable."""

    def __init__(self) -> None:
        self.native = _native.TestWorld()

    @property
    def now(self) -> float:
        """Seconds since 1970 on its clock."""
        return self.native.now()

    def start_process(self) -> Client:
        """Return a client of a new process."""
        return Client(self.native.start_process()).attach_hub()

    async def jump(self, until: float | None = None) -> bool:
        """Move the clock to the next thing that time brings, at most to `until`; false if there is none."""
        due = await Hub.current().call(self.native.passed)
        if due is None or (until is not None and due > until):
            return False
        self.native.advance(max(due - self.now, 0.0) + 1e-6)
        return True


class Harness:
    """Agents and tasks served in memory; the clock stands still until ``advance``."""

    def __init__(
        self,
        agents: Iterable[Agent[Any, Any]],
        tasks: Iterable[Task[..., Any]] = (),
        *,
        fakes: Fakes | None = None,
        max_parked: int | None = None,
    ) -> None:
        self._agents = list(agents)
        self._tasks = list(tasks)
        self._fakes = fakes_by_kind(fakes, self._agents, self._tasks)
        self._max_parked = max_parked
        self._world = TestWorld()
        self._lives = Lives()
        self.client: Client
        """The client of the backend."""
        self.worker: Worker
        """The worker that serves the agents."""

    async def __aenter__(self) -> Harness:
        self.client = self._lives.begin(self._world.native.start_process()).attach_hub()
        self.worker = self.client.worker(self._agents, self._tasks, max_parked=self._max_parked)
        self.worker.fakes.update(self._fakes)
        await self.worker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    async def start(self, agent: Agent[Any, R], input: Any = NOT_GIVEN, **options: Any) -> Handle[R]:
        """Start a run; takes the options of ``Client.start``."""
        return await self.client.start(agent, input, **options)

    @property
    def now(self) -> float:
        """Seconds since 1970 on the virtual clock."""
        return self._world.now

    async def advance(self, seconds: float) -> None:
        """Let so much time pass: timers fire one after the other, and what they wake runs until it waits again."""
        await self.settle()
        until = self._world.now + seconds
        for _ in range(_MAX_JUMPS):
            if not await self._world.jump(until):
                break
            await self.settle()
        self._world.native.advance(max(until - self._world.now, 0.0))
        await self.settle()

    async def settle(self) -> None:
        """Wait until no run has anything left to do but to wait (at most 5 s)."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + _SETTLE_S
        calm = 0
        while calm < 3 and loop.time() < limit:
            await asyncio.sleep(_PAUSE_S)
            busy = [run async for run in self.client.runs(status=("PENDING", "RUNNING"))]
            calm = 0 if busy else calm + 1

    async def crash(self) -> None:
        """End the process as by kill -9 and begin a new one: nothing that was not durable is left.

        Handles go on in the new one, and so does whoever waits at them.
        """
        dead = self.client
        dead.forget()
        await Hub.current().call(dead.native.kill)
        await self.__aenter__()


def harness(
    agents: Iterable[Agent[Any, Any]],
    tasks: Iterable[Task[..., Any]] = (),
    *,
    fakes: Fakes | None = None,
    max_parked: int | None = None,
) -> Harness:
    """Serve agents in memory on a virtual clock: ``async with harness([agent]) as h: await h.advance(3600)``.

    ``fakes`` maps tasks (or kinds) to functions that stand in for them.
    """
    return Harness(agents, tasks, fakes=fakes, max_parked=max_parked)
