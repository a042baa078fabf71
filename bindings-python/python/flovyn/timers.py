"""Which timers of an event loop belong to which agent.

A timer of the loop (``asyncio.wait_for``, ``asyncio.sleep``) lives in this process alone. The engine must know that a
waiting agent has one, so that its run is entered again when this process is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .scope import current

if TYPE_CHECKING:
    from .activation import Activation

_METHODS = ("call_at", "call_later")


def any_left(agent: Activation) -> bool:
    """Whether a timer that the agent's code has set may still fire."""
    if agent.timers is not None:
        agent.timers = {handle for handle in agent.timers if not handle.cancelled()} or None
    return agent.timers is not None


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

        def fire(*args: Any) -> None:
            if agent.timers is not None:
                agent.timers.discard(handle)
            callback(*args)

        handle = self._schedule(when, fire, *args, **options)
        if agent.timers is None:
            agent.timers = set()
        agent.timers.add(handle)
        return handle
