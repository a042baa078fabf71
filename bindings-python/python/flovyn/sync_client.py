"""Clients for programs without an event loop: Flask, Django, Celery, scripts.

One thread per client runs a loop; every call is carried out there and waited for. A forked child has no such thread:
its client opens a server or a PostgreSQL anew on first use.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload
from uuid import UUID

from .agent import Agent
from .client import Client, StartOptions, connect
from .events import Event
from .forks import Origin
from .handle import Delivery, Facts, Handle
from .inputs import NOT_GIVEN
from .message import Message, Messages
from .task import Task
from .worker import Worker, closed_beside

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Unpack

I = TypeVar("I")  # noqa: E741 - the input
R = TypeVar("R")
T = TypeVar("T")

_JOIN_WITHIN_S = 10.0


class Portal:
    """A thread with an event loop that other threads may call into."""

    def __init__(self) -> None:
        self.origin = Origin()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="flovyn-client", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out a coroutine on the portal's loop and return its result."""
        if self.origin.is_elsewhere:
            work.close()
            self.origin.check("a handle or worker of a client")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over what an async iterator gives."""

        async def next_item() -> tuple[bool, Any]:
            try:
                return True, await items.__anext__()
            except StopAsyncIteration:
                return False, None

        while True:
            more, item = self.call(next_item())
            if not more:
                return
            yield item

    def close(self) -> None:
        """End the thread."""
        if not self.origin.is_elsewhere and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_JOIN_WITHIN_S)


_reopening = threading.Lock()
_left: list[object] = []
"""What is the parent's: to drop it here could speak on the parent's connections."""


def _renew_lock() -> None:
    """Another thread of the parent may have held it."""
    global _reopening
    _reopening = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class SyncClient:
    """An open backend for blocking code. Close it, or use it as a context manager.

    Made before a fork it is the parent's. In the child its first call opens the same URL anew where that is a server's
    or a PostgreSQL's; on a file or ``memory:`` it raises ``ForkedProcess``, as handles and workers always do. So make
    it in each process on its first use: ``@functools.cache`` on a function that calls ``connect_sync``.
    """

    def __init__(self, portal: Portal, client: Client) -> None:
        self._ends = (portal, client)

    @property
    def _portal(self) -> Portal:
        return self._here()[0]

    @property
    def _client(self) -> Client:
        return self._here()[1]

    def _here(self) -> tuple[Portal, Client]:
        """Return the ends that this process has; opens the URL anew in a forked child."""
        ends = self._ends
        if not ends[0].origin.is_elsewhere:
            return ends
        with _reopening:
            client = self._ends[1]
            if self._ends[0].origin.is_elsewhere:
                # SQLite keeps its locks in memory, too: what the parent held as it forked stays locked here for ever.
                if not client.is_open or not client.url.startswith(("http:", "https:", "postgres:", "postgresql:")):
                    client.origin.check("a client")
                _left.append(self._ends)
                self._ends = _opened(client.url)
            return self._ends

    @property
    def url(self) -> str:
        """The URL it was opened with."""
        return self._ends[1].url

    @overload
    def start(self, agent: Agent[None, R], input: None = None, **options: Unpack[StartOptions]) -> SyncHandle[R]: ...
    @overload
    def start(self, agent: Agent[I, R], input: I, **options: Unpack[StartOptions]) -> SyncHandle[R]: ...
    @overload
    def start(self, agent: str, input: Any = None, **options: Unpack[StartOptions]) -> SyncHandle[Any]: ...
    def start(self, agent: Any, input: Any = NOT_GIVEN, **options: Unpack[StartOptions]) -> SyncHandle[Any]:
        """Start a run and return its handle; takes the options of ``Client.start``."""
        return SyncHandle(self._portal, self._portal.call(self._client.start(agent, input, **options)))

    @overload
    def handle(self, id_or_key: str | UUID) -> SyncHandle[Any]: ...
    @overload
    def handle(self, id_or_key: str | UUID, agent: Agent[Any, R]) -> SyncHandle[R]: ...
    def handle(self, id_or_key: str | UUID, agent: Any = None) -> SyncHandle[Any]:
        """Return the handle of a run that exists; see ``Client.handle``."""
        return SyncHandle(self._portal, self._portal.call(self._client.handle(id_or_key, agent)))

    def runs(self, **filters: Any) -> Iterator[Facts]:
        """Iterate over runs, newest first; takes the filters of ``Client.runs``."""
        return self._portal.iterate(self._client.runs(**filters))

    def create_schedule(self, id: str, agent: Agent[Any, Any] | str, input: Any = NOT_GIVEN, **options: Any) -> Facts:
        """Start runs by the clock; takes the options of ``Client.create_schedule``."""
        return self._portal.call(self._client.create_schedule(id, agent, input, **options))

    def delete(self, id_or_key: str | UUID) -> None:
        """Remove a run that has ended, with all it has."""
        self._portal.call(self._client.delete(id_or_key))

    def pause_schedule(self, id: str) -> Facts:
        """Let a schedule start nothing until it is resumed."""
        return self._portal.call(self._client.pause_schedule(id))

    def resume_schedule(self, id: str) -> Facts:
        """Let a schedule go on; its ticks count from now."""
        return self._portal.call(self._client.resume_schedule(id))

    def schedule(self, id: str) -> Facts:
        """Return one schedule."""
        return self._portal.call(self._client.schedule(id))

    def schedules(self) -> Iterator[Facts]:
        """Iterate over the schedules, by id."""
        return self._portal.iterate(self._client.schedules())

    def delete_schedule(self, id: str) -> None:
        """Remove a schedule; the runs that it started stay."""
        self._portal.call(self._client.delete_schedule(id))

    def queues(self) -> list[Facts]:
        """Return what waits and what runs, by queue and kind."""
        return self._portal.call(self._client.queues())

    def queue_limits(self) -> list[Facts]:
        """Return the queues that have a limit."""
        return self._portal.call(self._client.queue_limits())

    def limit_queue(self, queue: str, *, concurrency: int | None = None, rate: tuple[int, float] | None = None) -> None:
        """Limit a queue, or free it where neither limit is given."""
        self._portal.call(self._client.limit_queue(queue, concurrency=concurrency, rate=rate))

    def workers(self) -> Iterator[Facts]:
        """Iterate over the workers."""
        return self._portal.iterate(self._client.workers())

    def backup(self, path: str | PathLike[str]) -> int:
        """Copy a SQLite database to a new file; return its size in bytes."""
        return self._portal.call(self._client.backup(path))

    def worker(
        self, agents: Iterable[Agent[Any, Any]] = (), tasks: Iterable[Task[..., Any]] = (), **options: Any
    ) -> SyncWorker:
        """Make a worker that serves on the client's thread: a context manager, or ``run()`` to block."""
        return SyncWorker(self._portal, self._client.worker(agents, tasks, **options))

    def close(self) -> None:
        """Close the workers, then the backend; nothing in a forked child that has not used it."""
        self._close(None)

    def _close(self, error: BaseException | None) -> None:
        portal, client = self._ends
        if portal.origin.is_elsewhere:
            # The parent's, which this process has not used.
            return
        try:
            portal.call(closed_beside(error, client.close()))
        finally:
            portal.close()

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(error)


