"""Blocking code: agents declared with ``def``, and clients for programs without an event loop.

A ``def`` agent has a thread of its own and one branch. Its ops block; tasks run beside it on the worker's loop.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, TypeVar, overload

from .activation import Activation, stored
from .child_events import answered, asked, news, stopped, to_child, to_parent
from .codes import (
    CHECKPOINT_OP,
    EFFECT_CANCEL_TASK,
    EFFECT_CLOSE,
    EFFECT_DELIVER,
    EFFECT_START,
    ONCE_DONE,
    ONCE_RECORDED,
    OUTCOME_VALUE,
    OUTSIDE_NOTHING,
)
from .context import Context, S
from .declared import check_step
from .errors import Cancelled, InvalidArgument, Suspended
from .family import children_of, handed_off, handing_off, has_ended
from .inputs import NOT_GIVEN
from .message import Message
from .scope import current, once_name
from .serde import checked
from .several import Mapped, listed, some
from .step import Step
from .stopping import stand_still
from .sync_client import SyncClient, SyncHandle, SyncWorker, connect_sync

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    from . import _native
    from .agent import Agent
    from .child_events import AnyChild, ChildEvent
    from .family import Child, Completion, HandoffOptions
    from .handle import CancelMode, Delivery
    from .retry import Retry
    from .task import Task
    from .worker import Worker

    A = TypeVarTuple("A")

__all__ = ["SyncActivation", "SyncAgentContext", "SyncClient", "SyncHandle", "SyncWorker", "connect_sync"]

Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")


class SyncActivation(Activation):
    """One copy of a ``def`` agent: its code in a thread, its tasks on the worker's loop."""

    def __init__(self, worker: Worker, id: int, session: _native.Session, agent: Agent[Any, Any]) -> None:
        super().__init__(worker, id, session, agent)
        self._arrived: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._limits: list[Step[None]] = []

    # ── on the worker's loop ────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        context = contextvars.copy_context()
        name = f"flovyn-agent-{self.agent.kind}"
        threading.Thread(target=context.run, args=(self._body,), name=name, daemon=True).start()

    def act(self, effects: list[Any]) -> None:
        for_thread: list[Any] = []
        for effect in effects:
            kind = effect[0]
            if kind == EFFECT_START:
                self._start_attempt(*effect[1:])
            elif kind == EFFECT_CANCEL_TASK:
                self._stop_attempt(effect[1])
            else:
                for_thread.append(effect)
                if kind == EFFECT_CLOSE:
                    self._tell_close(*effect[1:])
                    if effect[1] == "finished":
                        for step in list(self._steps.values()):
                            self.stop_queued(step)
                    self._put_away()
        if for_thread:
            self._arrived.put(for_thread)

    def drop(self) -> None:
        self._put_away()
        self._arrived.put([(EFFECT_CLOSE, "dropped", "")])

    def _put_away(self) -> None:
        self.sealed = True
        for op in list(self._attempts):
            self._stop_attempt(op)
        self.worker.closed(self)

    # ── in the agent's thread ───────────────────────────────────────────────────────────────────────────────────

    def _body(self) -> None:
        current.set(self)
        self.session.bind_thread()
        self.thread = threading.get_ident()
        try:
            self.state = self.fitted(self.agent.initial_state, self.session.state())
            output = self._enter(SyncAgentContext[Any](self))
            self._tell_unawaited()
            effects = self.fitted(stored, lambda: self.session.completed(self.agent.output(output)))
        except BaseException as error:
            try:
                effects = self._ended_by(error)
            except KeyboardInterrupt as interrupt:
                # It ends a loop, and its process, as it would in the code of an async agent.
                return self._on_loop(_raise, interrupt)
        self._hand_to_loop(effects or [])

    def _hand_to_loop(self, effects: list[Any]) -> None:
        if effects:
            self._on_loop(self.act, effects)

    def _on_loop(self, call: Callable[[Any], None], given: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(call, given)
        except RuntimeError:
            self.sealed = True

    def _stop_queued(self, uuid: bytes) -> None:
        self._on_loop(self.worker.stop, uuid)

    def _take(self, effects: list[Any]) -> bool:
        """Carry out in the thread what belongs to it; true if something was delivered."""
        others: list[Any] = []
        delivered = False
        for effect in effects:
            if effect[0] == EFFECT_DELIVER:
                _, op, tag, value = effect
                step = self._steps.pop(op, None)
                if step is not None:
                    if tag != OUTCOME_VALUE:
                        self.stop_queued(step)
                    step.deliver(tag, value, self._causes.pop(op, None))
                delivered = True
            elif effect[0] == EFFECT_CLOSE and self.sealed:
                raise Suspended("this copy of the agent was put away; its run goes on from its journal")
            else:
                others.append(effect)
        self._hand_to_loop(others)
        return delivered

    def _called(self) -> None:
        pass

    def check_open(self) -> None:
        # The thread of an agent that has ended may be another one's by now.
        is_own = threading.get_ident() == self.thread and (current.get() is self or not self.ended)
        if self.sealed and is_own and self._goes_on(threading.current_thread()):
            stand_still()
        super().check_open()

    def block_on(self, steps: Sequence[Step[Any]]) -> None:
        self.wait(steps, lambda: all(step.done() for step in steps))

    def wait(self, steps: Sequence[Step[Any]], enough: Callable[[], bool]) -> None:
        """Await steps in the agent's thread until it is enough."""
        for step in (*steps, *self._limits):
            step.awaited = True
            op = step._native_op  # pyright: ignore[reportPrivateUsage]
            if step.done() or op == CHECKPOINT_OP:
                continue
            self.check_open()
            self.session.await_op(op)
            self._steps[op] = step
        settle = True
        while not enough():
            late = next((limit for limit in self._limits if limit.done() and not limit.failed), None)
            if late is not None:
                for step in steps:
                    self.give_up(step)
                raise LimitReached(late)
            effects = self.session.settle(False, OUTSIDE_NOTHING) if settle else self._arrived.get()
            settle = self._take(effects)

    def give_up(self, step: Step[Any]) -> None:
        """Give up a step."""
        if step.done():
            return
        op = step._native_op  # pyright: ignore[reportPrivateUsage]
        self._steps.pop(op, None)
        self.stop_queued(step)
        self._take(self.session.abandon(op))

    def limit(self, timer: Step[None]) -> None:
        """Let a timer end every wait from now on."""
        self._limits.append(timer)

    def unlimit(self, timer: Step[None]) -> None:
        """Forget a timer."""
        self._limits.remove(timer)
        self.give_up(timer)


class LimitReached(TimeoutError):
    """A durable timeout of a ``def`` agent passed."""

    def __init__(self, timer: Step[None]) -> None:
        super().__init__("a durable timeout passed")
        self.timer = timer


class SyncAgentContext(Context[S]):
    """The context of a ``def`` agent: the same methods as ``AgentContext``, the async ones blocking."""

    _activation: SyncActivation

    def thread(self, name: str) -> SyncAgentContext[S]:
        """Return the same context on a branch of the conversation with a leaf of its own."""
        self._session.open_thread(name)
        return SyncAgentContext(self._activation, name)

    def checkpoint(self, *state: S, metadata: Mapping[str, Any] | None = None) -> None:
        """Save the state and end the segment; durable when it returns."""
        if len(state) > 1:
            raise InvalidArgument("checkpoint() takes one state")
        self._checkpoint(state, metadata).result()

    def flush(self) -> None:
        """Force a commit; all earlier ops are durable when it returns."""
        self._flush().result()

    def enable_persistence(self) -> None:
        """Keep the journal from now on, in a run that was started without: all so far is durable when it returns."""
        self._persist().result()

    def step(self) -> None:
        """Begin a step: one model call with what it asks for."""
        self._step().result()

    def messages(self) -> list[Message]:
        """Read the conversation at this point of the journal."""
        return self.load_messages()

    @overload
    def run(self, name: str, fn: Callable[Q, Coroutine[Any, Any, R]], *args: Q.args, **kwargs: Q.kwargs) -> R: ...
    @overload
    def run(self, name: str, fn: Callable[Q, R], *args: Q.args, **kwargs: Q.kwargs) -> R: ...
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
    ) -> R: ...
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
    ) -> R: ...
    def run(self, name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run any callable with these arguments as a durable inline step of this name.

        It takes ``retries``, ``retry``, ``timeout`` and ``key`` as it does in an ``async def`` agent.
        """
        return self._inline(name, fn, args, kwargs).result()

    def once(self, name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run something once per execution, across checkpoints; later calls return the first result."""
        self._activation.check_open()
        check_step("once", name, fn)
        given: list[Any] = [*args, kwargs] if kwargs else list(args)
        how, value = self._session.once_begin(name, given)
        if how == ONCE_DONE:
            return value
        if how == ONCE_RECORDED:
            return self._activation.step(value).result()
        token = once_name.set(name)
        try:
            result = fn(*args, **kwargs)
            if isinstance(result, Step):
                result = result.result()  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        finally:
            once_name.reset(token)
        return self._activation.step(self._session.once_end(name, given, checked(result))).result()

    @overload
    def map(
        self, task: Task[[T], R], items: Iterable[T], *, limit: int = 10, return_exceptions: Literal[False] = False
    ) -> list[R]: ...
    @overload
    def map(
        self, task: Task[[T], R], items: Iterable[T], *, limit: int = 10, return_exceptions: bool
    ) -> list[R | Exception]: ...
    @overload
    def map(
        self, task: str, items: Iterable[Any], *, limit: int = 10, return_exceptions: bool = False
    ) -> list[Any]: ...
    def map(self, task: Any, items: Iterable[Any], *, limit: int = 10, return_exceptions: bool = False) -> list[Any]:
        """Run a task over items, at most ``limit`` at a time, as it does in an ``async def`` agent."""
        mapped = Mapped(task, items, limit, return_exceptions)
        begun = mapped.begun()
        running: dict[int, Step[Any]] = {}
        while True:
            while len(running) < mapped.lanes and (index := next(begun, None)) is not None:
                running[index] = self.schedule_task(mapped.task(index), mapped.items[index])
            if not running:
                return mapped.ended()
            steps = list(running.values())
            self._activation.wait(steps, lambda steps=steps: any(step.done() for step in steps))
            for index in [index for index, step in running.items() if step.done()]:
                try:
                    mapped.results[index] = running.pop(index).result()
                except Exception as error:
                    mapped.fails(index, error)

    def join_all(self, *steps: Any) -> list[Any]:
        """Wait for all; then the first failure in order is raised."""
        of: list[Step[Any]] = listed(steps)
        self._activation.block_on(of)
        return [step.result() for step in of]

    def join_all_settled(self, *steps: Any) -> list[Any]:
        """Wait for all and return results and exceptions in order."""
        of: list[Step[Any]] = listed(steps)
        self._activation.block_on(of)
        return [_settled(step) for step in of]

    def select(self, *steps: Any) -> tuple[int, Any]:
        """Wait for the first and return its index and result; the others are given up."""
        of: list[Step[Any]] = some(steps, "select")
        self._activation.wait(of, lambda: any(step.done() for step in of))
        winner = next(index for index, step in enumerate(of) if step.done())
        for step in of:
            self._activation.give_up(step)
        return winner, of[winner].result()

    def wait_for_child(self, child: Child[R]) -> R:
        """Wait for a child; ``child.result()`` does the same."""
        return children_of((child,), "wait_for_child")[0].result()

    def join_children(self, *children: Any) -> list[Any]:
        """Wait for all and return their outputs; then the first failure in order is raised."""
        return self.join_all(*children)

    def join_children_settled(self, *children: Any) -> list[Any]:
        """Wait for all and return outputs and exceptions in order."""
        return self.join_all_settled(*children)

    def select_child(self, *children: Any) -> Child[Any]:
        """Wait until one has ended, and return that one, as it does in an ``async def`` agent."""
        of = children_of(children, "select_child")
        self._activation.wait(of, lambda: any(child.done() for child in of))
        return next(child for child in of if child.done())

    def wait_for_child_event(self, child: AnyChild, *, timeout: float | None = None) -> ChildEvent:
        """Wait for what a child tells next, or for its end, as it does in an ``async def`` agent."""
        return news(self._activation, child, timeout).result()

    def respond(self, child: AnyChild, request: str, value: Any = None) -> None:
        """Answer a request of a child by its id; also after a checkpoint."""
        answered(self._activation, child, request, value).result()

    def signal_child(
        self, child: AnyChild, name: str, payload: Any = None, *, delivery: Delivery = "next_step"
    ) -> None:
        """Send a child a signal; ``ExecutionClosed`` where it has ended."""
        to_child(self._activation, child, name, payload, delivery).result()

    def cancel_child(self, child: AnyChild, mode: CancelMode = "graceful", *, timeout: float | None = None) -> None:
        """Ask a child to stop, with ``timeout`` seconds to tidy up."""
        stopped(self._activation, child, mode, timeout).result()

    def handoff_to_agent(
        self,
        agent: Agent[Any, Any] | str,
        input: Any = NOT_GIVEN,
        *,
        conversation: bool = True,
        completion: Completion = "wait_for_child",
        **options: Unpack[HandoffOptions],
    ) -> NoReturn:
        """Give the run away to an agent, as in an ``async def`` agent."""
        self._activation.check_open()
        given = self._activation, agent, input, dict(options), self._thread
        try:
            handing_off(*given, conversation, completion).result()
        except Suspended:
            if self._activation.handed_off:
                raise handed_off() from None
            raise
        raise has_ended(agent)

    def signal_parent(self, name: str, payload: Any = None) -> None:
        """Tell the run that has started this one; ``NoParent`` or ``ExecutionClosed`` where it cannot hear."""
        to_parent(self._activation, name, payload).result()

    def request_from_parent(self, name: str, payload: Any = None, *, timeout: float | None = None) -> Any:
        """Ask the run that has started this one, and wait for its answer: ``SignalTimeout``, ``ParentGone``."""
        return asked(self._activation, name, payload, timeout).result()

    def sleep(self, seconds: float) -> None:
        """Sleep durably."""
        self._sleep(seconds).result()

    def timeout(self, seconds: float) -> SyncTimeout:
        """Limit the ops inside ``with`` by a durable timer; raises ``TimeoutError``."""
        return SyncTimeout(self._activation, self._sleep(seconds))

    def attach(self, ref: str) -> Any:
        """Join a detached task by its ``ref`` and return its result."""
        return self._attach(ref).result()

    @overload
    def wait_for_signal(self, name: str, type: type[T], *, timeout: float | None = None) -> T: ...
    @overload
    def wait_for_signal(self, name: str, type: None = None, *, timeout: float | None = None) -> Any: ...
    def wait_for_signal(self, name: str, type: Any = None, *, timeout: float | None = None) -> Any:
        """Wait for the next signal of a name; past ``timeout`` seconds: ``SignalTimeout``."""
        return self._signal(name, type, timeout).result()

    def signal_step(self, name: str, type: Any = None, *, timeout: float | None = None) -> Step[Any]:
        """Begin to wait for a signal, to be joined or selected with other steps."""
        return self._signal(name, type, timeout)

    def sleep_step(self, seconds: float) -> Step[None]:
        """Begin to sleep, to be joined or selected with other steps."""
        return self._sleep(seconds)

    def has_signal(self, name: str) -> bool:
        """Tell whether a signal of this name waits; recorded."""
        self._activation.check_open()
        return self._session.has_signal(name, once_name.get())

    def drain_signals(self, name: str, *, turn: bool = False) -> list[Any]:
        """Take all signals of this name that wait; with ``turn`` also those kept for the next turn."""
        self._activation.check_open()
        return self._drained(name, self._session.drain_signals(name, turn, once_name.get()))

    def check_cancellation(self) -> bool:
        """Raise ``Cancelled`` if the run was asked to stop; recorded. Returns False otherwise."""
        self._activation.check_open()
        if self._session.check_cancellation(once_name.get()):
            raise Cancelled("the run was asked to stop")
        return False

    def remaining_budget(self) -> Any:
        """Return what is left of the budget; none where there is none. Recorded."""
        self._activation.check_open()
        return self._session.remaining_budget(once_name.get())


class SyncTimeout:
    """A limit on the ops of a block, kept by the store's timer."""

    def __init__(self, activation: SyncActivation, timer: Step[None]) -> None:
        self._activation = activation
        self._timer = timer

    def __enter__(self) -> SyncTimeout:
        self._activation.limit(self._timer)
        return self

    def __exit__(self, *_: object) -> None:
        self._activation.unlimit(self._timer)


def _raise(error: BaseException) -> None:
    raise error


def _settled(step: Step[Any]) -> Any:
    try:
        return step.result()
    except Exception as error:
        return error
