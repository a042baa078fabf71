"""One activation of an agent on an event loop: drives the coroutine, carries out what the engine asks.

The engine decides; this file only runs code. Its one duty beside that is to tell the engine when the agent's code is
quiet, so that outcomes are handed over one at a time, in the same order live and on replay.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from . import _native
from .agent import UnreadableState
from .branches import outside
from .codes import (
    CHECKPOINT_OP,
    EFFECT_ASK,
    EFFECT_CANCEL_TASK,
    EFFECT_DELIVER,
    EFFECT_START,
    EFFECT_WARN,
    OUTCOME_CANCELLED,
    OUTCOME_VALUE,
    OUTSIDE_SOMETHING,
)
from .ends import ends_process
from .errors import (
    Cancelled,
    FlovynError,
    NotSerializable,
    OutsideAgent,
    Suspended,
    code_of,
    consists_of,
    holds,
    message_of,
    traceback_of,
    type_name,
    unwrapped,
)
from .join import Waiters
from .log import agent_failed, attempt_failed, lost, never_awaited, warned
from .retry import failure_of
from .scope import current, in_attempt, once_name, refuse_others
from .step import Step
from .stopping import Family, Nowhere, Swallowed, Untold
from .task import Task, TaskContext, TaskLink
from .threads import called

if TYPE_CHECKING:
    from .agent import Agent
    from .serde import Rebuild
    from .worker import Worker

R = TypeVar("R")
K = TypeVar("K", bound=Step[Any])

SPINS, SPINS_AGAIN = 1_000, 100
"""Loop turns after which code that always runs and calls nothing counts as waiting for something outside: a loop over
``sleep(0)`` must not hold up what the run was told. The second counts for code known to spin."""


class OwnTask(asyncio.Task[Any]):
    """An asyncio task of ours that knows when the loop is torn down around it."""

    __slots__ = ("on_teardown",)

    on_teardown: Callable[[], None]

    def cancel(self, msg: Any | None = None) -> bool:
        # `asyncio.run` cancels what is left after the loop has stopped running; nobody else cancels from outside of it.
        if asyncio._get_running_loop() is None:  # pyright: ignore[reportPrivateUsage]
            self.on_teardown()
        return super().cancel(msg)


class InlineLink(TaskLink):
    """How an inline attempt speaks with the engine: through its run's session."""

    __slots__ = ("_attempt", "_op", "_session")

    def __init__(self, session: _native.Session, op: int, attempt: int) -> None:
        super().__init__()
        self._session = session
        self._op = op
        self._attempt = attempt

    def heartbeat(self) -> None:
        self._session.task_heartbeat(self._op)

    def progress(self, fraction: float, message: str) -> None:
        self._session.task_progress(self._op, self._attempt, fraction, message)

    def stream(self, kind: int, data: Any) -> None:
        self._session.stream(kind, data, self._op, self._attempt)


