"""Workers: the part of a process that advances runs and runs tasks."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import weakref
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from . import _native
from .activation import Activation, OwnTask, stored
from .agent import Agent
from .codes import NEWS_AGENT, NEWS_EFFECTS, NEWS_TASK
from .ends import ends_process, told_to_end
from .errors import InvalidArgument, NonRetryable, NotDone
from .hub import Hub
from .log import attempt_failed, stopped
from .retry import failure_of
from .scope import current, in_attempt, once_name
from .serde import Signature
from .task import Task, TaskContext, TaskLink
from .threads import called

if TYPE_CHECKING:
    from types import TracebackType

    from .client import Client
    from .step import Step
    from .toolkit import Toolkit

CLOSE_GRACE_S = 5.0

RUN_COMES_S, LOST_S, LOOK_S = 5.0, 1.0, 0.01
"""How long an attempt waits for its run where nobody else has its function: less where it was lost with its process,
for another process may have its run. How often it looks."""


async def closed_beside(error: BaseException | None, closing: Awaitable[None]) -> None:
    """Close at the end of a block: what the block ended with stays its end, whatever goes wrong with the close."""
    try:
        await closing
    except Exception as failed:
        if error is None:
            raise
        if sys.version_info >= (3, 11):
            error.add_note(f"closing failed, too: {failed}")


class TicketLink(TaskLink):
    """How a claimed attempt speaks with the engine: through its ticket."""

    __slots__ = ("_ticket", "limit", "superseded", "timer")

    def __init__(self, ticket: _native.Ticket) -> None:
        super().__init__()
        self._ticket = ticket
        self.limit: float | None = None
        """The seconds that it has taken, where that was too long."""
        self.superseded = False
        """Whether the next attempt has begun: nobody wants to know how this one ends."""
        self.timer: asyncio.TimerHandle | None = None

    def heartbeat(self) -> None:
        self._ticket.heartbeat()

    def is_cancelled(self) -> bool:
        return self.cancelled or self._ticket.is_cancelled()

    def progress(self, fraction: float, message: str) -> None:
        self._ticket.progress(fraction, message)

    def stream(self, kind: int, data: Any) -> None:
        self._ticket.stream(kind, data)


class Attempt(NamedTuple):
    """A claimed attempt that runs here: of which task, in which task of the loop, and how it speaks with the engine."""

    uuid: bytes
    task: OwnTask
    link: TicketLink


class Worker:
    """Serves agents and tasks of a queue while it is open: an async context manager, or ``await worker.run()``.

    A kind stands for one function; two different ones of one kind are refused when the worker is made.
    """

    def __init__(
        self,
        client: Client,
        agents: Iterable[Agent[Any, Any]] = (),
        tasks: Iterable[Task[..., Any]] = (),
        *,
        queue: str = "default",
        max_agents: int = 100,
        max_tasks: int | None = None,
        max_parked: int | None = None,
        only: str | None = None,
        toolkit: Toolkit | None = None,
    ) -> None:
        self._client = client
        self._options: dict[str, Any] = {
            "queue": queue,
            "max_agents": max_agents,
            "max_tasks": max_tasks,
            "max_parked": max_parked,
            "only": only,
        }
        self.queue = queue
        self._toolkit = toolkit
        self._kit_lock = asyncio.Lock()
        self._kit: _native.Toolkit | None = None
        self._specs: dict[tuple[str, str], _native.TaskSpec] = {}
        self._agents, self._tasks = named(agents, tasks)
        self._lent: dict[str, Task[..., Any]] = {}
        """Tasks of the toolkit, by kind."""
        self._given = set(self._tasks)
        """Kinds of tasks that it was given, and has not only met."""
        self.hub: Hub
        self._native: _native.Worker | None = None
        self._activations: dict[int, Activation] = {}
        self._attempts: dict[int, Attempt] = {}
        self.steps: weakref.WeakValueDictionary[bytes, Step[Any]] = weakref.WeakValueDictionary()
        """Steps of agents here whose task may come back from the queue, by its id."""
        self._telling: set[asyncio.Task[None]] = set()
        self._closed: asyncio.Event | None = None
        self.met: set[str] = set()
        """Kinds of tasks that agents called and that are served."""
        self.fakes: dict[str, Callable[..., Any]] = {}
        """Functions that stand in for tasks in tests, by kind."""
        self.on_attempt: Callable[[str, bytes], None] | None = None
        """Told of every attempt before it starts, in tests: kind and task id."""

    def _served(self) -> list[Agent[Any, Any]]:
        """The agents, each once whatever names it has."""
        return list(dict.fromkeys(self._agents.values()))

    def _know(self, task: Task[..., Any]) -> None:
        """Know a task that nobody named by what it is called, and was called before."""
        known = self._tasks.setdefault(task.kind, task)
        for alias in task.aliases if known.fn is task.fn else ():
            old = self._tasks.setdefault(alias, task)
            if old.fn is not task.fn:
                _add(self._tasks, task)

    def _know_children(self, taken: Container[str] = ()) -> None:
        """Serve the agents of children that the code of its agents hands over, unless others have their kinds."""
        for agent in self._served():
            for child in agent.own_agents():
                for name in (child.kind, *child.aliases):
                    if name not in taken:
                        self._agents.setdefault(name, child)

    # ── life ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> Worker:
        """Begin to poll; durable work is taken on from the moment it returns."""
        if self._native is not None:
            return self
        self.hub = self._client.hub().__enter__()
        self._closed = asyncio.Event()
        self._know_children()
        native = self._native = _native.Worker(self._client.native, self.hub.native)
        kit = self._kit = _native.Toolkit(self._client.native)
        for agent in self._served():
            agent.declare_to(native)
        for agent in self._served():
            for task in agent.own_tasks():
                if agent.is_native:
                    _add(self._tasks, task)
                else:
                    self._know(task)
        self._lent = self._without_native()
        for kind in self._tasks:
            native.serve_task(kind)
        self.hub.listen(native.token, self._take)
        self._client.opened(self)
        try:
            if self._lent or self._toolkit is not None or any(agent.is_native for agent in self._served()):
                await self._serve_kit(kit, self._agents, self._tasks, self._lent)
            await self.hub.call(native.start, self._client.native, kit, **self._options)
        except BaseException:
            await self.close(0)
            raise
        return self

    @property
    def agent_kinds(self) -> list[str]:
        """The names of the agents that it serves."""
        return sorted(self._agents)

    @property
    def is_open(self) -> bool:
        """Whether it serves."""
        return self._native is not None

    async def replace(self, agents: Iterable[Agent[Any, Any]], tasks: Iterable[Task[..., Any]]) -> None:
        """Serve agents and tasks from now on, in the place of what it serves under the same kinds; see ``shared``."""
        new = Worker(self._client, agents, tasks)
        new._know_children(self._agents)
        for agent in new._served():
            old = self._agents.get(agent.kind)
            if old is not None and old.is_native != agent.is_native:
                raise InvalidArgument(
                    f"agent {agent.kind!r} is {_origin(agent)}, and the one in whose place it would be served is "
                    f"{_origin(old)}; give it another kind"
                )
            for task in agent.own_tasks():
                if agent.is_native:
                    _add(new._tasks, task)
                else:
                    new._know(task)
        lent = new._without_native()
        if (native := self._native) is not None and self._kit is not None:
            served, known = self._agents | new._agents, self._tasks | new._tasks
            if lent or any(agent.is_native for agent in new._served()):
                # It may be refused; then all stays as it is.
                async with self._kit_lock:
                    await self._serve_kit(self._kit, served, known, self._lent | lent)
                native = self._native
        if native is None:
            raise InvalidArgument("the worker was closed; ask for the client anew")
        self._lent |= lent
        self._specs.clear()
        self._given |= new._given
        self._agents |= new._agents
        for agent in new._served():
            agent.declare_to(native)
        for name, task in new._tasks.items():
            if name in new._given or name not in self._given:
                self._tasks[name] = task
                native.serve_task(name)
        # The new code may call new functions of the kinds that the old one has called.
        self.met.clear()
        native.evict()
        native.nudge()

    def _without_native(self) -> dict[str, Task[..., Any]]:
        """Take the tasks of the toolkit out of those that it serves itself."""
        lent = {kind: task for kind, task in self._tasks.items() if task.is_native}
        for kind in lent:
            del self._tasks[kind]
        self._given -= lent.keys()
        return lent

    async def _serve_kit(
        self,
        kit: _native.Toolkit,
        agents: dict[str, Agent[Any, Any]],
        tasks: dict[str, Task[..., Any]],
        lent: dict[str, Task[..., Any]],
    ) -> None:
        from .toolkit.native import serve_kit

        served = list(dict.fromkeys(agents.values()))
        await serve_kit(kit, self.hub, self._client.native, served, lent.values(), self._toolkit, tasks)

    async def close(self, grace: float = CLOSE_GRACE_S) -> None:
        """Stop: runs are put away and given back, running tasks get ``grace`` seconds."""
        native, self._native = self._native, None
        if native is None or self._client.origin.is_elsewhere:
            return
        try:
            await self.hub.call(native.close, grace)
            roots = [activation.root for activation in self._activations.values() if activation.root is not None]
            running = [attempt.task for attempt in self._attempts.values()]
            for task in running:
                task.cancel()
            others = {task for task in (*roots, *running) if task is not asyncio.current_task()}
            if others:
                await asyncio.wait(others, timeout=grace)
            kit, self._kit = self._kit, None
            if kit is not None:
                await self.hub.call(kit.close)
        finally:
            self.hub.forget(native.token)
            self._client.gone(self)
            if self._closed is not None:
                self._closed.set()
            self.hub.__exit__()

    async def run(self) -> None:
        """Serve until the client or the worker is closed, this is cancelled, or the process is asked to end (SIGTERM).

        However it ends, runs are put away and given back at once, instead of when their lease is over.
        """
        asked = asyncio.Event()
        with told_to_end(asked.set):
            await self.start()
            assert self._closed is not None
            ends = [asyncio.ensure_future(event.wait()) for event in (self._closed, asked)]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                await self.close()

    async def __aenter__(self) -> Worker:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await closed_beside(error, self.close())

    # ── what agents ask ─────────────────────────────────────────────────────────────────────────────────────────

    def meet_agent(self, agent: Agent[Any, Any]) -> None:
        """Serve the agent of a child that an agent starts, unless another has its kind."""
        if self._native is None or agent.kind in self._agents:
            return
        for name in (agent.kind, *agent.aliases):
            self._agents.setdefault(name, agent)
        if not agent.is_native:
            return agent.declare_to(self._native)
        from .toolkit.native import serve_met

        self._beside(serve_met(self._serve_kit_anew()))

    async def _serve_kit_anew(self) -> None:
        async with self._kit_lock:
            if self._kit is not None:
                await self._serve_kit(self._kit, self._agents, self._tasks, self._lent)
        if self._native is not None:
            self._native.nudge()

    def meet(self, task: Task[..., Any]) -> None:
        """Serve a task that an agent called, so that its later attempts find it here."""
        if task.fn is _elsewhere and task.kind not in self.fakes:
            return
        self.met.add(task.kind)
        for name in (task.kind, *task.aliases):
            if name not in self._given or name not in self._tasks:
                self._tasks[name] = task
        if self._native is not None and (task.inline or task.spec.queue in (None, self.queue)):
            for name in (task.kind, *task.aliases):
                self._native.serve_task(name)

    def spec_of(self, kind: str, queue: str | None = None) -> _native.TaskSpec:
        """Return how a task of the toolkit is scheduled, for this worker unless ``queue`` names others."""
        queue = queue or self.queue
        known = self._specs.get((kind, queue))
        if known is None:
            known = None if self._kit is None else self._kit.spec(kind, queue)
            if known is None:
                from .toolkit.native import not_served

                raise not_served(kind, () if self._kit is None else self._kit.task_kinds())
            self._specs[kind, queue] = known
        return known

    def task_of(self, kind: str) -> Task[..., Any]:
        """Return the task of a kind; one that runs elsewhere if none is served here."""
        return self._tasks.get(kind) or Task(_elsewhere, kind, {"queue": self.queue}, signature=_ONE_INPUT)

    def fn_of(self, task: Task[..., Any], uuid: bytes) -> Callable[..., Any]:
        """Return the function that an attempt of a task runs."""
        if self.on_attempt is not None:
            self.on_attempt(task.kind, uuid)
        return self.fakes.get(task.kind, task.fn) if self.fakes else task.fn

    def abandon(self) -> None:
        """Drop everything as a killed process would: nothing is reported, nothing is given back."""
        native, self._native = self._native, None
        if native is None:
            return
        for activation in list(self._activations.values()):
            activation.drop()
        for attempt in list(self._attempts.values()):
            attempt.link.cancelled = True
            attempt.task.cancel()
        self.hub.forget(native.token)
        self._client.gone(self)
        if self._closed is not None:
            self._closed.set()
        self.hub.__exit__()

    def tell_paused(self, run: str) -> None:
        """Say why a run was paused; who runs one alone says so himself."""
        if self._options["only"] is None and not self.hub.loop.is_closed():
            self._beside(stopped(self._client, run))

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        # In a context of its own: it is no branch of the agent.
        task = contextvars.Context().run(self.hub.loop.create_task, work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def closed(self, activation: Activation) -> None:
        """Forget an activation."""
        self._activations.pop(activation.id, None)

    # ── what the engine asks ────────────────────────────────────────────────────────────────────────────────────

    def _take(self, news: tuple[Any, ...]) -> None:
        kind = news[0]
        if kind == NEWS_EFFECTS:
            activation = self._activations.get(news[1])
            if activation is not None:
                activation.act(news[2])
        elif kind == NEWS_AGENT:
            self._activate(*news[1:])
        elif kind == NEWS_TASK:
            self._run_task(*news[1:])
        else:
            attempt = self._attempts.get(news[1])
            if attempt is not None:
                self._stop(attempt)

    def stop(self, uuid: bytes) -> None:
        """Stop the attempts of a task whose result nobody waits for any more."""
        for attempt in self._running(uuid):
            self._stop(attempt)

    def _running(self, uuid: bytes) -> list[Attempt]:
        if not self._attempts:
            return []
        return [attempt for attempt in self._attempts.values() if attempt.uuid == uuid]

    @staticmethod
    def _stop(attempt: Attempt) -> None:
        if not attempt.link.cancelled:
            attempt.link.cancelled = True
            attempt.task.cancel()

    def _time_out(self, attempt: Attempt, limit: float) -> None:
        attempt.link.limit = limit
        self._stop(attempt)

    def _activate(self, id: int, session: _native.Session, kind: str) -> None:
        agent = self._agents[kind]
        if agent.is_async:
            activation = Activation(self, id, session, agent)
        else:
            from .blocking import SyncActivation

            activation = SyncActivation(self, id, session, agent)
        self._activations[id] = activation
        activation.start()

    def _run_task(
        self, id: int, ticket: _native.Ticket, kind: str, input: Any, uuid: bytes, attempt: int, reconcile: bool
    ) -> None:
        link = TicketLink(ticket)
        for earlier in self._running(uuid):
            # The store has given it up: it took too long, or its lease ran out.
            earlier.link.superseded = True
            self._stop(earlier)
        step = self.steps.get(uuid)
        called = None if step is None else step.called()
        context = contextvars.copy_context()
        own: Task[..., Any] | None = None
        if called is not None and (called[0].inline or called[0].is_of_run):
            # Functions of other runs may have its kind.
            own, context = called[0], called[1].copy()

        def make() -> OwnTask:
            current.set(None)
            in_attempt.set(True)
            once_name.set(None)
            running = self._attempt(id, ticket, link, own, kind, input, uuid, attempt, reconcile)
            return OwnTask(running, loop=self.hub.loop)

        made = context.run(make)
        made.on_teardown = ticket.released
        running = self._attempts[id] = Attempt(uuid, made, link)
        limit = None if called is None else called[0].timeout
        if limit is not None:
            # The store counts too. Without this the attempt would go on until the worker next speaks with it.
            link.timer = self.hub.loop.call_later(limit, self._time_out, running, limit)

    async def _attempt(
        self,
        id: int,
        ticket: _native.Ticket,
        link: TicketLink,
        own: Task[..., Any] | None,
        kind: str,
        input: Any,
        uuid: bytes,
        attempt: int,
        reconcile: bool,
    ) -> None:
        task = own or self._tasks[kind]
        try:
            if own is None and task.is_of_run:
                own = await self._of_run(task, uuid)
                if own is None:
                    return ticket.released()
                task = own
            reconciles = reconcile and task.reconcile is not None
            fn = cast("Callable[..., Any]", task.reconcile) if reconciles else self.fn_of(task, uuid)
            args, kwargs = task.signature.unwire(input)
            if not reconciles and task.signature.takes_context:
                args = [TaskContext(uuid, attempt, link), *args]
            output = await called(fn, asyncio.iscoroutinefunction(fn), tuple(args), kwargs)
            if not link.superseded:
                stored(lambda: ticket.completed(task.signature.returned(output)))
        except NotDone:
            ticket.not_done()
        except BaseException as error:
            if ends_process(error):
                ticket.released()
                raise
            self._failed(ticket, link, task, attempt, error)
        finally:
            if link.timer is not None:
                link.timer.cancel()
            self._attempts.pop(id, None)

    async def _of_run(self, known: Task[..., Any], uuid: bytes) -> Task[..., Any] | None:
        """Return the task as its own run has declared it; none where that run does not come here.

        ``known`` is what another run has declared under its kind.
        """
        for _ in range(round((LOST_S if known.inline else RUN_COMES_S) / LOOK_S)):
            await asyncio.sleep(LOOK_S)
            step = self.steps.get(uuid)
            called = None if step is None else step.called()
            if called is not None:
                return called[0]
        if known.inline:
            # Its run is taken up by somebody, who calls it again.
            return None
        raise NonRetryable(
            f"task {known.kind!r} is declared inside an agent's function, and its run is not in this process: nobody "
            "here has the function that it stands for. Declare it outside of the agent, or without a queue"
        )

    def _failed(
        self, ticket: _native.Ticket, link: TicketLink, task: Task[..., Any], attempt: int, error: BaseException
    ) -> None:
        if link.superseded:
            return
        if not issubclass(type(error), asyncio.CancelledError):
            failure = failure_of(error, task.retry_if)
            attempt_failed(task, attempt, error, not failure[4])
            ticket.failed(*failure)
        elif link.limit is not None:
            message = f"task {task.kind!r} ran longer than {link.limit:g} s and was stopped"
            ticket.failed("TaskTimeout", "TaskTimeout", message, None, True, None)
        elif link.is_cancelled():
            ticket.cancelled()
        elif self._native is None:
            ticket.released()
        else:
            ticket.failed(*failure_of(error))


def named(
    agents: Iterable[Agent[Any, Any]], tasks: Iterable[Task[..., Any]]
) -> tuple[dict[str, Agent[Any, Any]], dict[str, Task[..., Any]]]:
    """Return agents and tasks by all their names; refuse what is neither, and two functions of one name."""
    known_agents: dict[str, Agent[Any, Any]] = {}
    known_tasks: dict[str, Task[..., Any]] = {}
    for agent in agents:
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"agents= takes functions declared with @agent, not {agent!r}")
        _add(known_agents, agent)
    for task in tasks:
        if not isinstance(task, Task):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"tasks= takes functions declared with @task, not {task!r}")
        _add(known_tasks, task)
    return known_agents, known_tasks


def _add(known: dict[str, Any], new: Any) -> None:
    for name in (new.kind, *new.aliases):
        old = known.get(name)
        if old is not None and old.fn is not new.fn:
            claimed = "kind" if name == old.kind == new.kind else "name"
            raise InvalidArgument(
                f"two different functions have the {claimed} {name!r}: {_where(old.fn)} and {_where(new.fn)}; "
                "give one of them kind=, and a name of before to one of them alone"
            )
        known[name] = new


def _origin(agent: Agent[Any, Any]) -> str:
    return "of the toolkit" if agent.is_native else "a function"


def _where(fn: Any) -> str:
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', fn)}"


async def _elsewhere(input: Any = None) -> Any:
    raise NotImplementedError("this task runs in another worker")


_ONE_INPUT = Signature(_elsewhere, "TaskContext")

AgentList = Sequence[Agent[Any, Any]]
TaskList = Sequence[Task[..., Any]]
