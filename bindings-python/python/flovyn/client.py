"""Clients: the door to a backend. Start runs, find them, make workers."""

from __future__ import annotations

import atexit
import contextvars
import weakref
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from os import PathLike, fsdecode
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast, overload
from uuid import UUID

from . import _native
from .agent import Agent
from .desk import Desk
from .errors import ExecutionExists, FlovynError, InvalidArgument
from .family import Persistence
from .forks import Origin
from .handle import Handle
from .hub import Hub
from .inputs import NOT_GIVEN
from .mode import Mode, queue_of
from .serde import checked, described
from .task import Task
from .threads import in_thread
from .worker import Worker, closed_beside

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Unpack

    from .toolkit import Toolkit

I = TypeVar("I")  # noqa: E741 - the input
R = TypeVar("R")

CLOSE_WITHIN_S = 10.0
EXIT_WITHIN_S = 2.0

_open: weakref.WeakSet[Client] = weakref.WeakSet()


class StartOptions(TypedDict, total=False):
    """How a run is to be started; see ``Client.start``."""

    id: str | UUID | None
    queue: str | None
    mode: Mode | None
    metadata: Mapping[str, str] | None
    max_steps: int | None
    max_total_steps: int | None
    max_tail: int | None
    budget: Any
    timeout: float | None
    start_timeout: float | None
    priority: int
    concurrency_key: str | None
    concurrency_limit: int | None
    delay: float | None
    traceparent: str | None
    persistence: Persistence | None