class Activation:
    """One copy of an agent in memory. Thousands may wait, so it is kept small."""

    __slots__ = (
        "__weakref__",
        "_asked",
        "_attempts",
        "_causes",
        "_concurrent",
        "_spins",
        "_spun",
        "_steps",
        "_swallowed",
        "agent",
        "branches",
        "ended",
        "handed_off",
        "id",
        "loop",
        "root",
        "sealed",
        "session",
        "state",
        "thread",
        "torn",
        "unfit",
        "worker",
    )

    def __init__(self, worker: Worker, id: int, session: _native.Session, agent: Agent[Any, Any]) -> None:
        self.worker = worker
        self.id = id
        self.session = session
        self.agent = agent
        self.loop = asyncio.get_running_loop()
        self.sealed = self.ended = False
        self.handed_off = self.torn = False
        """Whether the loop is torn down around it."""
        self.unfit: BaseException | None = None
        """What reading or writing a value as its type last raised."""
        self.branches = Family()
        self.state: Any = None
        self.root: OwnTask | None = None
        self._steps: dict[int, Step[Any]] = {}
        self._attempts: dict[int, tuple[asyncio.Task[Any], InlineLink]] = {}
        self._causes: dict[int, BaseException] = {}
        self._concurrent = False
        self._asked = False
        self._spins = 0
        self._spun = False
        self._swallowed: Swallowed | None = None
        self.thread = 0

    # ── life ────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Enter the agent's function at its top."""
        self.session.bind_thread()
        self.thread = threading.get_ident()
        context = contextvars.copy_context()
        self.root = context.run(self._make_root)
        self.root.on_teardown = self.tear
        self.root.add_done_callback(self._gone)
        self._stir()

    def _make_root(self) -> OwnTask:
        current.set(self)
        return OwnTask(self._run(), loop=self.loop, name=f"flovyn-agent-{self.agent.kind}")

    async def _run(self) -> None:
        from .context import AgentContext

        try:
            self.state = self.fitted(self.agent.initial_state, self.session.state())
            output = await self._enter(AgentContext(self))
            self._tell_unawaited()
            effects = self.fitted(stored, lambda: self.session.completed(self.agent.output(output)))
        except BaseException as error:
            if self.sealed and isinstance(error, asyncio.CancelledError):
                raise
            effects = self._ended_by(error)
        if effects is not None:
            self.act(effects)

    def _enter(self, context: Any) -> Any:
        args, kwargs = self.fitted(self.agent.arguments, self.session.input(), self._has_begun)
        return self.agent.fn(context, *args, **kwargs)

    def _has_begun(self) -> bool:
        """Whether an earlier copy of the run has got as far as to have something recorded."""
        return self.session.is_replaying() or self.session.state() is not None

    def fitted(self, make: Callable[..., R], *args: Any) -> R:
        """Read or write a value as its type: what that raises is a matter of its form, not of the agent's work."""
        try:
            return make(*args)
        except BaseException as error:
            self.unfit = error
            raise

    def _ended_by(self, error: BaseException) -> list[Any] | None:
        """Tell the engine how the function ended; none where the engine has put it away."""
        if self.sealed or consists_of(error, Suspended):
            return None
        if consists_of(error, Cancelled):
            return self.session.cancelled()
        if self.branches.untold is not None and consists_of(error, asyncio.CancelledError):
            # Branches cancel each other when they are told to stop.
            return self.session.cancelled()
        if ends_process(error):
            self.seal()
            raise error
        return self._failed(error)

    def _failed(self, error: BaseException) -> list[Any]:
        """Tell the engine of the error that the function ended with; it cannot fail."""
        error = unwrapped(error)
        agent_failed(self.agent.kind, self.session.execution_id(), error)
        code = code_of(error, "AgentFailed")
        # The class of an unreadable state is known by its code alone.
        name = code if type(error) is UnreadableState else type_name(error)
        unfit = self.unfit is not None and holds(error, self.unfit)
        return self.session.failed(code, name, message_of(error), traceback_of(error), unfit)

    def seal(self) -> None:
        """Take nothing more of the agent's code; its run goes on from its journal."""
        self.sealed = True

    def tear(self) -> None:
        """Take nothing more: the loop ends, and waits for every task of it."""
        self.sealed = self.torn = True

    def _gone(self, root: asyncio.Task[Any]) -> None:
        if not root.cancelled():
            error = root.exception()
            if error is not None and not self.sealed:
                self.loop.call_exception_handler({"message": "a flovyn activation broke", "exception": error})

    def drop(self) -> None:
        """Put the copy away without a word to the engine."""
        self._close("dropped")

    def _tell_close(self, reason: str, detail: str) -> None:
        """Say what a close is worth saying of."""
        if reason == "lost":
            lost(self.agent.kind, self.session.execution_id(), detail)
        elif reason == "finished" and detail == "PAUSED":
            self.worker.tell_paused(self.session.execution_id())
        self.ended = reason == "finished"
        self.handed_off = self.ended and detail in ("WAITING", "COMPLETED")

    def _tell_unawaited(self) -> None:
        """Say which steps the code has not awaited."""
        for step in list(self._steps.values()):
            called = step.called()
            if step.awaited or step.looked_after or (called is not None and called[0].detached):
                continue
            what = f"task {called[0].kind!r}" if called is not None else step.named or "a step of its context"
            run = self.session.execution_id()
            never_awaited(self.agent.kind, run, what, step.made_at, can_outlive=step.can_outlive)

    def _close(self, reason: str) -> None:
        self.sealed = True
        for step in self._steps.values():
            if reason == "finished":
                self.stop_queued(step)
            step.put_away()
        self._steps.clear()
        self.branches.untold = None
        for op in list(self._attempts):
            self._stop_attempt(op)
        for branch in self.branches.all():
            branch.add_done_callback(_retrieve)
            if not branch.done():
                branch.cancel()
        if self.root is not None and not self.root.done() and asyncio.current_task() is not self.root:
            self.root.cancel()
        self.worker.closed(self)

    # ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────

    def check_open(self) -> None:
        """Refuse ops of a copy that was put away, and ops that are not made by the agent's own code."""
        if self.sealed:
            branch = None
            if asyncio._get_running_loop() is self.loop:  # pyright: ignore[reportPrivateUsage]
                branch = asyncio.current_task()
                if branch is not None and branch is not self.root:
                    branch.add_done_callback(_retrieve)
            if self.ended:
                refuse_others(self)
            if not self._goes_on(branch if current.get() is self else None):
                raise Suspended("this copy of the agent was put away; its run goes on from its journal")
            # Nothing can be raised that the code would not swallow, so the call does nothing, and it comes to an await.
            # A context has the session at hand, so it is given another one.
            caller: Any = sys._getframe(1).f_locals.get("self")  # pyright: ignore[reportPrivateUsage]
            if getattr(caller, "_session", None) is self.session:
                caller._session = Nowhere(self.session)
            return
        refuse_others(self)

    def _goes_on(self, branch: Any) -> bool:
        """Whether the code of a copy that was put away does not stop."""
        if self._swallowed is None:
            self._swallowed = Swallowed()
        return self._swallowed.again(self, branch)

    def schedule(self, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Step[Any]:
        """Schedule a task: takes its slot now, starts once the code is quiet."""
        if self.sealed:
            self.check_open()
            return Step(self, 0)
        if task.origin is not None:
            task = task.called_by(self.session.execution_id())
        op, uuid = self.session.call_task(
            task.spec, task.signature.wire(args, kwargs, travels=not task.inline), task.key, once_name.get()
        )
        step: Step[Any] = Step(self, op, uuid, rebuild=task.rebuild)
        step._task = task  # pyright: ignore[reportPrivateUsage]
        if task.inline:
            args, kwargs = task.signature.given(args, kwargs)
        step._args = args  # pyright: ignore[reportPrivateUsage]
        step._kwargs = kwargs  # pyright: ignore[reportPrivateUsage]
        step._context = contextvars.copy_context()  # pyright: ignore[reportPrivateUsage]
        if task.kind not in self.worker.met:
            self.worker.meet(task)
        if task.may_return or self.session.is_replaying():
            self.worker.steps[uuid] = step
        self._steps[op] = step
        self._called()
        return step

    def schedule_native(
        self,
        kind: str,
        input: Any,
        *,
        queue: str | None = None,
        key: str | None = None,
        rebuild: Rebuild | None = None,
        made: type[Step[Any]] = Step,
    ) -> Step[Any]:
        """Schedule a task of the toolkit, for other workers with ``queue``; ``made`` is the class of its step."""
        self.check_open()
        if self.sealed:
            return Step(self, 0)
        fake = self.worker.fakes.get(kind)
        if fake is not None:
            return self.schedule(Task(fake, kind, {}), (input,), {})
        op, uuid = self.session.call_task(self.worker.spec_of(kind, queue), input, key, once_name.get())
        step = made(self, op, uuid, rebuild=rebuild)
        self._steps[op] = step
        self._called()
        return step

    def step(self, op: int, uuid: bytes = b"", *, what: str = "") -> Step[Any]:
        """Make the step of an op that was just called."""
        return self.keep(Step(self, op, uuid, what=what))

    def keep(self, step: K) -> K:
        """Know the step of an op that was just called."""
        if not self.sealed:
            self._steps[step._native_op] = step  # pyright: ignore[reportPrivateUsage]
            self._called()
        return step

    def touched(self) -> None:
        """Note a call that has no outcome."""
        self._called()

    def begin_await(self, step: Step[Any]) -> None:
        """Register an await with the engine."""
        op = step._native_op  # pyright: ignore[reportPrivateUsage]
        untold = self.branches.untold
        if untold is not None and op != CHECKPOINT_OP and untold.is_due(asyncio.current_task()):
            self.give_up(step)
            error = Cancelled("the run was asked to stop")
            untold.raises(error)
            raise error
        if op != CHECKPOINT_OP:
            self.session.await_op(op)
        self._steps[op] = step
        self.note_branch()
        self._stir()

    def give_up(self, step: Step[Any]) -> None:
        """Record that an await was given up; nothing while the engine or the loop puts the agent away."""
        if self.sealed or asyncio._get_running_loop() is not self.loop:  # pyright: ignore[reportPrivateUsage]
            return
        op = step._native_op  # pyright: ignore[reportPrivateUsage]
        self._steps.pop(op, None)
        self.stop_queued(step)
        self.act(self.session.abandon(op))
        self._stir()

    def tells(self, error: Cancelled) -> None:
        """Note an error that tells a branch to stop."""
        if self.branches.untold is not None:
            self.branches.untold.raises(error)

    def hears(self, error: Cancelled) -> None:
        """Note an error that tells the running branch to stop because it has asked; the others are told now."""
        if self.branches.untold is None and self.agent.cancellable:
            self.branches.untold = Untold((self.root, *self.branches.alive()))
        self.tells(error)
        self.told()

    def told(self) -> None:
        """Note that the running branch is told to stop."""
        if self.branches.untold is not None:
            self.branches.untold.told(asyncio.current_task())

    def block_on(self, steps: Sequence[Step[Any]]) -> None:
        """Wait in the calling thread; only agents declared with `def` may."""
        raise OutsideAgent("step.result() blocks, so it is for agents declared with `def`; write `await step` here")

    # ── quiet ───────────────────────────────────────────────────────────────────────────────────────────────────

    def branched(self) -> None:
        """Note that the code has more than one branch from now on."""
        if not self._concurrent:
            self._concurrent = True
            self.session.note_concurrent()

    def note_branch(self) -> None:
        """Note the branch that runs."""
        branch = asyncio.current_task()
        if branch is not self.root:
            self.branched()
            if branch is not None:
                self.branches.add(branch)

    def _called(self) -> None:
        if not self.sealed:
            self.note_branch()
            self._stir()

    def _stir(self) -> None:
        """Something may run now: look for quiet from here."""
        self._spins = 0
        self.worker.hub.turns.look_at(self)

    def look(self, busy: bool) -> None:
        """Tell the engine if the code is quiet: nothing of it is left to run before an outcome comes."""
        if self.sealed:
            return
        if busy:
            if self._spins < (SPINS_AGAIN if self._spun else SPINS):
                self._spins += 1
                self.worker.hub.turns.look_at(self)
                return
            self._spun = True
        beside: int | None = None
        if busy:
            beside = OUTSIDE_SOMETHING
        elif self._asked:
            beside = self._outside(thorough=self.session.is_replaying())
        elif self._concurrent and self.branches.are_few() and self._outside(thorough=False) == OUTSIDE_SOMETHING:
            # Said unasked: what is called beside such a wait is durable before it starts.
            beside = OUTSIDE_SOMETHING
        self._asked = False
        self.act(self.session.settle(self._concurrent, beside))

    def _outside(self, *, thorough: bool) -> int:
        """What may make the code go on beside the outcomes that it waits for."""
        return outside(self, Waiters(self._steps.values()), thorough=thorough)

    # ── what the engine asks ────────────────────────────────────────────────────────────────────────────────────

    def act(self, effects: list[Any]) -> None:
        """Carry out what the engine asks."""
        delivered = False
        for effect in effects:
            kind = effect[0]
            if kind == EFFECT_DELIVER:
                _, op, tag, value = effect
                step = self._steps.pop(op, None)
                if tag == OUTCOME_CANCELLED and self.branches.untold is None:
                    self.branches.untold = Untold((self.root, *self.branches.alive()))
                if step is not None:
                    if tag != OUTCOME_VALUE:
                        self.stop_queued(step)
                    step.deliver(tag, value, self._causes.pop(op, None))
                delivered = True
            elif kind == EFFECT_START:
                self._start_attempt(*effect[1:])
            elif kind == EFFECT_CANCEL_TASK:
                self._stop_attempt(effect[1])
            elif kind == EFFECT_ASK:
                self._asked = True
                self._stir()
            elif kind == EFFECT_WARN:
                warned(self.agent.kind, self.session.execution_id(), effect[1])
            else:
                self._tell_close(*effect[1:])
                self._close(effect[1])
                return
        if delivered:
            self._stir()

    def stop_queued(self, step: Step[Any]) -> None:
        """Stop what runs from the queue, in this worker, for a step that does not wait for it any more."""
        called = step.called()
        if called is not None and called[0].may_return and not called[0].detached:
            self._stop_queued(step.id.bytes)

    def _stop_queued(self, uuid: bytes) -> None:
        self.worker.stop(uuid)

    def _stop_attempt(self, op: int) -> None:
        running = self._attempts.pop(op, None)
        if running is not None:
            attempt, link = running
            link.cancelled = True
            attempt.cancel()

    def _start_attempt(self, op: int, attempt: int, kind: str, uuid: bytes) -> None:
        step = self._steps.get(op)
        context = step and step._context  # pyright: ignore[reportPrivateUsage]
        if step is None or context is None:
            self.act(
                self.session.task_failed(
                    op, attempt, "TaskFailed", "LookupError", f"nothing here runs {kind!r}", None, False, None
                )
            )
            return
        link = InlineLink(self.session, op, attempt)
        made = context.copy().run(self._make_attempt, step, op, attempt, uuid, link)
        self._attempts[op] = (made, link)

    def _make_attempt(self, step: Step[Any], op: int, attempt: int, uuid: bytes, link: InlineLink) -> OwnTask:
        current.set(None)
        in_attempt.set(True)
        once_name.set(None)
        made = OwnTask(self._attempt(step, op, attempt, uuid, link), loop=self.loop)
        made.on_teardown = self.tear
        return made

    async def _attempt(self, step: Step[Any], op: int, attempt: int, uuid: bytes, link: InlineLink) -> None:
        task: Any = step._task  # pyright: ignore[reportPrivateUsage]
        args = step._args  # pyright: ignore[reportPrivateUsage]
        kwargs = step._kwargs  # pyright: ignore[reportPrivateUsage]
        try:
            if task.signature.takes_context:
                args = (TaskContext(uuid, attempt, link), *args)
            fn = self.worker.fn_of(task, uuid)
            is_async = task.is_async if fn is task.fn else asyncio.iscoroutinefunction(fn)
            output = await called(fn, is_async, args, kwargs)
            if self.sealed or link.cancelled:
                return
            effects = stored(lambda: self.session.task_completed(op, attempt, task.signature.returned(output)))
        except BaseException as error:
            if ends_process(error):
                # The attempt is lost with the process, not failed.
                self.seal()
                raise
            if self.sealed or link.cancelled:
                return
            self._causes[op] = error
            failure = failure_of(error, task.retry_if)
            attempt_failed(task, attempt, error, not failure[4])
            effects = self.session.task_failed(op, attempt, *failure)
        finally:
            running = self._attempts.get(op)
            if running is not None and running[1] is link:
                del self._attempts[op]
        self.act(effects)

    def saved(self) -> None:
        """Forget the steps of the segment that a checkpoint ended."""
        self._steps.clear()
        self._causes.clear()


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Take note of a branch's end: nobody else will once its agent is put away."""
    if not task.cancelled():
        task.exception()


def stored(store: Callable[..., R], *args: Any) -> R:
    """Hand a result over; whatever its conversion raises says that it has no JSON form."""
    try:
        return store(*args)
    except (FlovynError, KeyboardInterrupt, OSError):
        # An `OSError` is of the file of a blob, which is no matter of form.
        raise
    except BaseException as error:
        raise NotSerializable(
            f"the result has no JSON form: its conversion raised {type_name(error)}: {message_of(error)}",
            context={"path": "$", "type": type_name(error)},
        ) from error
