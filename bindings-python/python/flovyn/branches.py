"""The branches of an agent on an event loop: whether one has something left to run, and what those that wait wait for.

The engine must know two things of an agent's code. Is it quiet, so that the next outcome may be handed over? And may
it go on by something that the engine does not see, a timer of the loop, a thread, a foreign future? Then replay waits
for what the code may still call, and a run that waits is entered again when this process is gone. Neither is guessed
from time: the loop's queue of callbacks tells the first, the futures that the agent's tasks wait for the second.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Container, Iterable
from contextvars import Context
from types import FrameType
from typing import TYPE_CHECKING, Any

from .codes import OUTSIDE_NOTHING, OUTSIDE_SOMETHING, OUTSIDE_UNKNOWN
from .ends import Branch
from .scope import current, in_attempt

if TYPE_CHECKING:
    from .activation import Activation

"""What may make an agent's code go on beside an outcome: nothing, who knows, something."""

FEW = 16

_GROUPS = ("asyncio.taskgroups", "anyio._backends._asyncio")
_SHARED = ("asyncio.locks", "asyncio.queues")

Future = asyncio.Future[Any]


class Branches:
    """What is known of one agent's branches. Thousands of agents may wait, so it is kept small."""

    __slots__ = ("_handles", "_soon", "_tasks")

    def __init__(self) -> None:
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] | None = None
        self._handles: set[asyncio.Handle | Future] | None = None
        self._soon: set[asyncio.Handle] | None = None

    def add(self, task: asyncio.Task[Any]) -> None:
        """Note a branch."""
        if self._tasks is None:
            self._tasks = weakref.WeakSet()
        self._tasks.add(task)

    def alive(self) -> list[asyncio.Task[Any]]:
        """Return the branches that have not ended, beside the agent's own task."""
        return [task for task in self._tasks or () if not task.done()]

    def are_few(self) -> bool:
        """Whether looking at each of them costs little; those that have set off something need no look."""
        return self._handles is not None or len(self._tasks or ()) <= FEW

    def all(self) -> list[asyncio.Task[Any]]:
        """Return every branch that is still in memory."""
        return list(self._tasks or ())

    def set_off(self, handle: asyncio.Handle | Future) -> None:
        """Note a timer or the work of a thread."""
        if self._handles is None:
            self._handles = set()
        self._handles.add(handle)

    def ended(self, handle: asyncio.Handle | Future) -> None:
        """Forget a timer that has fired, or work that has ended."""
        if self._handles is not None:
            self._handles.discard(handle)

    def any_set_off(self) -> bool:
        """Whether a timer may still fire, or a thread still works."""
        if self._handles is not None:
            self._handles = {handle for handle in self._handles if not handle.cancelled()} or None
        return self._handles is not None

    def will_run(self, handle: asyncio.Handle) -> None:
        """Note a callback in the loop's queue, where the queue cannot be read."""
        if self._soon is None:
            self._soon = set()
        self._soon.add(handle)

    def has_run(self, handle: asyncio.Handle) -> None:
        """Forget a callback."""
        if self._soon is not None:
            self._soon.discard(handle)

    def any_to_run(self) -> bool:
        """Whether a noted callback is still in the loop's queue."""
        if self._soon is not None:
            self._soon = {handle for handle in self._soon if not handle.cancelled()} or None
        return self._soon is not None


