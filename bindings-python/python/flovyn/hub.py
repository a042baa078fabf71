"""The bridge between the engine's threads and one event loop.

The engine's threads put what has happened into a queue and make a descriptor readable; the loop drains the queue in
one native call. Works on any loop; where a loop watches no descriptors, a waiting thread takes that part.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any

from . import _native, branches
from .errors import ForkedProcess

Sink = Callable[[Any], None]

_hubs: dict[int, Hub] = {}
_process = os.getpid()


class Hub:
    """One per event loop; made on first use, gone with its last user."""

    __slots__ = ("_drained", "_pending", "_sinks", "_thread", "_users", "loop", "native", "turns")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.native = _native.Hub()
        self.turns = branches.Turns(loop)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._sinks: dict[int, Sink] = {}
        self._users = 0
        self._thread: threading.Thread | None = None
        self._drained = threading.Event()
        descriptor = self.native.fileno()
        try:
            if descriptor < 0:
                raise NotImplementedError
            loop.add_reader(descriptor, self._drain)
        except NotImplementedError:
            self._thread = threading.Thread(target=self._wait, name="flovyn-hub", daemon=True)
            self._thread.start()
        branches.watch(loop)

    @classmethod
    def current(cls) -> Hub:
        """Return the hub of the running loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            if os.getpid() != _process:
                raise ForkedProcess(
                    "a client was used in a forked process; open it in the child, or use the spawn start method"
                ) from None
            raise
        hub = _hubs.get(id(loop))
        if hub is None or hub.loop is not loop:
            for key in [key for key, old in _hubs.items() if old.loop.is_closed()]:
                _hubs.pop(key)._close()
            hub = _hubs[id(loop)] = cls(loop)
        return hub

    def __enter__(self) -> Hub:
        self._users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if self._users == 0 and not self._pending:
            _hubs.pop(id(self.loop), None)
            self._close()

    def listen(self, token: int, sink: Sink) -> None:
        """Hand news of a session or worker to `sink`."""
        self._sinks[token] = sink

    def forget(self, token: int) -> None:
        """Hand over no more news of it."""
        self._sinks.pop(token, None)

    async def call(self, start: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Start a native call with this hub and a token, and wait for its end."""
        with self:
            token = self.native.token()
            future: asyncio.Future[Any] = self.loop.create_future()
            self._pending[token] = future
            abort = None
            try:
                abort = start(self.native, token, *args, **kwargs)
                return await future
            except asyncio.CancelledError:
                if abort is not None:
                    abort.abort()
                raise
            finally:
                self._pending.pop(token, None)

    def _drain(self) -> None:
        self._drained.set()
        for token, ok, value in self.native.drain():
            if ok is None:
                sink = self._sinks.get(token)
                if sink is not None:
                    sink(value)
                continue
            future = self._pending.get(token)
            if future is not None and not future.done():
                if ok:
                    future.set_result(value)
                else:
                    future.set_exception(value)

    def _wait(self) -> None:
        while not self.loop.is_closed() and _hubs.get(id(self.loop)) is self:
            if self.native.wait(1.0):
                self._drained.clear()
                try:
                    self.loop.call_soon_threadsafe(self._drain)
                except RuntimeError:
                    return
                self._drained.wait(1.0)

    def _close(self) -> None:
        branches.unwatch(self.loop)
        if self._thread is None and not self.loop.is_closed():
            self.loop.remove_reader(self.native.fileno())
        self.native.close()
