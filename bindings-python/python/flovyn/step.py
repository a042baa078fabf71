"""What an op of an agent gives back: an awaitable that is a coroutine too."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import Context
from types import CodeType
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from .codes import OUTCOME_CANCELLED, OUTCOME_EVENT, OUTCOME_FAILED, OUTCOME_TIMED_OUT, OUTCOME_VALUE
from .errors import Cancelled, OutsideAgent, SignalTimeout, Suspended, is_ours, task_failed
from .join import Join
from .stopping import never

if TYPE_CHECKING:
    from .activation import Activation
    from .serde import Rebuild
    from .task import Task

R = TypeVar("R")
_NONE: dict[str, Any] = {}
"""No arguments by name. Thousands of steps may wait at once, so what most have none of is made when it is needed."""


def _call_site() -> tuple[CodeType, int] | None:
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lineno)


class Step(Coroutine[Any, Any, R], Generic[R]):
    """One op of an agent on its way to its outcome.

    It is a coroutine: ``await`` it, or pass it to ``create_task``, ``gather``, ``wait_for`` or a ``TaskGroup``.
    It takes its place in the journal when it is made, awaited or not. Awaiting it again gives the same
    outcome, unless the await was given up: then it raises ``InvalidTransition``.
    """

    __slots__ = (
        "__weakref__",
        "_activation",
        "_args",
        "_context",
        "_driven",
        "_error",
        "_key",
        "_kwargs",
        "_native_op",
        "_rebuild",
        "_settled",
        "_task",
        "_uuid",
        "_value",
        "_waiters",
        "_what",
        "awaited",
        "made_at",
    )

    def __init__(
        self, activation: Activation, op: int, uuid: bytes = b"", *, what: str = "", rebuild: Rebuild | None = None
    ) -> None:
        self._activation = activation
        self._native_op = op
        self._uuid = uuid
        self._what = what
        self._rebuild = rebuild
        self._settled = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._waiters: list[asyncio.Future[None]] | None = None
        self._driven: dict[asyncio.Task[Any] | None, Generator[Any, Any, R]] | None = None
        self._task: Task[..., Any] | None = None
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = _NONE
        self._context: Context | None = None
        self.awaited = False
        """Whether anybody has awaited it."""
        self.made_at = _call_site()
        """Where the code calls it: the code and the line."""

    @property
    def named(self) -> str:
        """What it waits for, where that has a name."""
        return f"signal {self._what!r}" if self._what else ""

    @property
    def can_outlive(self) -> bool:
        """Whether what it waits for could have been called so that it outlives the run."""
        return True

    @property
    def looked_after(self) -> bool:
        """Whether the code minds what becomes of it, though nobody awaits it."""
        return False

    @property
    def id(self) -> UUID:
        """The UUID of what the op created; for a task its id and idempotency key."""
        return UUID(bytes=self._uuid) if self._uuid else UUID(int=0)

    @property
    def ref(self) -> str:
        """The name by which ``ctx.attach`` joins a detached task again."""
        return str(self.id)

    def called(self) -> tuple[Task[..., Any], Context] | None:
        """Return the task that it waits for, and the context of its call; none once it has an outcome."""
        if self._task is None or self._context is None:
            return None
        return self._task, self._context

    def result(self) -> R:
        """Block until the outcome is there; only in ``def`` agents."""
        self._activation.block_on((self,))
        return self.outcome()

    def done(self) -> bool:
        """Tell whether the outcome was handed over."""
        return self._settled

    @property
    def failed(self) -> bool:
        """Whether its outcome is an error."""
        return self._error is not None

    @property
    def stops(self) -> bool:
        """Whether its outcome is that the run was asked to stop."""
        return type(self._error) is Cancelled

    @property
    def waiters(self) -> Sequence[asyncio.Future[None]]:
        """The futures that its outcome ends."""
        return self._waiters or ()

    @property
    def activation(self) -> Activation:
        """The run of the agent that made it."""
        return self._activation

    def begin(self, waiter: asyncio.Future[None]) -> None:
        """Have its outcome end a future."""
        self.awaited = True
        if not self._waiters:
            self._activation.begin_await(self)
            self._waiters = []
        self._waiters.append(waiter)

    def leave(self, waiter: asyncio.Future[None]) -> None:
        """Have its outcome not end a future any more: without any it is given up."""
        if self._waiters and not self._settled and waiter in self._waiters:
            self._waiters.remove(waiter)
            if not self._waiters:
                self._activation.give_up(self)

    def __await__(self) -> Generator[Any, Any, R]:
        activation = self._activation
        self.awaited = True
        if activation.sealed and (not self._settled or type(self._error) is Suspended):
            activation.check_open()
            yield from never(activation)
        if self._settled:
            return self.outcome()
        waiter: asyncio.Future[None] = activation.loop.create_future()
        self.begin(waiter)
        try:
            yield from waiter
        except BaseException as error:
            if not self._settled:
                self.leave(waiter)
                raise
            if not self.stops or isinstance(error, GeneratorExit):
                raise
            # A timer of the host cancels the task in the turn in which the run was told to stop. Who set the timer
            # would take it for an await that took too long, and go on.
        return self.outcome()

    def send(self, value: Any) -> Any:
        """Go on, as the event loop asks."""
        return self._drive(lambda awaiting: awaiting.send(value))

    def throw(self, typ: Any, val: Any = None, tb: Any = None) -> Any:
        """Raise inside the await, as the event loop asks."""
        if val is None and tb is None:
            return self._drive(lambda awaiting: awaiting.throw(typ))
        return self._drive(lambda awaiting: awaiting.throw(typ, val, tb))

    def _drive(self, go_on: Callable[[Generator[Any, Any, R]], Any]) -> Any:
        """Go on in the await of the task that asks: several may drive one step, at once or one after the other."""
        task = asyncio.current_task(self._activation.loop)
        driven = self._driven
        if driven is None:
            driven = self._driven = {}
        awaiting = driven.get(task)
        if awaiting is None:
            awaiting = driven[task] = self.__await__()
        try:
            return go_on(awaiting)
        except BaseException:
            driven.pop(task, None)
            raise

    def close(self) -> None:
        """Give up the awaits."""
        driven, self._driven = self._driven, None
        for awaiting in (driven or {}).values():
            awaiting.close()

    def outcome(self) -> R:
        """Return the outcome that was handed over, or raise its error."""
        if self._error is not None:
            if self.stops:
                self._activation.told()
            raise self._error
        return self._value

    def outcome_or_error(self) -> R | BaseException:
        """Return the outcome that was handed over, or its error."""
        return self._value if self._error is None else self._error

    def deliver(self, tag: int, value: Any, cause: BaseException | None = None) -> None:
        """Take the outcome and wake whoever awaits it; the engine calls this, once."""
        self._settled = True
        if tag in (OUTCOME_VALUE, OUTCOME_EVENT):
            try:
                self._value = self._rebuild(value) if self._rebuild is not None and value is not None else value
            except BaseException as error:
                # Of a validator or a constructor: the awaiting code gets it, whatever it is.
                self._error = self._activation.unfit = error
        elif tag == OUTCOME_FAILED:
            self._error = task_failed(value)
            self._error.__cause__ = cause
        elif tag == OUTCOME_TIMED_OUT:
            self._error = SignalTimeout(self._late())
        elif tag == OUTCOME_CANCELLED:
            self._error = Cancelled("the run was asked to stop")
            self._activation.tells(self._error)
        else:
            self._error = self._activation.unfit = value
        self._args, self._kwargs, self._context = (), _NONE, None
        for waiter in self.waiters:
            if isinstance(waiter, Join):
                waiter.ended(self)
            elif not waiter.done():
                waiter.set_result(None)

    def _late(self) -> str:
        """Say that nothing came in time."""
        return f"no signal {self._what!r} came in time"

    def put_away(self) -> None:
        """Make every later await raise ``Suspended``."""
        if not self._settled:
            self._settled = True
            self._error = Suspended("this copy of the agent was put away")


class LocalStep(Step[R]):
    """A task called outside an agent: it just runs."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, R]) -> None:
        self._coroutine = coroutine
        self._uuid = b""

    def result(self) -> R:
        raise OutsideAgent("step.result() blocks an agent declared with `def`; outside an agent call task.fn(...)")

    def done(self) -> bool:
        return False

    def __await__(self) -> Generator[Any, Any, R]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, typ: Any, val: Any = None, tb: Any = None) -> Any:
        if val is None and tb is None:
            return self._coroutine.throw(typ)
        return self._coroutine.throw(typ, val, tb)

    def close(self) -> None:
        self._coroutine.close()
