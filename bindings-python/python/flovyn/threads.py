"""Threads for `def` tasks: bounded, reused, and never a reason to keep the interpreter alive."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, cast

from .errors import message_of, type_name

Job = Callable[[], None]

MAX_THREADS = 64
_IDLE_S = 10.0

PATIENCE_S = 2.0
"""How long a thread that was told to stop may take to it before that is said."""

logger = logging.getLogger("flovyn")
_said: set[str] = set()

_lock = threading.Condition()
_jobs: deque[Job] = deque()
_threads = 0
_idle = 0


def submit(job: Job) -> None:
    """Run a job in a thread of the pool; it must not raise."""
    global _threads
    with _lock:
        _jobs.append(job)
        if _idle >= len(_jobs):
            _lock.notify()
        elif _threads < MAX_THREADS:
            _threads += 1
            threading.Thread(target=_work, name="flovyn-task", daemon=True).start()


def _forget() -> None:
    """The threads stayed behind in the parent process."""
    global _lock, _threads, _idle
    _lock = threading.Condition()
    _jobs.clear()
    _threads = _idle = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _work() -> None:
    global _threads, _idle
    while True:
        with _lock:
            _idle += 1
            while not _jobs:
                if not _lock.wait(_IDLE_S) and not _jobs:
                    _idle -= 1
                    _threads -= 1
                    return
            _idle -= 1
            job = _jobs.popleft()
        job()


async def called(fn: Callable[..., Any], is_async: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function, a blocking one in a thread, and wait for what it gives.

    What gives an awaitable without being ``async def`` is waited for, too: ``lambda: fetch(url)``.
    """
    if is_async:
        return await fn(*args, **kwargs)
    given: Any = await in_thread(contextvars.copy_context(), fn, args, kwargs)
    of: Any = cast(Any, type(given))
    return await given if hasattr(of, "__await__") else given


async def in_thread(context: Context, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a blocking function in a thread of the pool, in a copy of the caller's context, and wait for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    begun = ended = False

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def job() -> None:
        nonlocal begun, ended
        if future.cancelled():
            return
        begun = True
        value, error = None, None
        try:
            value = context.run(fn, *args, **kwargs)
        except StopIteration as stop:
            # A future refuses it.
            error = RuntimeError(f"a task raised {type_name(stop)}: {message_of(stop)}")
            error.__cause__ = stop
        except BaseException as raised:
            error = raised
        ended = True
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            pass  # the loop is gone, and whoever waited with it

    def runs_on() -> None:
        name = getattr(fn, "__qualname__", repr(fn))
        if not ended and name not in _said:
            _said.add(name)
            logger.warning(
                "%s was told to stop, but its thread runs on: nothing can end it from outside; let it look at "
                "ctx.is_cancelled of its TaskContext",
                name,
            )

    submit(job)
    try:
        return await future
    except asyncio.CancelledError:
        if begun and not ended:
            loop.call_later(PATIENCE_S, runs_on)
        raise
