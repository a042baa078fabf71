"""Durable limits of time on blocks of code."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import AgentContext


class DurableTimeout:
    """A limit on a block of code, kept by the store's timer."""

    def __init__(self, context: AgentContext[Any], seconds: float) -> None:
        self._context = context
        self._seconds = seconds
        self._watch: asyncio.Task[None] | None = None
        self._owner: asyncio.Task[Any] | None = None
        self._fired = False

    async def __aenter__(self) -> DurableTimeout:
        self._owner = asyncio.current_task()
        timer = self._context.sleep(self._seconds)
        self._watch = asyncio.ensure_future(self._wait(timer))
        return self

    async def _wait(self, timer: Coroutine[Any, Any, None]) -> None:
        await timer
        self._fired = True
        if self._owner is not None:
            self._owner.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        if self._watch is not None and not self._watch.done():
            self._watch.cancel()
            try:
                await self._watch
            except asyncio.CancelledError:
                if not self._watch.cancelled():
                    raise
        if self._fired and kind is not None and issubclass(kind, asyncio.CancelledError):
            uncancel = getattr(self._owner, "uncancel", None)
            if uncancel is not None:
                uncancel()
            raise TimeoutError(f"the block took longer than {self._seconds:g} s") from error
