"""`FLOVYN_DEBUG=1`: warnings about agent code whose outcome depends on the process it runs in.

Each call site is named once. Nothing here is loaded or patched without the variable.
"""

from __future__ import annotations

import asyncio
import random
import sys
import sysconfig
import time
import uuid
import warnings
from collections.abc import Callable
from typing import Any

from .scope import current

LONG_SLEEP_S = 1.0


class NotDurable(UserWarning):
    """Agent code reads or waits for something that differs after a restart."""


_seen: set[tuple[str, int]] = set()
_libraries = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), __file__.rpartition("debug.py")[0]})


def is_library(path: str) -> bool:
    """Whether a file is Python's own, of a package, or ours."""
    return path.startswith(_libraries)


def install() -> None:
    """Watch the usual suspects from now on; calls outside of agents, and of libraries, pass unseen."""
    _watch(time, "time", "use ctx.current_time(), which is the same on replay")
    _watch(time, "sleep", "it blocks the loop of every agent here; use await ctx.sleep(seconds)")
    _watch(random, "random", "use ctx.random(), which is the same on replay")
    _watch(uuid, "uuid4", "use ctx.random_uuid(), which is the same on replay")
    advice = "the time does not go on while no process runs; use await ctx.sleep(seconds)"
    _watch(asyncio, "sleep", advice, _is_long)


def _is_long(delay: float = 0, *_: Any, **__: Any) -> bool:
    return delay >= LONG_SLEEP_S


def _watch(module: Any, name: str, advice: str, when: Callable[..., bool] | None = None) -> None:
    original: Any = getattr(module, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        if current.get() is not None and (when is None or when(*args, **kwargs)):
            _warn(f"{module.__name__}.{name}() in an agent: {advice}")
        return original(*args, **kwargs)

    watched.__wrapped__ = original  # pyright: ignore[reportFunctionMemberAccess]
    setattr(module, name, watched)


def _warn(text: str) -> None:
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    place = (frame.f_code.co_filename, frame.f_lineno)
    if place in _seen or is_library(place[0]):
        return
    _seen.add(place)
    warnings.warn_explicit(text, NotDurable, *place)
