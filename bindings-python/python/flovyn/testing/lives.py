"""Handles that outlive the process under test: they belong to the test, which is told what the next process knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _native
from ..agent import Agent
from ..client import Client
from ..events import Event
from ..handle import Handle
from ..hub import Hub
from ..signals import PLAIN, Signals

if TYPE_CHECKING:
    from ..serde import Rebuild

R = TypeVar("R")
T = TypeVar("T")

_DIED: Any = object()


class Life:
    """One process under test."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once it has died and the next one is there."""

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something of this life; ``_DIED`` where it does not come any more."""
        asked = asyncio.ensure_future(work)
        try:
            await asyncio.wait((asked, self.over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.add_done_callback(_heard)
            if not asked.done():
                asked.cancel()
        if self.over.done() and (not asked.done() or asked.cancelled() or asked.exception() is not None):
            return _DIED
        return asked.result()


class Lives:
    """The processes under test, one after the other."""

    current: Life

    def begin(self, native: _native.Runtime) -> Client:
        """Begin a life, and end the one before it; returns its client."""
        before = getattr(self, "current", None)
        client = _LastingClient(native, self)
        self.current = Life(client)
        if before is not None:
            before.over.set_result(None)
        return client


class _LastingClient(Client):
    def __init__(self, native: _native.Runtime, lives: Lives) -> None:
        super().__init__(native)
        self._lives = lives

    def _handle(self, native: _native.Handle, agent: Agent[Any, Any] | None) -> Handle[Any]:
        if agent is None:
            return LastingHandle(self._lives, self, native)
        return LastingHandle(self._lives, self, native, agent.rebuild, agent.mail)


class LastingHandle(Handle[R]):
    """A handle whose calls go on in the next life where theirs ends."""

    def __init__(
        self,
        lives: Lives,
        client: Client,
        native: _native.Handle,
        rebuild: Rebuild | None = None,
        signals: Signals = PLAIN,
    ) -> None:
        super().__init__(client, native, rebuild, signals)
        self._lives = lives

    def _beside(self, native: _native.Handle) -> Handle[R]:
        return LastingHandle(self._lives, self._client, native, self._rebuild, self._signals)

    async def _found(self, life: Life) -> None:
        """Find the run in a life."""
        if self._client is not life.client:
            self._native = await Hub.current().call(life.client.native.handle, str(self.id))
            self._client = life.client

    async def _ask(self, name: str, *args: Any, **kwargs: Any) -> Any:
        async def asked(life: Life) -> Any:
            await self._found(life)
            return await super(LastingHandle, self)._ask(name, *args, **kwargs)

        while True:
            life = self._lives.current
            answer = await life.during(asked(life))
            if answer is not _DIED:
                return answer

    async def stream(self, after: str | None = None, *, children: bool = False) -> AsyncIterator[Event]:
        """Iterate over the run's events through all lives."""
        async for parts in self._watched("next", after, children, lambda events: events[-1][1]):
            for each in parts:
                yield await self._event(each)

    async def sse(self, after: str | None = None, *, children: bool = False) -> AsyncIterator[bytes]:
        """Iterate over the run's events as server-sent events, through all lives."""
        async for sent in self._watched("next_sent", after, children, _last_id):
            yield sent

    async def _watched(
        self, method: str, after: str | None, children: bool, last: Callable[[Any], str | None]
    ) -> AsyncIterator[Any]:
        hub = Hub.current()
        with hub:
            while True:
                life = self._lives.current
                if await life.during(self._found(life)) is _DIED:
                    continue
                next_of = getattr(self._native.stream(after, children), method)
                while (told := await life.during(hub.call(next_of))) is not _DIED:
                    if not told:
                        return
                    after = last(told) or after
                    yield told


def _last_id(sent: bytes) -> str | None:
    ids = [line[3:].strip().decode() for line in sent.splitlines() if line.startswith(b"id:")]
    return ids[-1] if ids else None


def _heard(asked: asyncio.Future[Any]) -> None:
    """What a dead life has failed with is of no interest."""
    if not asked.cancelled():
        asked.exception()
