"""Tasks: functions whose calls inside an agent are durable steps."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, Literal, ParamSpec, TypedDict, TypeVar, overload
from uuid import UUID

from . import _native
from .codes import PREVIEW_DATA, PREVIEW_TOKEN
from .declared import check_kept, check_task, listed, names_before
from .errors import InvalidArgument
from .retry import Retry, RetryIf
from .scope import current
from .serde import Pair, Rebuild, Serializer, Signature, local_names, own_serializer
from .step import LocalStep, Step
from .threads import called

if TYPE_CHECKING:
    from .flag import Flag

P = ParamSpec("P")
R = TypeVar("R")
SideEffects = Literal["idempotent", "at_most_once"]

_UNSET: Any = object()

declared_kinds: set[str] = set()
"""The kinds that this process has declared: what a test that names a task by its kind may mean. It serves nothing."""


class CallOptions(TypedDict, total=False):
    """How a call of a task is run; see ``Task.options``."""

    key: str | None
    retries: int
    retry: Retry | None
    timeout: float | None
    max_losses: int
    deadline: float | None
    queue: str | None
    side_effects: SideEffects
    detached: bool


class TaskContext:
    """What a task may know and tell while it runs; declare it as the first parameter to get it."""

    __slots__ = ("_attempt", "_link", "_uuid")

    def __init__(self, uuid: bytes, attempt: int, link: TaskLink) -> None:
        self._uuid = uuid
        self._attempt = attempt
        self._link = link

    @property
    def task_id(self) -> UUID:
        """The idempotency key for the outside world: the same in every attempt."""
        return UUID(bytes=self._uuid)

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._attempt

    @property
    def is_cancelled(self) -> Flag:
        """Whether the run wants this attempt to stop. Async tasks are cancelled too; ``def`` tasks must look."""
        from .flag import Flag

        return Flag(self._link.is_cancelled())

    def heartbeat(self) -> None:
        """Give a sign of life; needed when ``heartbeat_timeout`` is set."""
        self._link.heartbeat()

    def report_progress(self, fraction: float, message: str = "") -> None:
        """Tell how far the task is, from 0 to 1; a sign of life too.

        Watchers see it at once. ``handle.tasks()`` shows the latest as ``progress``, written at most once a second.
        """
        self._link.progress(float(fraction), message)

    def stream_token(self, text: str) -> None:
        """Show watchers a piece of text; void once the task has a result."""
        self._link.stream(PREVIEW_TOKEN, text)

    def stream_data(self, data: Any) -> None:
        """Show watchers structured data; void once the task has a result."""
        self._link.stream(PREVIEW_DATA, data)


class TaskLink:
    """How a running attempt speaks with the engine: nowhere, by default."""

    __slots__ = ("cancelled",)

    def __init__(self) -> None:
        self.cancelled = False

    def heartbeat(self) -> None:
        """Give a sign of life."""

    def is_cancelled(self) -> bool:
        """Whether the attempt shall stop."""
        return self.cancelled

    def progress(self, fraction: float, message: str) -> None:
        """Tell how far the attempt is."""

    def stream(self, kind: int, data: Any) -> None:
        """Publish a preview."""


class Task(Generic[P, R]):
    """A declared task. Calling it inside an agent schedules a durable step; outside it just runs."""

    is_native: ClassVar[bool] = False
    """Whether the toolkit runs it."""

    def __init__(
        self,
        fn: Callable[..., Any],
        kind: str,
        options: dict[str, Any],
        *,
        key: str | None = None,
        reconcile: Callable[..., Any] | None = None,
        retry_if: RetryIf | None = None,
        aliases: Sequence[str] = (),
        signature: Signature | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.fn: Callable[..., Any] = fn
        """The plain function."""
        self.kind: str = kind
        """Its name in journals."""
        self.reconcile: Callable[..., Any] | None = reconcile
        self.retry_if: RetryIf | None = retry_if
        self.aliases: tuple[str, ...] = tuple(aliases)
        """Names that it had before: calls and tasks recorded under them are its own."""
        self.key: str | None = key
        self._options = options
        self.signature = signature or Signature(fn, "TaskContext")
        self.is_async: bool = asyncio.iscoroutinefunction(fn) or asyncio.iscoroutinefunction(
            getattr(fn, "__call__", None)  # noqa: B004 - the callable of an object
        )
        self.origin: Origin | None = origin
        detached = bool(options.get("detached"))
        inline = options.get("queue") is None and not detached
        self._is_kept: bool = self.is_of_run and inline and bool(options.get("retries"))
        if self._is_kept:
            options = options | {"in_place": True}
        pauses: Retry | None = options.get("retry")
        given: dict[str, Any] = options | {"retry": None if pauses is None else _pauses(pauses)}
        self.spec = _native.TaskSpec(kind, inline=inline, aliases=list(self.aliases), **given)
        self.inline: bool = inline
        """Whether its first attempt runs in the process of the agent that calls it."""
        self.detached: bool = detached
        self.timeout: float | None = options.get("timeout")
        self.retries: int = options.get("retries") or 0
        self.may_return: bool = not inline or (bool(options.get("retries")) and not options.get("in_place"))
        """Whether an attempt may come from the queue while the call is waited for, a lost process aside."""
        self._rebuild: Rebuild | None = _UNSET
        self.__name__ = getattr(fn, "__name__", kind)
        self.__doc__ = fn.__doc__
        self.__wrapped__ = fn

    @property
    def is_of_run(self) -> bool:
        """Whether its function holds what is a run's own: the code of that run made it, and no other process has it."""
        return self.origin is not None and not self.origin.is_shared

    @property
    def rebuild(self) -> Rebuild | None:
        """What turns a decoded result into the annotated return type, if anything."""
        if self._rebuild is _UNSET:
            self._rebuild = self.signature.returns()
        return self._rebuild

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Step[R]:
        activation = current.get()
        if activation is not None:
            return activation.schedule(self, args, kwargs)
        return LocalStep(self._run_here(args, kwargs))

    def options(
        self,
        *,
        key: str | None = _UNSET,
        retries: int = _UNSET,
        retry: Retry | None = _UNSET,
        timeout: float | None = _UNSET,
        max_losses: int = _UNSET,
        deadline: float | None = _UNSET,
        queue: str | None = _UNSET,
        side_effects: SideEffects = _UNSET,
        detached: bool = _UNSET,
    ) -> Task[P, R]:
        """Return the same task with other options for the calls made through it.

        ``key`` names a call among identical ones; ``deadline`` limits all attempts together, in seconds;
        ``queue`` lets a worker of that queue run it; ``detached`` lets it outlive its segment.
        """
        given = {
            "retries": retries,
            "retry": retry,
            "timeout": timeout,
            "max_losses": max_losses,
            "deadline": deadline,
            "queue": queue,
            "side_effects": side_effects,
            "detached": detached,
        }
        changed = {name: value for name, value in given.items() if value is not _UNSET}
        return Task(
            self.fn,
            self.kind,
            self._options | changed,
            key=self.key if key is _UNSET else key,
            reconcile=self.reconcile,
            retry_if=self.retry_if,
            aliases=self.aliases,
            signature=self.signature,
            origin=self.origin,
        )

    def called_by(self, run: str) -> Task[P, R]:
        """Return the task as a run calls it: one that another run has declared is everybody's."""
        if self.origin is None:
            return self
        self.origin.is_shared |= self.origin.run != run
        return self.options() if self._is_kept and not self.is_of_run else self

    def native_options(self) -> dict[str, Any]:
        """Return how it is run, as native agents schedule it."""
        given = self._options
        seconds = {"timeoutMs": "timeout", "heartbeatTimeoutMs": "heartbeat_timeout", "deadlineMs": "deadline"}
        options: dict[str, Any] = {
            "retries": given.get("retries", 0),
            "maxLosses": given.get("max_losses"),
            "noRetry": list(given.get("no_retry", ())),
            "sideEffects": given.get("side_effects", "idempotent"),
            "interruptible": bool(given.get("interruptible")),
            "queue": given.get("queue"),
        }
        pauses: Retry | None = given.get("retry")
        if pauses is not None:
            delay, max_delay, factor, jitter = _pauses(pauses)
            options["retry"] = {
                "delayMs": delay * 1000,
                "maxDelayMs": max_delay * 1000,
                "factor": factor,
                "jitter": jitter,
            }
        for name, own in seconds.items():
            limit = given.get(own)
            options[name] = None if limit is None else round(limit * 1000)
        return {name: value for name, value in options.items() if value is not None}

    async def _run_here(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.signature.takes_context:
            args = (TaskContext(UUID(int=0).bytes, 1, TaskLink()), *args)
        return await called(self.fn, self.is_async, args, kwargs)

    def __repr__(self) -> str:
        return f"<flovyn task {self.kind!r}>"


class Origin:
    """The run whose code has made a function, and whether others have it by now."""

    __slots__ = ("is_shared", "run")

    def __init__(self, run: str) -> None:
        self.run: str = run
        self.is_shared: bool = False


def origin_of(fn: Callable[..., Any]) -> Origin | None:
    """Return the run whose code declares a function that holds values of its own; none where there is none."""
    activation = current.get()
    return Origin(activation.session.execution_id()) if activation is not None and holds_values(fn) else None


def holds_values(fn: Callable[..., Any]) -> bool:
    """Whether a function holds values of whoever made it, so that another one of the same code may be another function.

    One of a module is made once, whatever it holds.
    """
    if isinstance(fn, types.BuiltinFunctionType):
        return not isinstance(fn.__self__, (types.ModuleType, type(None)))
    if getattr(fn, "__code__", None) is None or hasattr(fn, "__self__"):
        return not isinstance(fn, type)
    parts = ("__closure__", "__defaults__", "__kwdefaults__")
    return "<locals>" in fn.__qualname__ and any(getattr(fn, part, None) for part in parts)


def _pauses(retry: Retry) -> tuple[float, float, float, float]:
    if not isinstance(retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"retry= takes flovyn.Retry(delay=…, factor=…, max_delay=…, jitter=…), not {retry!r}")
    return retry.delay, retry.max_delay, retry.factor, retry.jitter


@overload
def task(fn: Callable[Concatenate[TaskContext, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
@overload
def task(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def task(fn: Callable[Concatenate[TaskContext, P], R], /) -> Task[P, R]: ...
@overload
def task(fn: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *,
    kind: str | None = None,
    aliases: Sequence[str] = (),
    retries: int = 0,
    retry: Retry | None = None,
    timeout: float | None = None,
    heartbeat_timeout: float | None = None,
    max_losses: int | None = None,
    no_retry: Sequence[type[BaseException] | str] = (),
    retry_if: RetryIf | None = None,
    queue: str | None = None,
    side_effects: SideEffects = "idempotent",
    reconcile: Callable[..., Any] | None = None,
    interruptible: bool = False,
    serializer: Serializer | Pair | None = None,
) -> TaskDecorator: ...
def task(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    kind: str | None = None,
    aliases: Sequence[str] = (),
    retries: int = 0,
    retry: Retry | None = None,
    timeout: float | None = None,
    heartbeat_timeout: float | None = None,
    max_losses: int | None = None,
    no_retry: Sequence[type[BaseException] | str] = (),
    retry_if: RetryIf | None = None,
    queue: str | None = None,
    side_effects: SideEffects = "idempotent",
    reconcile: Callable[..., Any] | None = None,
    interruptible: bool = False,
    serializer: Serializer | Pair | None = None,
) -> Any:
    """Declare a task: a function whose calls inside an agent are durable steps.

    ``retries=n`` allows n + 1 attempts that return an error or time out. ``timeout`` and ``heartbeat_timeout`` are
    seconds of one attempt. ``no_retry`` names error types that fail at once, as ``NonRetryable`` does; ``retry_if`` is
    asked about each other error where it was raised, and what it says no to fails at once as well. ``retry`` gives the
    pauses between attempts (``flovyn.Retry``); an error with an attribute ``retry_after`` (seconds), such as
    ``flovyn.RetryAfter``, says itself how long to wait.
    ``max_losses`` is how often in a row an attempt may be lost with its process (``os._exit``, abort, out of memory, a
    kill; 1 to 1000, 20 unless given): then the task is quarantined, and its run pauses until ``handle.resume()`` starts
    it once more or ``handle.resolve(...)`` answers for it.
    ``aliases`` names what it was called before: it serves what was recorded under those names as well.
    ``side_effects="at_most_once"`` makes a lost attempt wait for a decision instead of running again;
    ``reconcile=fn`` (called with the task's arguments) settles it: its return value is the result, and raising
    ``flovyn.NotDone`` says that it did not take effect.

    ``interruptible=True`` declares a model call that returns the text it streams: a signal sent with
    ``delivery="now"`` cancels it, and what ``stream_token`` has shown so far becomes its result.

    A task that is declared inside an agent's function belongs to that run. It is tried again where it was called, as a
    step of ``ctx.run`` is, with the pauses waited for in memory; given a ``queue`` it fails, in words, where an attempt
    comes to a process that does not have the run.

    ``serializer`` writes and reads its arguments and its result: an object with ``dump(value)`` and ``load(json)``, or
    a pair of such functions, for types that have no form of their own (``docs/values.md``).
    """
    effects: str = side_effects
    if reconcile is not None:
        if side_effects == "at_most_once":
            raise InvalidArgument("a task is either at_most_once or has reconcile=; drop one of the two")
        effects = "reconcile"
    options: dict[str, Any] = {
        "retries": retries,
        "retry": retry,
        "timeout": timeout,
        "heartbeat_timeout": heartbeat_timeout,
        "no_retry": [each if isinstance(each, str) else each.__qualname__ for each in listed("no_retry", no_retry)],
        "queue": queue,
        "side_effects": effects,
        "interruptible": interruptible,
    }
    if max_losses is not None:
        options["max_losses"] = max_losses

    def declare(fn: Callable[..., Any], depth: int = 1) -> Task[..., Any]:
        check_task(fn)
        name = kind or getattr(fn, "__name__", "")
        if not name or name == "<lambda>":
            raise InvalidArgument("a task without a name needs kind=")
        declared_kinds.add(name)
        own = own_serializer(serializer, f"task {name!r}")
        local = local_names(fn, depth)
        signature = Signature(fn, "TaskContext", local, own=own)
        if own is None:
            check_kept("task", fn, signature.names, local)
        if interruptible and not signature.takes_context:
            raise InvalidArgument(
                f"task {name!r} is interruptible and takes no TaskContext; what it has streamed by then is its result, "
                "so declare `ctx: TaskContext` first and call ctx.stream_token"
            )
        return Task(
            fn,
            name,
            dict(options),
            reconcile=reconcile,
            retry_if=retry_if,
            aliases=names_before("task", name, aliases),
            signature=signature,
            origin=origin_of(fn),
        )

    return declare if fn is None else declare(fn, 2)


class TaskDecorator:
    """What ``task(...)`` with options gives: it declares the function it is put on."""

    if TYPE_CHECKING:

        @overload
        def __call__(self, fn: Callable[Concatenate[TaskContext, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
        @overload
        def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...  # pyright: ignore[reportOverlappingOverload]
        @overload
        def __call__(self, fn: Callable[Concatenate[TaskContext, P], R], /) -> Task[P, R]: ...
        @overload
        def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...
        def __call__(self, fn: Any, /) -> Any: ...
