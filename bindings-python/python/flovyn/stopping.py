"""How code is made to stop that does not hear it: a `Cancelled` that got lost, a `Suspended` that is swallowed.

The engine tells the awaits that are open that the run shall stop, once. What becomes of it on its way through asyncio
is not the engine's: a branch may fail where nobody reads it, or wait for something else just then. So it is kept here
which branches have not been told yet. All of it follows from what the branches do after the journaled moment in which
the engine told them, so replay comes to the same.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import uuid4

from .branches import Branches
from .codes import ONCE_RECORDED
from .errors import Cancelled, consists_of
from .scope import current

if TYPE_CHECKING:
    from .activation import Activation

logger = logging.getLogger("flovyn")

Branch = asyncio.Task[Any]

_GROUPS = ("asyncio.taskgroups", "anyio._backends._asyncio")


# ── Cancelled ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Untold:
    """The branches of a run that shall stop in which `Cancelled` has not been raised: each is owed it once."""

    __slots__ = ("_errors", "_frames", "_parents", "_refused")

    def __init__(self, branches: Iterable[Branch | None]) -> None:
        self._frames = {branch: _frames_of(branch) for branch in branches if branch is not None and not branch.done()}
        for branch, frames in list(self._frames.items()):
            if any(_awaits_group(frame) for frame in frames):
                # A task group raises what its branches raise, inside of a group where no frame tells of it.
                del self._frames[branch]
        self._errors: list[BaseException] = []
        self._parents: dict[Branch, Branch] = {}
        self._refused: set[Branch] = set()

    def raises(self, error: BaseException) -> None:
        """Note an error by which a branch is told; it may come into others."""
        self._errors.append(error)

    def told(self, branch: Branch | None) -> None:
        """Note that it was raised in a branch."""
        if branch is not None:
            self._frames.pop(branch, None)

    def is_due(self, branch: Branch | None) -> bool:
        """Whether the next await of the running branch shall raise it; then the branch is told."""
        if branch is None or not self._is_owed(branch):
            return False
        del self._frames[branch]
        parent = self._parents.pop(branch, None)
        if parent is not None:
            self._refused.add(parent)
        return True

    def born(self, branch: Branch, parent: Branch | None) -> None:
        """Note a new branch. One that a branch which is owed it makes is told in its stead, so that it can hear it."""
        if parent is None or parent is branch or branch in self._frames or not self._is_owed(parent):
            return
        if parent in self._refused:
            # It did not look at how its last branch ended. What it awaits itself it cannot miss.
            del self._frames[parent]
            parent.cancel()
            return
        self._frames[branch] = _frames_of(branch)
        self._parents[branch] = parent

    def _is_owed(self, branch: Branch) -> bool:
        frames = self._frames.get(branch)
        if frames is None:
            return False
        handled = sys.exc_info()[1]
        if handled is not None and consists_of(handled, Cancelled):
            del self._frames[branch]
            return False
        if any(_came_through(error, frames) for error in self._errors):
            del self._frames[branch]
            return False
        # What tidies up after a stop of any kind is left alone.
        return not _follows_stop(handled)


class Family(Branches):
    """The branches of an agent, and which of them made which once the run shall stop."""

    __slots__ = ("untold",)

    def __init__(self) -> None:
        super().__init__()
        self.untold: Untold | None = None

    def add(self, task: Branch) -> None:
        """Note a branch."""
        super().add(task)
        if self.untold is not None:
            self.untold.born(task, asyncio.current_task())


def _frames_of(branch: Branch) -> set[FrameType]:
    """Return the frames of a branch that waits: what is raised into it comes through one of them."""
    frames: set[FrameType] = set()
    inner: Any = branch.get_coro()
    while inner is not None:
        for awaits, at in (("cr_await", "cr_frame"), ("gi_yieldfrom", "gi_frame"), ("ag_await", "ag_frame")):
            if hasattr(inner, awaits):
                frame = getattr(inner, at)
                if frame is not None:
                    frames.add(frame)
                inner = getattr(inner, awaits)
                break
        else:
            break
    return frames


def _awaits_group(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") in _GROUPS and frame.f_code.co_name in ("__aexit__", "_aexit")


def _came_through(error: BaseException, frames: set[FrameType]) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame in frames:
            return True
        trace = trace.tb_next
    return False


def _follows_stop(error: BaseException | None) -> bool:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, GeneratorExit | asyncio.CancelledError) or consists_of(error, Cancelled):
            return True
        error = error.__cause__ or error.__context__
    return False


# ── Suspended ────────────────────────────────────────────────────────────────────────────────────────────────────────

_PATIENCE, _PATIENCE_ELSEWHERE = 3, 1_000
"""How often a branch of a copy that was put away may go on after `Suspended`: a `finally` or two may make a call. The
second counts for code that runs in no branch, such as what the garbage collector closes."""


class Swallowed:
    """How often the code of a copy that was put away went on after `Suspended`; in the end its awaits never return.

    Raising it for ever would let `while True: try: await ... except BaseException: continue` spin, and nothing else of
    the loop would run. Its other calls do nothing then, so that it comes to an await.
    """

    __slots__ = ("_counts", "_elsewhere", "is_over")

    def __init__(self) -> None:
        self._counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._elsewhere = 0
        self.is_over = False

    def again(self, activation: Activation, branch: Any) -> bool:
        """Count one more; whether it has been enough."""
        if branch is None:
            self._elsewhere += 1
            over = self._elsewhere > _PATIENCE_ELSEWHERE
        else:
            count = self._counts[branch] = self._counts.get(branch, 0) + 1
            over = count > _PATIENCE
        if over and not self.is_over:
            self.is_over = True
            logger.warning(
                "agent %r goes on after Suspended was raised in it, so this copy of run %s is left where it stands; an "
                "`except BaseException` or a bare `except` must let flovyn.Suspended pass",
                activation.agent.kind,
                activation.session.execution_id(),
            )
        return self.is_over


class Never(asyncio.Future[None]):
    """What a copy that does not stop awaits."""

    def __init__(self, activation: Activation, branch: Branch | None) -> None:
        super().__init__(loop=activation.loop)
        self._activation = activation
        self._branch = branch
        if branch is not None:
            _keep(branch.get_coro())

    def cancel(self, msg: Any | None = None) -> bool:
        """End the copy at once, without its code, which would go on after this as well."""
        activation, branch = self._activation, self._branch
        activation.torn = True
        branches = {activation.root, branch, *activation.branches.alive()}
        return branch in [one for one in branches if one is not None and _end(one)]


def never(activation: Activation) -> Generator[Any, Any, NoReturn]:
    """Await what never comes."""
    branch = asyncio.current_task() if current.get() is activation else None
    future = Never(activation, branch)
    if activation.torn:
        # Whoever tears the loop down has cancelled the task before, and waits for its end.
        activation.loop.call_soon(future.cancel)
    yield from future
    raise AssertionError("nobody ends it")


def _end(branch: Branch) -> bool:
    """Let a task be cancelled that waits, without a word to its code; one that is about to run comes to an await."""
    awaited: Any = getattr(branch, "_fut_waiter", None)
    if branch.done() or awaited is None or awaited.done():
        return False
    callbacks: list[tuple[Any, Any]] = list(getattr(awaited, "_callbacks", None) or ())
    for callback, _ in callbacks:
        if getattr(callback, "__self__", None) is branch:
            awaited.remove_done_callback(callback)
    _keep(branch.get_coro())
    return super(asyncio.Task, branch).cancel()


def _keep(coroutine: Any) -> None:
    """Keep a coroutine for ever, also from the end of the interpreter.

    Whoever frees it closes it, and the code goes on after `GeneratorExit` as it does after anything, now in no loop:
    where it calls `asyncio.gather` it never comes to an await that it could be ended at.
    """
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))


def stand_still() -> NoReturn:
    """Let a thread whose code does not stop do nothing more. It cannot be ended, and keeps no process alive."""
    while True:
        threading.Event().wait()


class Nowhere:
    """The session of a copy that does not stop: calls do nothing, and what they give is never used."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        answer = _NOT_MADE.get(name)
        if answer is None:
            return getattr(self._session, name)

        def call(*_: Any, **__: Any) -> Any:
            return answer()

        return call


def _no_op() -> int:
    return 0


def _no_task() -> tuple[int, bytes]:
    return 0, uuid4().bytes


def _no_entry() -> bytes:
    return uuid4().bytes


def _nothing() -> None:
    return None


# Generated by `make gen`: calls that are not made.
_NOT_MADE: dict[str, Callable[[], Any]] = {
    "call_task": _no_task,
    "call_entry": _no_entry,
    "call_signal": _no_op,
    "call_timer": _no_op,
    "call_child": _no_task,
    "call_tell": _no_op,
    "call_request": _no_op,
    "call_send": _no_op,
    "call_answer": _no_op,
    "call_stop": _no_op,
    "call_child_event": _no_op,
    "call_attach": _no_task,
    "call_usage": _nothing,
    "call_step": _no_op,
    "call_flush": _no_op,
    "call_persist": _no_op,
    "has_signal": bool,
    "drain_signals": list[Any],
    "check_cancellation": bool,
    "remaining_budget": _nothing,
}
# End of what is generated.

# A `once` that has happened, whose outcome never comes.
_NOT_MADE.update(checkpoint=_no_op, once_begin=lambda: (ONCE_RECORDED, 0), once_end=_no_op)
