"""Which timers of an event loop belong to which agent.

A timer of the loop (``asyncio.wait_for``, ``asyncio.sleep``) lives in this process alone. The engine must know that a
waiting agent has one, so that its run is entered again when this process is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .scope import current

_METHODS = ("call_at", "call_later")


class Timers:
    """The timers that an agent's code has set and that may still fire."""

    __slots__ = ("_set",)

    def __init__(self) -> None:
        self._set: set[asyncio.TimerHandle] = set()

    def any_left(self) -> bool:
        """Whether a timer may still fire."""
        self._set = {handle for handle in self._set if not handle.cancelled()}
        return bool(self._set)

    def add(self, handle: asyncio.TimerHandle) -> None:
        """Note a timer that was set."""
        self._set.add(handle)

    def fired(self, handle: asyncio.TimerHandle) -> None:
        """Forget a timer that fires."""
        self._set.discard(handle)


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Note from now on who sets a timer on a loop; a loop whose methods cannot be replaced is left alone."""
    for name in _METHODS:
        if name not in getattr(loop, "__dict__", _METHODS):
            setattr(loop, name, _Noting(getattr(loop, name)))


def unwatch(loop: asyncio.AbstractEventLoop) -> None:
    """Leave a loop as it was found."""
    for name in _METHODS:
        if isinstance(getattr(loop, "__dict__", {}).get(name), _Noting):
            delattr(loop, name)


class _Noting:
    """A method of a loop that sets a timer, and says so to the agent that called it."""

    __slots__ = ("_schedule",)

    def __init__(self, schedule: Callable[..., asyncio.TimerHandle]) -> None:
        self._schedule = schedule

    def __call__(self, when: float, callback: Callable[..., object], *args: Any, **options: Any) -> asyncio.TimerHandle:
        agent = current.get()
        if agent is None:
            return self._schedule(when, callback, *args, **options)
        timers = agent.timers

        def fire(*args: Any) -> None:
            timers.fired(handle)
            callback(*args)

        handle = self._schedule(when, fire, *args, **options)
        timers.add(handle)
        return handle
