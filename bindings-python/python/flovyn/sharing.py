"""One client and one worker for code that is loaded again and again: notebooks, development servers, consoles."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from .agent import Agent
from .client import Client, connect
from .task import Task
from .worker import Worker


class _Shared:
    """The client of one URL on one loop, and its worker."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.client: Client | None = None
        self.worker: Worker | None = None

    async def opened(self, url: str | None) -> Client:
        client = self.client
        if client is None or not client.is_open or client.origin.is_elsewhere:
            client = self.client = await connect(url)
            self.worker = None
        return client

    async def serve(self, client: Client, agents: list[Agent[Any, Any]], tasks: list[Task[..., Any]]) -> None:
        if self.worker is not None and self.worker.is_open:
            await self.worker.replace(agents, tasks)
        else:
            self.worker = await client.worker(agents, tasks).start()


_loops: dict[asyncio.AbstractEventLoop, dict[str | None, _Shared]] = {}


async def shared(
    url: str | None = None, *, agents: Iterable[Agent[Any, Any]] = (), tasks: Iterable[Task[..., Any]] = ()
) -> Client:
    """Return the one client of a URL on the running loop, opened on first use; it is closed with the process.

    With agents or tasks it has a worker. Called again, as a notebook's cell is, it serves those of that call in the
    place of those of the same kinds, and goes on with the others: new runs take the new functions at once, runs that
    wait go on in them, and runs that are working end or wait in the old ones first.
    """
    agents, tasks = list(agents), list(tasks)
    for loop in [loop for loop in _loops if loop.is_closed()]:
        # Its clients are left as soon as another one is opened.
        del _loops[loop]
    known = _loops.setdefault(asyncio.get_running_loop(), {}).setdefault(url, _Shared())
    async with known.lock:
        client = await known.opened(url)
        if agents or tasks:
            await known.serve(client, agents, tasks)
    return client
