"""What agent code sees: the durable context.

Sync methods take their place in the journal when called and join the batch; nothing leaves the process before an
await that cannot be served. Async ones give a ``Step``: await it, or hand it to asyncio.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, ParamSpec, TypeVar, overload
from uuid import UUID

from .child_events import answered, asked, news, stopped, to_child, to_parent
from .codes import ONCE_DONE, ONCE_RECORDED, PREVIEW_DATA, PREVIEW_ERROR, PREVIEW_TOKEN
from .declared import check_step
from .errors import Cancelled, InvalidArgument
from .family import Child, children_of, handed_off, handing_off, has_ended, leave_children, spawned
from .flag import Flag
from .inputs import NOT_GIVEN
from .reducers import reduce_fields
from .scope import once_name
from .serde import Signature, checked
from .several import Mapped, joined, listed, some
from .step import Step
from .task import CallOptions, Task, origin_of
from .timeouts import DurableTimeout

if TYPE_CHECKING:
    from typing_extensions import TypeVar as _TypeVar
    from typing_extensions import TypeVarTuple, Unpack

    from .activation import Activation
    from .agent import Agent
    from .child_events import AnyChild, ChildEvent
    from .family import Completion, HandoffOptions, SpawnOptions
    from .handle import CancelMode, Delivery
    from .message import Message
    from .retry import Retry

    S = _TypeVar("S", default=Any)
    A = TypeVarTuple("A")
else:
    S = TypeVar("S")

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 - the input
T = TypeVar("T")


STEP_OPTIONS = ("retries", "retry", "timeout", "key")
"""What ``ctx.run`` takes for the step itself, unless the function has a parameter of that name."""


class Context(Generic[S]):
    """What both kinds of agents share: everything that needs no await."""

    __slots__ = ("_activation", "_session", "_thread")

    def __init__(self, activation: Activation, thread: str = "") -> None:
        self._activation = activation
        self._session = activation.session
        self._thread = thread

    # ── who and what ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def agent_execution_id(self) -> UUID:
        """The run."""
        return UUID(self._session.execution_id())

    @property
    def org_id(self) -> UUID:
        """The tenant."""
        return UUID(self._session.org_id())

    @property
    def key(self) -> str | None:
        """The id the run was started with, where that is no UUID."""
        return self._session.key()

    @property
    def shared_context(self) -> Any:
        """What the run that has started this one gave it of its conversation; see ``spawn_agent``."""
        given = self._session.shared_context()
        return None if given is None else json.loads(given)

    @property
    def input(self) -> Any:
        """The input as JSON, as it was given to start."""
        return self._session.input()

    @property
    def state(self) -> S:
        """The state as of the last checkpoint, or what the code has made of it since."""
        self._activation.agent.check_stateful("ctx.state")
        return self._activation.state

    @state.setter
    def state(self, value: S) -> None:
        self._activation.agent.check_stateful("ctx.state")
        self._activation.state = value

    def update(self, **fields: Any) -> S:
        """Change fields of the state by their reducers (``Annotated[list[str], flovyn.append]``); return the state."""
        self._activation.agent.check_stateful("ctx.update")
        self._activation.state = reduce_fields(self._activation.state, fields)
        return self._activation.state

    @property
    def is_suspending(self) -> Flag:
        """Whether this copy is being put away: in a ``finally``, leave the outside as it is."""
        return Flag(self._activation.sealed)

    @property
    def is_cancellation_requested(self) -> Flag:
        """Whether the run was asked to stop, as far as this process knows. Not recorded."""
        return Flag(self._session.is_cancel_requested())

    # ── conversation ────────────────────────────────────────────────────────────────────────────────────────────

    def append_entry(
        self,
        role: str,
        content: Any,
        *,
        entry_type: str = "message",
        turn_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> UUID:
        """Append an entry to the conversation and return its id; durable with the next commit."""
        self._activation.check_open()
        entry = self._session.call_entry(
            role, content, entry_type, turn_id, dict(metadata) if metadata else None, self._thread, once_name.get()
        )
        self._activation.touched()
        return UUID(bytes=entry)

    def load_messages(self) -> list[Message]:
        """Read the conversation at this point of the journal, from its root to its leaf."""
        return _messages(self._session.branch_now(self._thread))

    def context_ref(self) -> dict[str, Any]:
        """Return a small value that stands for the conversation at this point, to be passed to a task."""
        return {
            "execution": self._session.execution_id(),
            "thread": self._thread,
            "leaf": self._session.leaf(self._thread),
        }

    # ── time, chance, cost ──────────────────────────────────────────────────────────────────────────────────────

    def current_time(self) -> datetime:
        """Return the run's time: the same on replay, never going back."""
        return datetime.fromtimestamp(self._session.time(), timezone.utc)

    def random(self) -> float:
        """Return a number from 0 to 1, the same on replay."""
        return self._session.random_number()

    def random_uuid(self) -> UUID:
        """Return a UUID (version 4), the same on replay."""
        return UUID(bytes=self._session.random(), version=4)

    def record_usage(
        self,
        model: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        *,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        cost_usd: float | None = None,
    ) -> None:
        """Record what a model call cost; sums are in the checkpoint and in ``describe()``."""
        self._activation.check_open()
        micros = None if cost_usd is None else round(cost_usd * 1_000_000)
        self._session.call_usage(
            model, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, micros, once_name.get()
        )
        self._activation.touched()

    # ── streaming ───────────────────────────────────────────────────────────────────────────────────────────────

    def stream_token(self, text: str) -> None:
        """Show watchers a piece of text before it is durable."""
        self._session.stream(PREVIEW_TOKEN, text)

    def stream_data(self, data: Any) -> None:
        """Show watchers structured data before it is durable."""
        self._session.stream(PREVIEW_DATA, data)

    def stream_error(self, error: Any) -> None:
        """Show watchers an error worth seeing."""
        self._session.stream(
            PREVIEW_ERROR,
            {"type": type(error).__name__, "message": str(error)} if isinstance(error, BaseException) else error,
        )

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────────

    @overload
    def schedule_task(self, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Step[R]: ...
    @overload
    def schedule_task(self, task: str, input: Any = None, /, **options: Unpack[CallOptions]) -> Step[Any]: ...
    def schedule_task(self, task: Any, /, *args: Any, **kwargs: Any) -> Step[Any]:
        """Schedule a task: takes its place now, starts when the code next awaits; await the step for its result.

        By its kind it takes the options of ``task.options``, such as the ``queue`` of the workers that serve it.
        """
        self._activation.check_open()
        if isinstance(task, Task):
            return self._activation.schedule(task, args, kwargs)  # pyright: ignore[reportUnknownArgumentType]
        strangers = sorted(kwargs.keys() - CallOptions.__annotations__)
        if len(args) > 1 or strangers:
            raise InvalidArgument(
                "schedule_task(kind, input) takes one input; make it a dict"
                + (f", which has {', '.join(strangers)}" if strangers else "")
            )
        named = self._activation.worker.task_of(task)
        if kwargs:
            named = named.options(**kwargs)
        given, named_given = named.signature.unwire(args[0] if args else None)
        return self._activation.schedule(named, tuple(given), named_given)

    # ── children ────────────────────────────────────────────────────────────────────────────────────────────────

    @overload
    def spawn_agent(self, agent: Agent[None, R], input: None = None, **options: Unpack[SpawnOptions]) -> Child[R]: ...
    @overload
    def spawn_agent(self, agent: Agent[I, R], input: I, **options: Unpack[SpawnOptions]) -> Child[R]: ...
    @overload
    def spawn_agent(self, agent: str, input: Any = None, **options: Unpack[SpawnOptions]) -> Child[Any]: ...
    def spawn_agent(self, agent: Any, input: Any = NOT_GIVEN, **options: Any) -> Child[Any]:
        """Start a run of another agent as a child; await it for its output.

        It takes its place now and is born with the next commit, once, whatever crashes. A worker that serves this run
        also serves an agent that the code hands over as an object; a kind is served by whoever has it on ``queue``,
        the queue of this run where none is given; ``mode=Local("laptop")`` is that of a machine. The await raises
        ``ChildFailed`` or ``ChildCancelled`` where there is no output, ``BudgetExceeded`` where its budget stopped it,
        and ``LimitReached`` for a child too many; inside of ``once`` the call raises ``InvalidArgument``. ``budget`` is
        taken out of this run's own, and what is left comes back; without it the child draws from what is left. Children
        that run when this run ends are cancelled, but for ``on_parent_end="detach"``.
        ``shared_context``: the child's conversation goes on from here by reference (``"read_only"``), and this run
        sees it as ``ctx.thread(str(child.id))`` after its end (``"conversation"``); or a mapping of your own.
        ``id`` names the child: the same call again, with its id, agent and input, waits for the same child, also after
        a checkpoint. ``key`` names the call among identical ones; the other options are those of ``client.start``.
        """
        self._activation.check_open()
        return spawned(self._activation, agent, input, options, self._thread)

    # ── private ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _signal(self, name: str, of: Any, timeout: float | None) -> Step[Any]:
        self._activation.check_open()
        step = self._activation.step(self._session.call_signal(name, timeout, once_name.get()), what=name)
        step._rebuild = self._activation.agent.mail.reads(name, of)  # pyright: ignore[reportPrivateUsage]
        return step

    def _drained(self, name: str, values: list[Any]) -> list[Any]:
        """Make of signals that were taken at once what an await would have given of each."""
        reads = self._activation.agent.mail.reads(name)
        if reads is None:
            return values
        return [None if value is None else self._activation.fitted(reads, value) for value in values]

    def _sleep(self, seconds: float) -> Step[None]:
        self._activation.check_open()
        return self._activation.step(self._session.call_timer(float(seconds), once_name.get()))

    def _flush(self) -> Step[None]:
        self._activation.check_open()
        return self._activation.step(self._session.call_flush(once_name.get()))

    def _persist(self) -> Step[None]:
        self._activation.check_open()
        return self._activation.step(self._session.call_persist(once_name.get()))

    def _step(self) -> Step[None]:
        self._activation.check_open()
        return self._activation.step(self._session.call_step(once_name.get()))

    def _attach(self, ref: str) -> Step[Any]:
        self._activation.check_open()
        op, uuid = self._session.call_attach(str(ref), once_name.get())
        return self._activation.step(op, uuid)

    def _checkpoint(self, given: tuple[Any, ...], metadata: Mapping[str, Any] | None) -> Step[None]:
        self._activation.check_open()
        if not given and self._activation.agent.state is None:
            return self._flush()
        self._activation.agent.check_stateful("checkpoint(state)")
        state = given[0] if given else self._activation.state
        stored = self._activation.agent.stored_state(state)
        leave_children(self._activation)
        op = self._session.checkpoint(stored, dict(metadata or {}))
        self._activation.state = state
        self._activation.saved()
        return self._activation.step(op)

    def _inline(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Step[Any]:
        check_step("run", name, fn)
        called: Callable[..., Any] = fn.fn if isinstance(fn, Task) else fn
        signature = fn.signature if isinstance(fn, Task) else Signature(fn, "TaskContext")
        options: dict[str, Any] = {"side_effects": "idempotent"}
        own = [each for each in STEP_OPTIONS if each in kwargs and not signature.takes(each)] if kwargs else ()
        if own:
            kwargs = dict(kwargs)
            options |= {each: kwargs.pop(each) for each in own}
        key: str | None = options.pop("key", None)
        if options.get("retries"):
            # The function may be a closure, which no other process has: it is tried again here.
            options["in_place"] = True
        origin = None if isinstance(fn, Task) else origin_of(called)
        step: Task[..., Any] = Task(called, name, options, key=key, signature=signature, origin=origin)
        return self._activation.schedule(step, args, kwargs)


class AgentContext(Context[S]):
    """The context of an ``async def`` agent."""

    __slots__ = ()

    def thread(self, name: str) -> AgentContext[S]:
        """Return the same context on a branch of the conversation with a leaf of its own."""
        self._session.open_thread(name)
        return AgentContext(self._activation, name)

    def checkpoint(self, *state: S, metadata: Mapping[str, Any] | None = None) -> Coroutine[Any, Any, None]:
        """Save the state and end the segment: recovery replays only what follows.

        Without an argument it saves ``ctx.state``; for an agent without state it only forces a commit. Every op
        must be settled (``OpenOperations`` names the others). Durable when it returns.
        """
        if len(state) > 1:
            raise InvalidArgument("checkpoint() takes one state")
        return self._checkpoint(state, metadata)

    def flush(self) -> Coroutine[Any, Any, None]:
        """Force a commit; all earlier ops are durable when it returns."""
        return self._flush()

    def enable_persistence(self) -> Coroutine[Any, Any, None]:
        """Keep the journal from now on, in a run that was started without: all so far is durable when it returns."""
        return self._persist()

    def step(self) -> Coroutine[Any, Any, None]:
        """Begin a step: one model call with what it asks for. Counts towards ``max_steps``."""
        return self._step()

    async def messages(self) -> list[Message]:
        """Read the conversation at this point of the journal without blocking the loop."""
        hub = self._activation.worker.hub
        return _messages(await hub.call(self._session.branch, self._thread))

    @overload
    def run(self, name: str, fn: Callable[Q, Coroutine[Any, Any, R]], *args: Q.args, **kwargs: Q.kwargs) -> Step[R]: ...
    @overload
    def run(self, name: str, fn: Callable[Q, R], *args: Q.args, **kwargs: Q.kwargs) -> Step[R]: ...
    @overload
    def run(
        self,
        name: str,
        fn: Callable[[Unpack[A]], Coroutine[Any, Any, R]],
        *args: Unpack[A],
        retries: int = ...,
        retry: Retry | None = ...,
        timeout: float | None = ...,
        key: str | None = ...,
    ) -> Step[R]: ...
    @overload
    def run(
        self,
        name: str,
        fn: Callable[[Unpack[A]], R],
        *args: Unpack[A],
        retries: int = ...,
        retry: Retry | None = ...,
        timeout: float | None = ...,
        key: str | None = ...,
    ) -> Step[R]: ...
    def run(self, name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Step[Any]:
        """Run any callable with these arguments as a durable inline step of this name.

        ``retries``, ``retry``, ``timeout`` and ``key`` are the step's own, as those of a task, unless the function has
        parameters of these names. It is tried again here, with the pauses waited for in memory, and anew where another
        process goes on with the run. A coroutine that takes longer than ``timeout`` seconds is cancelled; what a
        failed step raises is ``TaskFailed``, past its time ``TaskTimeout``.
        """
        return self._inline(name, fn, args, kwargs)

    async def once(self, name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run something once per execution, across checkpoints; later calls return the first result."""
        self._activation.check_open()
        check_step("once", name, fn)
        given: list[Any] = [*args, kwargs] if kwargs else list(args)
        how, value = self._session.once_begin(name, given)
        if how == ONCE_DONE:
            self._activation.touched()
            return value
        if how == ONCE_RECORDED:
            return await self._activation.step(value)
        token = once_name.set(name)
        try:
            result: Any = fn(*args, **kwargs)
            if isinstance(result, Awaitable):
                result = await result  # pyright: ignore[reportUnknownVariableType]
        finally:
            once_name.reset(token)
        return await self._activation.step(self._session.once_end(name, given, checked(result)))

    @overload
    async def map(
        self, task: Task[[T], R], items: Iterable[T], *, limit: int = 10, return_exceptions: Literal[False] = False
    ) -> list[R]: ...
    @overload
    async def map(
        self, task: Task[[T], R], items: Iterable[T], *, limit: int = 10, return_exceptions: bool
    ) -> list[R | Exception]: ...
    @overload
    async def map(
        self, task: str, items: Iterable[Any], *, limit: int = 10, return_exceptions: bool = False
    ) -> list[Any]: ...
    async def map(
        self, task: Any, items: Iterable[Any], *, limit: int = 10, return_exceptions: bool = False
    ) -> list[Any]:
        """Run a task, or what serves a kind, over items, at most ``limit`` at a time; the results are in their order.

        A failure begins no further item; it is raised once those that are open have ended, the first in order where
        several fail. With ``return_exceptions=True`` all items run, and failures are returned in their places.
        """
        mapped = Mapped(task, items, limit, return_exceptions)

        async def lane() -> None:
            for index in mapped.begun():
                try:
                    mapped.results[index] = await self.schedule_task(mapped.task(index), mapped.items[index])
                except Exception as error:
                    mapped.fails(index, error)

        await asyncio.gather(*(lane() for _ in range(mapped.lanes)))
        return mapped.ended()

    async def join_all(self, *steps: Any) -> list[Any]:
        """Wait for all; the first failure is raised and the others go on. Takes steps or one list of them."""
        return await joined(listed(steps), settled=False)

    async def join_all_settled(self, *steps: Any) -> list[Any]:
        """Wait for all and return results and exceptions in order."""
        return await joined(listed(steps), settled=True)

    async def select(self, *steps: Any) -> tuple[int, Any]:
        """Wait for the first and return its index and result; the others are given up."""
        tasks = [asyncio.ensure_future(step) for step in some(steps, "select")]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        winner = next(index for index, task in enumerate(tasks) if task.done() and not task.cancelled())
        await asyncio.gather(*(task for index, task in enumerate(tasks) if index != winner), return_exceptions=True)
        return winner, tasks[winner].result()

    async def wait_for_child(self, child: Child[R]) -> R:
        """Wait for a child; ``await child`` does the same."""
        return await children_of((child,), "wait_for_child")[0]

    async def join_children(self, *children: Any) -> list[Any]:
        """Wait for all and return their outputs; the first failure is raised and the others go on."""
        return await self.join_all(*children)

    async def join_children_settled(self, *children: Any) -> list[Any]:
        """Wait for all and return outputs and exceptions in order."""
        return await self.join_all_settled(*children)

    async def select_child(self, *children: Any) -> Child[Any]:
        """Wait until one has ended, and return that one: await it for its output. The others are not given up.

        Where several have ended already it is the first in order.
        """
        of = children_of(children, "select_child")
        await asyncio.wait([child.watch() for child in of], return_when=asyncio.FIRST_COMPLETED)
        return next(child for child in of if child.done())

    def wait_for_child_event(self, child: AnyChild, *, timeout: float | None = None) -> Step[ChildEvent]:
        """Wait for what a child tells next, or for its end; past ``timeout`` seconds: ``SignalTimeout``.

        What it tells comes in order, each once; its end comes last and may be read any number of times.
        """
        return news(self._activation, child, timeout)

    def respond(self, child: AnyChild, request: str, value: Any = None) -> Step[None]:
        """Answer a request of a child by its id, as ``request.respond`` does; also after a checkpoint."""
        return answered(self._activation, child, request, value)

    def signal_child(
        self, child: AnyChild, name: str, payload: Any = None, *, delivery: Delivery = "next_step"
    ) -> Step[None]:
        """Send a child a signal, once, whatever crashes; ``ExecutionClosed`` at the await where it has ended."""
        return to_child(self._activation, child, name, payload, delivery)

    def cancel_child(
        self, child: AnyChild, mode: CancelMode = "graceful", *, timeout: float | None = None
    ) -> Step[None]:
        """Ask a child to stop, with ``timeout`` seconds to tidy up; its end comes later."""
        return stopped(self._activation, child, mode, timeout)

    async def handoff_to_agent(
        self,
        agent: Agent[Any, Any] | str,
        input: Any = NOT_GIVEN,
        *,
        conversation: bool = True,
        completion: Completion = "wait_for_child",
        **options: Unpack[HandoffOptions],
    ) -> NoReturn:
        """Give the run away to an agent: the last call of this run. It raises ``HandedOff`` here once that is durable.

        The successor begins with ``input``, and with ``conversation`` goes on from this thread by reference. Children
        that still run are cancelled, as at an end. The run stays the address: signals, cancelling and what its parent
        is told go on to the successor, and it ends as that does; with ``"immediate"`` it is COMPLETED at once, with
        ``{"handedTo": id}``. ``LimitReached``, ``BudgetExceeded`` and ``Cancelled`` refuse it, and the run goes on.
        """
        self._activation.check_open()
        given = self._activation, agent, input, dict(options), self._thread
        try:
            await handing_off(*given, conversation, completion)
        except asyncio.CancelledError:
            if self._activation.handed_off:
                raise handed_off() from None
            raise
        raise has_ended(agent)

    def signal_parent(self, name: str, payload: Any = None) -> Step[None]:
        """Tell the run that has started this one; at the await ``NoParent`` or ``ExecutionClosed``."""
        return to_parent(self._activation, name, payload)

    def request_from_parent(self, name: str, payload: Any = None, *, timeout: float | None = None) -> Step[Any]:
        """Ask the run that has started this one, and wait for its answer: ``SignalTimeout``, ``ParentGone``."""
        return asked(self._activation, name, payload, timeout)

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Sleep durably: the time goes on while no process runs."""
        return self._sleep(seconds)

    def timeout(self, seconds: float) -> DurableTimeout:
        """Limit what runs inside ``async with`` by a durable timer; raises ``TimeoutError``."""
        return DurableTimeout(self, seconds)

    def attach(self, ref: str) -> Step[Any]:
        """Join a detached task by its ``ref``."""
        return self._attach(ref)

    @overload
    def wait_for_signal(self, name: str, type: type[T], *, timeout: float | None = None) -> Step[T]: ...
    @overload
    def wait_for_signal(self, name: str, type: None = None, *, timeout: float | None = None) -> Step[Any]: ...
    def wait_for_signal(self, name: str, type: Any = None, *, timeout: float | None = None) -> Step[Any]:
        """Wait for the next signal of a name; past ``timeout`` seconds: ``SignalTimeout``."""
        return self._signal(name, type, timeout)

    async def has_signal(self, name: str) -> bool:
        """Tell whether a signal of this name waits; recorded."""
        return self._read(self._session.has_signal, name)

    async def drain_signals(self, name: str, *, turn: bool = False) -> list[Any]:
        """Take all signals of this name that wait; with ``turn`` also those kept for the next turn."""
        return self._drained(name, self._read(self._session.drain_signals, name, turn))

    async def check_cancellation(self) -> bool:
        """Raise ``Cancelled`` if the run was asked to stop; recorded. Returns False otherwise.

        No later await of this branch raises it again, so it can tidy up.
        """
        if self._read(self._session.check_cancellation):
            error = Cancelled("the run was asked to stop")
            self._activation.hears(error)
            raise error
        return False

    async def remaining_budget(self) -> Any:
        """Return what is left of the budget; none where there is none. Recorded."""
        return self._read(self._session.remaining_budget)

    def _read(self, ask: Callable[..., Any], *args: Any) -> Any:
        self._activation.check_open()
        answer = ask(*args, once_name.get())
        self._activation.touched()
        return answer


def _messages(found: list[tuple[Any, ...]]) -> list[Message]:
    from .message import Message

    return [Message.of(parts) for parts in found]
