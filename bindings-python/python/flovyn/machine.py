"""This process as a machine of a server: agents and tasks of one's own, on the queue of the machine."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Iterable
from dataclasses import replace
from os import PathLike, fsdecode
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _native, log
from .agent import Agent
from .client import Client
from .ends import told_to_end
from .errors import FlovynError, InvalidArgument
from .hub import Hub
from .task import Task
from .worker import CLOSE_GRACE_S, Worker, closed_beside, named

if TYPE_CHECKING:
    from types import TracebackType

    from .toolkit import Toolkit


class Daemon:
    """A machine of a server while it is open: an async context manager, or ``await daemon.run()``; see ``daemon``."""

    def __init__(
        self,
        native: _native.Daemon,
        agents: Iterable[Agent[Any, Any]],
        tasks: Iterable[Task[..., Any]],
        toolkit: Toolkit | None,
        limits: dict[str, Any],
    ) -> None:
        self._native = native
        self._agents, self._tasks = list(agents), list(tasks)
        named(self._agents, self._tasks)
        self._limits = limits
        self.workspaces: tuple[Path, ...] = tuple(map(Path, native.workspaces))
        """The directories that its work is about, by their real paths and in the order in which they were given."""
        self._toolkit = self._lent(toolkit)
        self._lock = asyncio.Lock()
        self._connecting: asyncio.Task[Client] | None = None
        self._client: Client | None = None
        self._worker: Worker | None = None
        self._watching: asyncio.Task[None] | None = None
        self._ended: asyncio.Event | None = None
        self._refused: FlovynError | None = None

    def _lent(self, toolkit: Toolkit | None) -> Toolkit | None:
        """Let tools work in the workspaces, unless they are told where."""
        if not self.workspaces or (toolkit is not None and (toolkit.working_directory is not None or toolkit.roots)):
            return toolkit
        from .toolkit import Toolkit

        first, *others = self.workspaces
        return replace(toolkit or Toolkit(), working_directory=first, roots=others)

    @property
    def server_url(self) -> str:
        """The server that it works for."""
        return self._native.server_url

    @property
    def name(self) -> str | None:
        """The name of the machine; None before it is connected, where only the server knows it."""
        return self._native.name

    @property
    def is_open(self) -> bool:
        """Whether it serves."""
        return self._worker is not None and self._worker.is_open

    async def start(self) -> Daemon:
        """Connect, however long nobody answers, and begin to serve.

        From then on the server is told every ten seconds that the machine is there. ``Unauthenticated`` for a key that
        was revoked or has ended; ``InvalidArgument`` for one that is no machine's, and for what is no Flovyn server.
        """
        if not await self._open():
            raise InvalidArgument("the daemon was closed before its server answered; start it again")
        return self

    async def _open(self) -> bool:
        """Connect and begin to serve; False where it was closed meanwhile."""
        async with self._lock:
            if self.is_open:
                return True
            self._refused, self._ended = None, asyncio.Event()
            connecting = self._connecting = contextvars.Context().run(asyncio.ensure_future, self._connect())
            try:
                await asyncio.wait({connecting})
            finally:
                self._connecting = None
                connecting.cancel()
            if connecting.cancelled():
                return False
            client = connecting.result()
            try:
                limits, queue = self._limits, f"machine/{self.name}"
                worker = client.worker(self._agents, self._tasks, queue=queue, toolkit=self._toolkit, **limits)
                await worker.start()
                await client.hub().call(self._native.announce, worker.agent_kinds)
            except BaseException:
                await client.close()
                raise
            self._client, self._worker = client, worker
            self._watching = contextvars.Context().run(asyncio.ensure_future, self._watch(self._ended))
            return True

    async def _connect(self) -> Client:
        with Hub.current() as hub:
            while isinstance(answer := await hub.call(self._native.connect), str):
                log.unanswered(answer)
            return Client(answer).attach_hub()

    async def _watch(self, ended: asyncio.Event) -> None:
        """Tell the server that the machine is there, until it does not let it in any more."""
        try:
            await Hub.current().call(self._native.until_refused)
        except FlovynError as refused:
            self._refused = refused
            log.refused(str(refused))
            # A server that lets the machine in no more takes nothing back: the leases are over.
            with contextlib.suppress(FlovynError):
                await self._leave(CLOSE_GRACE_S)
        finally:
            ended.set()

    async def _leave(self, grace: float) -> None:
        (client, self._client), (worker, self._worker) = (self._client, None), (self._worker, None)
        if client is None or worker is None:
            return
        try:
            await worker.close(grace)
        finally:
            await client.close()

    async def close(self, grace: float = CLOSE_GRACE_S) -> None:
        """Stop: runs are put away and given back at once, running tasks get ``grace`` seconds."""
        if self._connecting is not None:
            self._connecting.cancel()
        try:
            await self._leave(grace)
        finally:
            watching, self._watching = self._watching, None
            if watching is not None:
                watching.cancel()
            if self._ended is not None:
                self._ended.set()

    async def run(self) -> None:
        """Serve until it is closed, this is cancelled, or the process is asked to end (SIGTERM).

        Once the server does not let the machine in any more it is closed too, and this raises ``Unauthenticated`` or
        ``PermissionDenied``. However it ends, runs are given back at once, instead of when their lease is over.
        """
        asked = asyncio.Event()
        with told_to_end(asked.set):
            served, stopped = asyncio.ensure_future(self._serve()), asyncio.ensure_future(asked.wait())
            try:
                await asyncio.wait((served, stopped), return_when=asyncio.FIRST_COMPLETED)
                if served.done():
                    served.result()
            finally:
                served.cancel()
                stopped.cancel()
                await asyncio.gather(served, stopped, return_exceptions=True)
                await self.close()

    async def _serve(self) -> None:
        if not await self._open():
            return
        assert self._ended is not None
        await self._ended.wait()
        if self._refused is not None:
            raise self._refused

    async def __aenter__(self) -> Daemon:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await closed_beside(error, self.close())
        if error is None and self._refused is not None:
            raise self._refused

    def __repr__(self) -> str:
        return f"<flovyn daemon {self.name or '(not connected)'} of {self.server_url}>"


def daemon(
    server_url: str | None = None,
    *,
    agents: Iterable[Agent[Any, Any]] = (),
    tasks: Iterable[Task[..., Any]] = (),
    auth_token: str | None = None,
    home: str | PathLike[str] | None = None,
    name: str | None = None,
    workspaces: Iterable[str | PathLike[str]] = (),
    max_agents: int = 100,
    max_tasks: int | None = None,
    max_parked: int | None = None,
    toolkit: Toolkit | None = None,
) -> Daemon:
    """Make this process a machine of a server: an async context manager, or ``await flovyn.daemon(...).run()``.

    It serves ``agents`` and ``tasks`` on the queue of the machine, where ``mode=Local(name)`` starts runs, by
    connections that it opens itself. The computer is let in with ``flovyn daemon pair``: ``auth_token`` is the key of
    the machine, which goes with a ``server_url``; without one the key in ``daemon.key`` of ``home`` is taken
    (``FLOVYN_HOME``, else ``~/.flovyn``), which names the server. A ``name`` is only compared with the one that the
    server knows.

    ``workspaces`` are the directories that the work is about: the server is told of them, code finds them as
    ``daemon.workspaces``, and tools of the ``toolkit`` work in the first one and may be given the others. Functions of
    one's own have all rights of the process. The limits are those of ``Client.worker``.

    What cannot be a machine is ``InvalidArgument`` here: no key, one for another server or another name, a workspace
    that is no directory.
    """
    native = _native.Daemon(
        server_url,
        auth_token,
        None if home is None else fsdecode(home),
        name,
        [fsdecode(workspace) for workspace in workspaces],
    )
    limits = {"max_agents": max_agents, "max_tasks": max_tasks, "max_parked": max_parked}
    return Daemon(native, agents, tasks, toolkit, limits)
