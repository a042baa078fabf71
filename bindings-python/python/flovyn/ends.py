"""What ends in order when the process is asked to end (SIGTERM), as service managers and containers ask.

A program that has a handler of its own keeps it: then the program decides what ends, and when.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Generator
from types import CodeType
from typing import Any, cast

_told: dict[int, list[Callable[[], object]]] = {}
_ending = 0
"""How many of those that give back what they have, before the process ends, are not done with it."""


@contextlib.contextmanager
def told_to_end(tell: Callable[[], object]) -> Generator[None, None, None]:
    """Call ``tell`` on the running loop at the first SIGTERM; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    listening = _told.get(id(loop))
    if listening is None:
        if not _listen(loop):
            yield
            return
        listening = _told[id(loop)] = []
    listening.append(tell)
    try:
        yield
    finally:
        listening.remove(tell)
        if not listening and _told.get(id(loop)) is listening:
            _deafen(loop)


@contextlib.contextmanager
def ended_in_order() -> Generator[None, None, None]:
    """Cancel the current task at SIGTERM; once all such have left this, the process ends as it would have."""
    global _ending
    task, told = asyncio.current_task(), False

    def tell() -> None:
        global _ending
        nonlocal told
        told = True
        _ending += 1
        if task is not None:
            task.cancel()

    with told_to_end(tell):
        try:
            yield
        finally:
            if told:
                _ending -= 1
                if _ending == 0:
                    signal.raise_signal(signal.SIGTERM)


def ends_process(error: BaseException) -> bool:
    """Whether an error tells the process to end, not the code that it was raised in.

    That is Ctrl-C, and ``sys.exit()`` in a handler of a signal, which runs wherever the main thread just is. In the
    code of tasks and agents ``sys.exit()`` is an error like any other: a command line that they call ends with it.
    """
    if issubclass(type(error), KeyboardInterrupt):
        return True
    if not issubclass(type(error), SystemExit) or threading.current_thread() is not threading.main_thread():
        return False
    handlers = _handlers()
    # By the base: a subclass may have a property of this name, and this must not fail.
    trace = BaseException.__dict__["__traceback__"].__get__(error)
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _handlers() -> set[CodeType]:
    found: set[CodeType] = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        for part in ("func", "__call__"):  # of a `partial`, of an object
            if not hasattr(handler, "__code__"):
                handler = getattr(handler, part, handler)
        code: Any = getattr(handler, "__code__", None)
        if isinstance(code, CodeType) and handler is not signal.default_int_handler:
            found.add(code)
    return found


class Branch(Coroutine[Any, Any, Any]):
    """The coroutine of a branch, in which ``sys.exit()`` is an error like any other.

    asyncio stores what a task ends with, but raises `SystemExit` out of its loop as well: the worker would end with one
    agent's branch. So the task is given the error as asyncio gives it, and its coroutine is then left where it stands.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner

    @classmethod
    def of(cls, given: Any) -> Any:
        """Return the branch of a coroutine; whatever else asyncio is given it refuses itself."""
        return cls(cast("Coroutine[Any, Any, Any]", given)) if isinstance(given, Coroutine) else given

    def send(self, value: Any, /) -> Any:
        """Go on to the next await."""
        try:
            return self._inner.send(value)
        except SystemExit as error:
            return _left(error)

    def throw(self, *given: Any) -> Any:
        """Go on with an error."""
        try:
            return self._inner.throw(*given)
        except SystemExit as error:
            return _left(error)

    def close(self) -> None:
        """End it."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    def __getattr__(self, name: str) -> Any:
        # Its frame, its name and what it awaits, for whoever looks at the coroutine of a task.
        return getattr(self._inner, name)


def _left(error: SystemExit) -> asyncio.Future[None]:
    """End the running task with an error, and give it nothing to wait for."""
    task: Any = asyncio.current_task()
    if ends_process(error) or not isinstance(task, asyncio.Task):
        raise error
    super(asyncio.Task, task).set_exception(error)
    nothing = _Nothing(loop=task.get_loop())
    nothing._asyncio_future_blocking = True
    return nothing


class _Nothing(asyncio.Future[None]):
    """What a task awaits that has ended: it never goes on."""

    def add_done_callback(self, *_: Any, **__: Any) -> None:
        """Wake nobody."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Wake nobody."""
        return False


def _listen(loop: asyncio.AbstractEventLoop) -> bool:
    if not hasattr(signal, "SIGTERM") or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return False
    try:
        loop.add_signal_handler(signal.SIGTERM, _tell, loop)
    except (NotImplementedError, RuntimeError, ValueError):
        # Not on this platform, or not on a thread that is not the first.
        return False
    return True


def _tell(loop: asyncio.AbstractEventLoop) -> None:
    for tell in _deafen(loop):
        tell()


def _deafen(loop: asyncio.AbstractEventLoop) -> list[Callable[[], object]]:
    if not loop.is_closed():
        loop.remove_signal_handler(signal.SIGTERM)
    return list(_told.pop(id(loop), ()))