class SyncWorker:
    """A worker in the hands of blocking code."""

    def __init__(self, portal: Portal, worker: Worker) -> None:
        self._portal = portal
        self._worker = worker

    def start(self) -> SyncWorker:
        """Begin to poll."""
        self._portal.call(self._worker.start())
        return self

    def run(self) -> None:
        """Serve until the client or the worker is closed."""
        self._portal.call(self._worker.run())

    def close(self) -> None:
        """Stop: runs are put away and given back; nothing in a forked child."""
        if not self._portal.origin.is_elsewhere:
            self._portal.call(self._worker.close())

    def __enter__(self) -> SyncWorker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._portal.origin.is_elsewhere:
            self._portal.call(closed_beside(error, self._worker.close()))


class SyncHandle(Generic[R]):
    """One run, for blocking code; the methods are those of ``Handle``."""

    def __init__(self, portal: Portal, handle: Handle[R]) -> None:
        self._portal = portal
        self._handle = handle
        self.id: UUID = handle.id
        self.key: str | None = handle.key

    def status(self) -> str:
        """Return the status word."""
        return self._portal.call(self._handle.status())

    def describe(self) -> Facts:
        """Return everything known about the run."""
        return self._portal.call(self._handle.describe())

    def result(self, timeout: float | None = None) -> R:
        """Wait for the end and return the agent's result; raises as ``Handle.result``."""
        return self._portal.call(self._handle.result(timeout))

    def stream(self, after: str | None = None, *, children: bool = False) -> Iterator[Event]:
        """Iterate over the run's events, and over those of all below it as ``Handle.stream`` does."""
        return self._portal.iterate(self._handle.stream(after, children=children))

    def sse(self, after: str | None = None, *, children: bool = False) -> Iterator[bytes]:
        """Iterate over the run's events as server-sent events."""
        return self._portal.iterate(self._handle.sse(after, children=children))

    def signal(
        self, name: str, payload: Any = None, *, idempotency_key: str | None = None, delivery: Delivery = "next_step"
    ) -> UUID:
        """Send a signal; it is durable when this returns."""
        return self._portal.call(self._handle.signal(name, payload, idempotency_key=idempotency_key, delivery=delivery))

    def cancel(self, mode: Literal["graceful", "hard"] = "graceful", timeout: float | None = None) -> str:
        """Ask the run to stop and return its status."""
        return self._portal.call(self._handle.cancel(mode, timeout))

    def delete(self) -> None:
        """Remove the run, which has ended, with all it has."""
        self._portal.call(self._handle.delete())

    def resume(self, **options: Any) -> str:
        """Continue a paused run and return its status; takes the options of ``Handle.resume``."""
        return self._portal.call(self._handle.resume(**options))

    def retry(self, **options: Any) -> str:
        """Go on with a run that has failed and return its status; takes the options of ``Handle.retry``."""
        return self._portal.call(self._handle.retry(**options))

    def fork(self, **options: Any) -> SyncHandle[R]:
        """Start a run that shares this one's past; takes the options of ``Handle.fork``."""
        return SyncHandle(self._portal, self._portal.call(self._handle.fork(**options)))

    def resolve(self, op_id: str, **options: Any) -> Facts:
        """Answer for a task in doubt; takes the options of ``Handle.resolve``."""
        return self._portal.call(self._handle.resolve(op_id, **options))

    def resolve_divergence(self, decision: Literal["continue", "fork", "stay"]) -> SyncHandle[R]:
        """Decide a divergence."""
        return SyncHandle(self._portal, self._portal.call(self._handle.resolve_divergence(decision)))

    def messages(self) -> Messages:
        """Return the conversation as of the last commit, with the ``position`` behind it."""
        return self._portal.call(self._handle.messages())

    def input(self) -> Any:
        """Return what the run was started with."""
        return self._portal.call(self._handle.input())

    def output(self) -> R | None:
        """Return what the run has returned; None before its end."""
        return self._portal.call(self._handle.output())

    def state(self, checkpoint: int | None = None) -> Any:
        """Return the state of a checkpoint, or of the last one."""
        return self._portal.call(self._handle.state(checkpoint))

    def entries(self) -> list[Message]:
        """Return all entries the run appended, on whatever branch."""
        return self._portal.call(self._handle.entries())

    def checkpoints(self, *, states: bool = False) -> list[Facts]:
        """Return the run's checkpoints, oldest first; with ``states`` each has its ``state``."""
        return self._portal.call(self._handle.checkpoints(states=states))

    def tasks(self) -> list[Facts]:
        """Return the run's tasks in order."""
        return self._portal.call(self._handle.tasks())


def connect_sync(url: str | None = None) -> SyncClient:
    """Open a backend for blocking code; the URL is that of ``connect``. A process that forks opens it after that."""
    return SyncClient(*_opened(url))


def _opened(url: str | None) -> tuple[Portal, Client]:
    portal = Portal()

    async def opening() -> Client:
        return await connect(url)

    try:
        return portal, portal.call(opening())
    except BaseException:
        portal.close()
        raise