class Client(Desk):
    """An open backend. Close it, or use it as a context manager; its workers are closed first."""

    def __init__(self, native: _native.Runtime) -> None:
        self.native = native
        self._workers: set[Worker] = set()
        self._hub: Hub | None = None
        self._is_open = True
        self.origin = Origin()
        _open.add(self)

    @property
    def url(self) -> str:
        """The URL it was opened with."""
        return self.native.url

    @property
    def is_open(self) -> bool:
        """Whether it can still be used."""
        return self._is_open

    @overload
    async def start(self, agent: Agent[None, R], input: None = None, **options: Unpack[StartOptions]) -> Handle[R]: ...
    @overload
    async def start(self, agent: Agent[I, R], input: I, **options: Unpack[StartOptions]) -> Handle[R]: ...
    @overload
    async def start(self, agent: str, input: Any = None, **options: Unpack[StartOptions]) -> Handle[Any]: ...
    async def start(
        self,
        agent: Any,
        input: Any = NOT_GIVEN,
        *,
        id: str | UUID | None = None,
        queue: str | None = None,
        mode: Mode | None = None,
        metadata: Mapping[str, str] | None = None,
        max_steps: int | None = None,
        max_total_steps: int | None = None,
        max_tail: int | None = None,
        budget: Any = None,
        timeout: float | None = None,
        start_timeout: float | None = None,
        priority: int = 0,
        concurrency_key: str | None = None,
        concurrency_limit: int | None = None,
        delay: float | None = None,
        traceparent: str | None = None,
        persistence: Persistence | None = None,
    ) -> Handle[Any]:
        """Start a run and return its handle; the run is durable when this returns.

        The same ``id`` with the same input returns the same run, with another input it raises ``ExecutionExists``.
        ``agent`` is a declared agent or a kind. An input that the agent does not take, or that does not fit its
        annotation, is ``InvalidArgument``: here, and not again once the run has begun. ``delay``, ``timeout``
        and ``start_timeout`` are seconds: a run that no worker has begun within ``start_timeout`` fails. Of the runs
        with one ``concurrency_key`` as many are RUNNING at a time as ``concurrency_limit`` says, one without it; those
        that wait do not count. Of a run with ``persistence="minimal"`` only its end, its usage and its signals are
        kept, until somebody else depends on more; the values of one with ``"local"`` stay on the machine that runs it.
        ``mode=Local("laptop")`` is the queue of that machine.
        """
        declared = _declared(agent)
        kind = cast(str, agent) if declared is None else declared.kind
        value = checked(None if input is NOT_GIVEN else input) if declared is None else declared.wire(input)
        limit = timeout if timeout is not None or declared is None else declared.timeout
        options: dict[str, Any] = dict(
            id=None if id is None else str(id),
            queue=queue_of(mode, queue, "start"),
            metadata=dict(metadata) if metadata else None,
            max_steps=max_steps,
            max_total_steps=max_total_steps,
            max_tail=max_tail,
            budget=described(budget),
            timeout=limit,
            start_timeout=start_timeout,
            priority=priority,
            concurrency_key=concurrency_key,
            concurrency_limit=concurrency_limit,
            delay=delay,
            traceparent=traceparent,
            persistence=persistence,
        )
        native = await self._started(kind, value, options, () if declared is None or id is None else declared.aliases)
        return self._handle(native, declared)

    async def _started(self, kind: str, value: Any, options: dict[str, Any], aliases: Sequence[str]) -> _native.Handle:
        """Start a run, or find the one that was started when the agent had another name."""
        hub = self.hub()
        try:
            return await hub.call(self.native.start, kind, value, **options)
        except ExecutionExists as exists:
            for alias in aliases:
                try:
                    return await hub.call(self.native.start, alias, value, **options)
                except ExecutionExists:
                    pass
            raise exists

    @overload
    async def handle(self, id_or_key: str | UUID) -> Handle[Any]: ...
    @overload
    async def handle(self, id_or_key: str | UUID, agent: Agent[Any, R]) -> Handle[R]: ...
    async def handle(self, id_or_key: str | UUID, agent: Agent[Any, Any] | None = None) -> Handle[Any]:
        """Return the handle of a run that exists; ``ExecutionNotFound`` otherwise.

        With its ``agent`` the handle knows the types of the result and of the signals, as the one that ``start``
        returned; without it they are JSON.
        """
        native = await self.hub().call(self.native.handle, str(id_or_key))
        if agent is None:
            return self._handle(native, None)
        declared = _declared(agent)
        found = self._handle(native, declared)
        kind = (await found.describe()).kind
        if declared is None or kind not in (declared.kind, *declared.aliases):
            raise InvalidArgument(f"run {found.key or str(found.id)!r} is one of agent {kind!r}, not of {agent!r}")
        return found

    def _handle(self, native: _native.Handle, agent: Agent[Any, Any] | None) -> Handle[Any]:
        """Make the handle of a run; it knows what its agent says of results and signals."""
        return Handle(self, native) if agent is None else Handle(self, native, agent.rebuild, agent.mail)

    async def backup(self, path: str | PathLike[str]) -> int:
        """Copy a SQLite database to a new file, consistent while runs go on; return its size in bytes.

        The copy is one file that any program may read, such as ``sqlite3`` and pandas. A file that is there stays as it
        is. Other backends raise ``InvalidArgument`` and say what to use.
        """
        size: int = await self.hub().call(self.native.backup, fsdecode(path))
        return size

    def worker(
        self,
        agents: Iterable[Agent[Any, Any]] = (),
        tasks: Iterable[Task[..., Any]] = (),
        *,
        queue: str = "default",
        max_agents: int = 100,
        max_tasks: int | None = None,
        max_parked: int | None = None,
        toolkit: Toolkit | None = None,
    ) -> Worker:
        """Make a worker: an async context manager, or ``await worker.run()``.

        ``max_agents`` runs advance at a time (waiting ones do not count), and ``max_tasks`` attempts, those of
        inline steps (``ctx.run``, tasks without a queue) among them; without it 32 claimed tasks, and inline steps as
        they come. 0 claims none. ``max_parked`` waiting runs are kept in memory. ``toolkit`` is what agents may use of
        the toolkit.
        """
        return Worker(
            self,
            agents,
            tasks,
            queue=queue,
            max_agents=max_agents,
            max_tasks=max_tasks,
            max_parked=max_parked,
            toolkit=toolkit,
        )

    async def close(self) -> None:
        """Close the workers, then the backend; everything acknowledged is safe when it returns.

        In a fork of the process that opened it, nothing: the backend is the parent's.
        """
        if not self._is_open:
            return
        self._is_open = False
        _open.discard(self)
        if self.origin.is_elsewhere:
            return
        # What goes wrong with one keeps neither the others nor the backend open: who waits for a run must hear of it.
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._let_go)
            for worker in reversed(list(self._workers)):
                closing.push_async_callback(worker.close)

    async def _let_go(self) -> None:
        try:
            await Hub.current().call(self.native.close, CLOSE_WITHIN_S)
        finally:
            if self._hub is not None:
                self._hub.__exit__()
                self._hub = None

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await closed_beside(error, self.close())

    def hub(self) -> Hub:
        """Return the running loop's hub; refuses use in a fork of the process that opened the backend."""
        self.origin.check("a client")
        return Hub.current()

    def attach_hub(self) -> Client:
        """Keep the running loop's hub until the client is closed."""
        if self._hub is None:
            self._hub = Hub.current().__enter__()
        return self

    @property
    def is_left_behind(self) -> bool:
        """Whether its loop was closed before it: its workers claim runs, and no code of theirs runs any more."""
        return self._hub is not None and self._hub.loop.is_closed() and not self.origin.is_elsewhere

    def leave(self) -> None:
        """Close without a loop, here and now: what the workers hold is given back, their code is not asked."""
        self._is_open = False
        _open.discard(self)
        try:
            self.native.close_now(EXIT_WITHIN_S)
        except FlovynError:
            pass

    def forget(self) -> None:
        """Leave the backend as a killed process would: without closing it."""
        self._is_open = False
        _open.discard(self)
        for worker in list(self._workers):
            worker.abandon()
        if self._hub is not None:
            self._hub.__exit__()
            self._hub = None

    def opened(self, worker: Worker) -> None:
        """Note a worker that polls."""
        self._workers.add(worker)

    def gone(self, worker: Worker) -> None:
        """Forget a worker."""
        self._workers.discard(worker)

    def __repr__(self) -> str:
        return f"<flovyn client of {self.url}>"


def _declared(agent: Any) -> Agent[Any, Any] | None:
    """Return a declared agent; none for a kind."""
    if isinstance(agent, Agent):
        return cast("Agent[Any, Any]", agent)
    if not isinstance(agent, str):
        raise InvalidArgument(f"an agent is a function declared with @agent, or its kind as text, not {agent!r}")
    return None


class Connecting:
    """What ``connect`` gives: await it for a client, or use it as an async context manager."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._client: Client | None = None

    async def _connect(self) -> Client:
        for client in list(_open):
            if client.is_left_behind:
                await in_thread(contextvars.copy_context(), client.leave, (), {})
        native = await in_thread(contextvars.copy_context(), _native.Runtime.open, (self._url,), {})
        self._client = Client(native).attach_hub()
        return self._client

    def __await__(self) -> Generator[Any, Any, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        return await self._connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await closed_beside(error, self._client.close())


def connect(url: str | None = None) -> Connecting:
    """Open a backend: ``sqlite:agents.db``, ``memory:``, ``postgres://…`` or ``https://…``.

    Without a URL ``FLOVYN_URL`` counts, else ``sqlite:flovyn.db``. Await it, or ``async with flovyn.connect(...)``.
    """
    return Connecting(url)


def _close_all() -> None:
    for client in list(_open):
        client.leave()


atexit.register(_close_all)