class Turns:
    """Looks at the agents of a loop once a turn: is anything of theirs left in its queue?"""

    __slots__ = ("_context", "_looking", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Of no agent. One for each loop: a context can be entered by one thread at a time.
        self._context = Context()
        self._looking: dict[Activation, None] = {}

    def look_at(self, agent: Activation) -> None:
        """Call the agent's ``look`` in the next turn."""
        if not self._looking:
            self._loop.call_soon(self._turn, context=self._context)
        self._looking[agent] = None

    def _turn(self) -> None:
        agents, self._looking = self._looking, {}
        busy = self._busy()
        for agent in agents:
            agent.look(agent.branches.any_to_run() if busy is None else agent in busy)

    def _busy(self) -> set[Activation | None] | None:
        """Return the agents with a callback in the loop's queue; none where it cannot be read."""
        ready: Iterable[Any] | None = getattr(self._loop, "_ready", None)
        if ready is None:
            return None
        return {handle._context.get(current) for handle in _copied(ready) if not handle._cancelled}


def _copied(ready: Iterable[Any]) -> tuple[Any, ...]:
    """Return the callbacks as of one moment; other threads, and finalizers that run meanwhile, put more in."""
    while True:
        try:
            return tuple(ready)
        except RuntimeError:
            continue


# ── what a branch waits for ──────────────────────────────────────────────────────────────────────────────────────────


def outside(agent: Activation, waiters: Container[object], *, thorough: bool) -> int:
    """Tell what may make an agent go on beside its outcomes, which end the futures `waiters`.

    `thorough` looks for tasks that were made past the loop's own method, too.
    """
    if agent.branches.any_set_off():
        return OUTSIDE_SOMETHING
    mine = {task for task in (agent.root, *agent.branches.alive()) if task is not None and not task.done()}
    if thorough:
        mine.update(_strays(agent, mine))
    found = OUTSIDE_NOTHING
    for task in mine:
        found = max(found, _awaited(task, _waiter(task), mine, waiters))
        if found == OUTSIDE_SOMETHING:
            break
    return found


def _waiter(task: asyncio.Task[Any]) -> Future | None:
    return getattr(task, "_fut_waiter", None)


def _strays(agent: Activation, known: set[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Return tasks in the agent's context that nobody has told of."""
    strays: list[asyncio.Task[Any]] = []
    for task in asyncio.all_tasks(agent.loop):
        future = None if task in known else _waiter(task)
        for callback, context in getattr(future, "_callbacks", None) or ():
            if getattr(callback, "__self__", None) is task and context.get(current) is agent:
                strays.append(task)
    return strays


def _awaited(task: asyncio.Task[Any], future: Any, mine: set[asyncio.Task[Any]], waiters: Container[object]) -> int:
    """Tell who ends the future that a task waits for."""
    if future is None or future.done():
        return OUTSIDE_SOMETHING
    found = _ends(future, mine, waiters)
    frame = _innermost(task) if found is None else None
    if frame is None:
        return OUTSIDE_SOMETHING if found is None else found
    where, name = frame.f_globals.get("__name__"), frame.f_code.co_name
    if where in _GROUPS and name in ("__aexit__", "_aexit"):
        return OUTSIDE_NOTHING
    if where in _SHARED:
        # Another branch ends it, or whoever else has the queue, the lock or the event.
        return OUTSIDE_UNKNOWN
    if where == "asyncio.tasks" and name == "_wait":
        return _all_end(frame.f_locals.get("fs", ()), mine, waiters)
    if where == "asyncio.tasks" and name == "wait_for" and "fut" in frame.f_locals:
        return _all_end([frame.f_locals["fut"]], mine, waiters)
    return OUTSIDE_SOMETHING


def _ends(future: Any, mine: set[asyncio.Task[Any]], waiters: Container[object]) -> int | None:
    """Tell who ends a future, if it shows that by itself."""
    if future in waiters:
        return OUTSIDE_NOTHING
    if isinstance(future, asyncio.Task):
        # A branch is looked at for itself.
        return OUTSIDE_NOTHING if future in mine else OUTSIDE_SOMETHING
    members = getattr(future, "_children", None) or _shielded(future)  # the first of `gather`
    return None if members is None else _all_end(members, mine, waiters)


def _all_end(futures: Iterable[Any], mine: set[asyncio.Task[Any]], waiters: Container[object]) -> int:
    found = OUTSIDE_NOTHING
    for future in futures:
        one = OUTSIDE_NOTHING if future.done() else _ends(future, mine, waiters)
        found = max(found, OUTSIDE_SOMETHING if one is None else one)
    return found


def _shielded(future: Any) -> list[Any] | None:
    """Return what ``asyncio.shield`` waits for, if the future is its own."""
    for callback, _ in getattr(future, "_callbacks", None) or ():
        code = getattr(callback, "__code__", None)
        if code is not None and code.co_name == "_outer_done_callback" and "inner" in code.co_freevars:
            return [callback.__closure__[code.co_freevars.index("inner")].cell_contents]
    return None


def _innermost(task: asyncio.Task[Any]) -> FrameType | None:
    """Return the frame that awaits for a task."""
    inner: Any = task.get_coro()
    frame = None
    while inner is not None:
        for awaits, at in (("cr_await", "cr_frame"), ("gi_yieldfrom", "gi_frame"), ("ag_await", "ag_frame")):
            if hasattr(inner, awaits):
                frame = getattr(inner, at) or frame
                inner = getattr(inner, awaits)
                break
        else:
            return frame
    return frame


# ── what a loop is asked for ─────────────────────────────────────────────────────────────────────────────────────────


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Note from now on what agents ask of a loop; a loop whose methods cannot be replaced is left alone."""
    makers: dict[str, Callable[[Any], Any]] = {
        "call_at": _timed,
        "call_later": _timed,
        "create_task": _branching,
        "run_in_executor": _threaded,
    }
    if not hasattr(loop, "_ready"):
        makers["call_soon"] = _queued
    own = getattr(loop, "__dict__", makers)
    for name, make in makers.items():
        if name not in own:
            noting = make(getattr(loop, name))
            noting.is_flovyns = True
            setattr(loop, name, noting)


def unwatch(loop: asyncio.AbstractEventLoop) -> None:
    """Leave a loop as it was found."""
    own = getattr(loop, "__dict__", {})
    for name in [name for name, method in own.items() if getattr(method, "is_flovyns", False)]:
        delattr(loop, name)


def _timed(schedule: Callable[..., asyncio.TimerHandle]) -> Callable[..., asyncio.TimerHandle]:
    def noting(when: float, callback: Callable[..., object], *args: Any, **options: Any) -> asyncio.TimerHandle:
        agent = current.get()
        if agent is None:
            return schedule(when, callback, *args, **options)
        branches = agent.branches

        def fire(*args: Any) -> None:
            branches.ended(handle)
            callback(*args)

        handle = schedule(when, fire, *args, **options)
        branches.set_off(handle)
        return handle

    return noting


def _queued(schedule: Callable[..., asyncio.Handle]) -> Callable[..., asyncio.Handle]:
    def noting(callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        agent = current.get() if context is None else context.get(current)
        if agent is None:
            return schedule(callback, *args, context=context)
        branches = agent.branches

        def run(*args: Any) -> None:
            branches.has_run(handle)
            callback(*args)

        handle = schedule(run, *args, context=context)
        branches.will_run(handle)
        return handle

    return noting


def _branching(create: Callable[..., asyncio.Task[Any]]) -> Callable[..., asyncio.Task[Any]]:
    def noting(coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        context: Context | None = options.get("context")
        agent = current.get() if context is None else context.get(current)
        if agent is not None:
            agent.branched()
            if context is None:
                # Who makes branches is one too, though nobody was told of a task that was made by its class.
                agent.note_branch()
        if agent is not None or _of_attempt(context):
            coroutine = Branch.of(coroutine)
        task = create(coroutine, **options)
        if agent is not None:
            agent.branches.add(task)
        return task

    return noting


def _of_attempt(context: Context | None) -> bool:
    return in_attempt.get() if context is None else context.get(in_attempt, False)


def _threaded(submit: Callable[..., Future]) -> Callable[..., Future]:
    def noting(executor: Any, work: Callable[..., object], *args: Any) -> Future:
        agent = current.get()
        future = submit(executor, work, *args)
        if agent is not None:
            branches = agent.branches
            branches.set_off(future)
            future.add_done_callback(branches.ended, context=Context())
        return future

    return noting
