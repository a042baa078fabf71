"""Children: runs of other agents that an agent starts and waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, cast

from .errors import HandedOff, InvalidArgument, InvalidTransition
from .inputs import NOT_GIVEN
from .mode import Mode, queue_of
from .scope import once_name
from .serde import checked, described
from .several import some
from .step import Step

if TYPE_CHECKING:
    from .activation import Activation
    from .serde import Rebuild

R = TypeVar("R")
Persistence = Literal["full", "minimal", "ephemeral", "local"]
"""Whether the journal of a run is kept; see ``ctx.enable_persistence``."""
Completion = Literal["wait_for_child", "immediate"]
"""When a run that was given away ends: as its successor does, or at once."""


class HandoffOptions(TypedDict, total=False):
    """How the agent that a run is given to is to be started; see ``ctx.handoff_to_agent``."""

    queue: str | None
    mode: Mode | None
    max_steps: int | None
    timeout: float | None
    start_timeout: float | None
    priority: int
    metadata: Mapping[str, str] | None
    budget: Any


class SpawnOptions(HandoffOptions, total=False):
    """How a child is to be started; see ``ctx.spawn_agent``."""

    id: str | None
    key: str | None
    on_parent_end: Literal["cancel", "detach"]
    shared_context: Literal["read_only", "conversation"] | Mapping[str, Any] | None
    persistence: Persistence


class Child(Step[R]):
    """A run that an agent has started: await it for its output. Its ``id`` is the id of the run."""

    __slots__ = ("_has_id", "_watch", "heard")

    def __init__(
        self, activation: Activation, op: int, uuid: bytes, *, what: str, rebuild: Rebuild | None, has_id: bool
    ) -> None:
        super().__init__(activation, op, uuid, what=what, rebuild=rebuild)
        self._has_id = has_id
        self._watch: asyncio.Task[R] | None = None
        self.heard = False
        """Whether its news are waited for, or nothing of it has to be: it goes on when this run ends."""

    def watch(self) -> asyncio.Task[R]:
        """Return the task by which its end is looked for and not given up: the same one each time."""
        if self._watch is None:
            self._watch = asyncio.ensure_future(self)
            self._watch.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._watch

    def detach(self) -> None:
        """Before a checkpoint: stop looking for the end of a child with an id, since a later segment joins it again.

        What another branch awaits it goes on to await, and the checkpoint is refused for that.
        """
        watchers = 0 if self._watch is None else 1
        if not self._has_id or not self.awaited or self._settled or len(self.waiters) > watchers:
            return
        self._waiters = None
        self._activation.give_up(self)
        if self._watch is not None:
            self._watch.cancel()

    @property
    def kind(self) -> str:
        """The agent that it runs."""
        return self._what

    @property
    def rebuild(self) -> Rebuild | None:
        """How a value of its output's type is made of what was stored."""
        return self._rebuild

    @property
    def named(self) -> str:
        return f"child {self._what!r}"

    @property
    def can_outlive(self) -> bool:
        return False

    @property
    def looked_after(self) -> bool:
        return self.heard


def spawned(activation: Activation, agent: Any, input: Any, options: dict[str, Any], thread: str) -> Child[Any]:
    """Start a child of an agent's run, from a thread of its conversation."""
    return _started(activation, agent, input, options, thread, "spawn_agent", SpawnOptions, None)


def handing_off(
    activation: Activation,
    agent: Any,
    input: Any,
    options: dict[str, Any],
    thread: str,
    conversation: bool,
    completion: Completion,
) -> Child[Any]:
    """Give a run away. The engine ends this copy of its code once that is durable."""
    if conversation:
        options["shared_context"] = "read_only"
    known = HandoffOptions
    # What is no completion is refused in words; None would start a child that is waited for.
    child = _started(activation, agent, input, options, thread, "handoff_to_agent", known, str(completion))
    child.heard = True
    return child


def handed_off() -> HandedOff:
    """Return what tells the code of a run that it was given away."""
    return HandedOff("the run was given to another agent, which goes on with it")


def has_ended(agent: Any) -> InvalidTransition:
    """Return the error of a run that cannot be given to a child of it which has ended."""
    return InvalidTransition(f"the run cannot be given to the child {agent!r}: it has ended")


def _started(
    activation: Activation,
    agent: Any,
    input: Any,
    options: dict[str, Any],
    thread: str,
    call: str,
    names: type[HandoffOptions],
    completion: str | None,
) -> Child[Any]:
    from .agent import Agent

    shared = options.pop("shared_context", None)
    unknown = sorted(options.keys() - names.__annotations__)
    if unknown:
        known = ", ".join(names.__annotations__)
        raise InvalidArgument(f"{call} has no option {', '.join(unknown)}; known are {known}")
    options["queue"] = queue_of(options.pop("mode", None), options.get("queue"), call)
    if isinstance(agent, Agent):
        declared = cast("Agent[Any, Any]", agent)
        kind, value, rebuild = declared.kind, declared.wire(input), declared.rebuild
        options.setdefault("timeout", declared.timeout)
        if options.get("queue") is None:
            activation.worker.meet_agent(declared)
    elif isinstance(agent, str):
        kind, value, rebuild = agent, checked(None if input is NOT_GIVEN else input), None
    else:
        raise InvalidArgument(f"{call} takes a function declared with @agent, or a kind, not {agent!r}")
    for name in ("id", "key"):
        given = options.get(name)
        if given is not None and (not isinstance(given, str) or not given):
            raise InvalidArgument(f"{call} takes a text as {name}, not {given!r}")
    metadata, budget = options.pop("metadata", None), options.pop("budget", None)
    op, uuid = activation.session.call_child(
        kind,
        value,
        metadata=dict(metadata) if metadata else None,
        budget=None if budget is None else described(budget),
        shared_context=None if shared is None else described(shared),
        thread=thread,
        hand_off=completion,
        once=once_name.get(),
        **options,
    )
    has_id = options.get("id") is not None
    child = Child[Any](activation, op, uuid, what=kind, rebuild=rebuild, has_id=has_id)
    child.heard = options.get("on_parent_end") == "detach"
    return activation.keep(child)


def children_of(given: tuple[Any, ...], call: str) -> list[Child[Any]]:
    """Return the children of a call that takes several, or one list of them."""
    found = some(given, call)
    strangers = [other for other in found if not isinstance(other, Child)]
    if strangers:
        raise InvalidArgument(f"{call} takes what spawn_agent has returned, not {strangers[0]!r}")
    return found


def leave_children(activation: Activation) -> None:
    """Before a checkpoint: give up what only looks for children that a later segment can join."""
    for step in list(activation._steps.values()):  # pyright: ignore[reportPrivateUsage]
        if isinstance(step, Child):
            step.detach()
