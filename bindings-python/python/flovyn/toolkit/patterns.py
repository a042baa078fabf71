"""Patterns of families: agents that lead other agents, and questions to whoever has given a run its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from ..agent import Agent
from ..context import AgentContext
from ..declared import listed
from ..errors import InvalidArgument, NoParent
from ..inputs import NOT_GIVEN
from .delegates import Delegate, DelegateLike, delegate, made_delegates
from .kit import Provider
from .native_agent import NativeAgent
from .react import Budget, Decided, Mode, ReactAgent, ToolLike, react_agent

REQUEST = "escalate"
"""The request by which a child asks."""
FIELD = "answer"
"""The key of the question that a person is asked, and the field of the answer."""


def supervisor(
    name: str,
    *,
    agents: Sequence[DelegateLike],
    rounds: int | None = None,
    model: str | None = None,
    tools: Sequence[ToolLike] = (),
    handoffs: Sequence[DelegateLike] = (),
    escalates: bool = False,
    system_prompt: str | None = None,
    approvals: Decided = "ask",
    mode: Mode = "one_shot",
    max_turns: int | None = None,
    budget: Budget | None = None,
    providers: Mapping[str, Provider] | None = None,
    description: str | None = None,
) -> ReactAgent[Any]:
    """Declare an agent whose model leads others: it gives them work, several at once, and answers by itself at the end.

    In at most ``rounds`` turns (10 unless given) after a message of the user it may give out work; then it has to
    answer with what it has. The rest is as for ``react_agent``.
    """
    if not listed("agents", agents):
        raise InvalidArgument(f"the supervisor {name!r} has no agents; give it some")
    return react_agent(
        name,
        model=model,
        tools=tools,
        delegates=agents,
        handoffs=handoffs,
        escalates=escalates,
        max_rounds=rounds,
        system_prompt=system_prompt,
        approvals=approvals,
        mode=mode,
        max_turns=max_turns,
        budget=budget,
        providers=providers,
        description=description,
        _supervises=True,
    )


@dataclass(frozen=True)
class TaskReport:
    """A part of a plan that was done."""

    id: str
    worker: str
    result: str


@dataclass(frozen=True)
class PlanOutcome:
    """What a run of ``plan_and_execute`` ends with."""

    text: str
    """The answer."""
    satisfied: bool
    """Whether the planner says that it does what was asked, and meets the criteria."""
    missing: str | None
    """What is missing, where it does not."""
    replans: int
    """How often there was another plan."""
    tasks: Sequence[TaskReport]
    """The parts that were done, in the order of their ends."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> PlanOutcome:
        """Make it from what is stored."""
        tasks = tuple(TaskReport(one["id"], one["worker"], one["result"]) for one in found["tasks"])
        return cls(found["text"], found["satisfied"], found.get("missing"), found["replans"], tasks)


@dataclass(frozen=True)
class PlanInput:
    """What a run of ``plan_and_execute`` is started with, where the task is not enough."""

    task: str
    criteria: Sequence[str] = ()
    """What the answer has to meet, in words."""

    def describe(self) -> dict[str, Any]:
        """Return the input as the agent reads it."""
        return {"task": self.task, "criteria": listed("criteria", self.criteria)}


class PlanAgent(NativeAgent["str | PlanInput | Mapping[str, Any]", PlanOutcome]):
    """An agent that has a model plan what others do; ``plan_and_execute`` makes one."""

    def __init__(
        self, kind: str, described: Mapping[str, Any], agents: Sequence[Agent[Any, Any]], told: str | None
    ) -> None:
        super().__init__(kind, told)
        self._described = dict(described)
        self._agents = tuple(agents)

    @property
    def rebuild(self) -> Callable[[Any], Any]:
        return PlanOutcome.of

    def wire(self, input: Any = NOT_GIVEN) -> Any:
        """Return the value that stands for the input: a text, or an object."""
        if isinstance(input, PlanInput):
            return input.describe()
        if isinstance(input, (str, Mapping)) and input:
            return cast("Any", input)
        raise InvalidArgument(f"agent {self.kind!r} takes the task as a text, or a PlanInput, not {input!r}")

    def own_tasks(self) -> Sequence[Any]:
        return ()

    def given_work(self) -> Sequence[Agent[Any, Any]]:
        return self._agents

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"agent {self.kind!r} is not called like a function: use flovyn.run(agent, task)")

    def describe(self) -> dict[str, Any]:
        return {"planners": [self._described]}


def plan_and_execute(
    name: str,
    *,
    planner: str | ReactAgent[Any],
    workers: Sequence[DelegateLike],
    retries: int = 1,
    max_replans: int = 2,
    plan_retries: int = 2,
    max_tasks: int = 20,
    description: str | None = None,
) -> PlanAgent:
    """Declare an agent that has a model split its task into parts, which the ``workers`` do.

    ``planner`` is a model, or an agent of the built-in kind that may look around first. Its plan says which part needs
    the results of which others: the rest is done at the same time, each part as a child. A plan that cannot be done (a
    circle, a worker that is none) goes back to it, at most ``plan_retries`` times. A part that fails is tried
    ``retries`` times again. Where one fails for good, or the answer that the planner makes of the results does not meet
    the criteria, there is another plan, at most ``max_replans`` times. The input is the task, or a ``PlanInput`` with
    criteria; a run ends with a ``PlanOutcome``.
    """
    if isinstance(planner, str):
        planner = react_agent(f"{name}.planner", model=planner, description="Plans.")
    lead = delegate(planner, description=planner.description or "Plans.")
    helpers: list[Delegate] = made_delegates("workers", listed("workers", workers))
    if not helpers:
        raise InvalidArgument(f"the agent {name!r} has no workers; give it some")
    described = {
        "kind": name,
        "planner": lead.describe(),
        "workers": [helper.describe() for helper in helpers],
        "retries": retries,
        "maxReplans": max_replans,
        "planRetries": plan_retries,
        "maxTasks": max_tasks,
    }
    agents = [one.agent for one in (lead, *helpers) if one.agent is not None]
    return PlanAgent(name, described, agents, description)


async def escalate(ctx: AgentContext[Any], question: str) -> str | None:
    """Ask whoever has given this run its work: the run that has started it, else a person.

    A parent that is led by a model answers, or passes the question on. A person finds it among the questions of the
    run. Returns None where nobody answers. A run asks a person one question at a time.
    """
    try:
        answer: Any = await ctx.request_from_parent(REQUEST, {"question": question})
        return answer if answer is None or isinstance(answer, str) else str(answer)
    except NoParent:
        pass
    asked = f"{REQUEST}-{ctx.random_uuid()}"
    schema = {"type": "object", "properties": {FIELD: {"type": "string", "title": "Answer"}}, "required": [FIELD]}
    form = {"mode": "form", "message": question, "schema": schema}
    request = {"id": asked, "name": REQUEST, "server": "", "questions": {FIELD: form}, "hash": asked}
    ctx.append_entry("assistant", request, entry_type="input_request")
    while True:
        reply: Any = await ctx.wait_for_signal("input")
        if not isinstance(reply, Mapping):
            continue
        given = cast("Mapping[str, Any]", reply)
        if given.get("id") == asked and given.get("hash") == asked:
            ctx.append_entry("user", dict(given), entry_type="input")
            return _answer_of(given)


def _answer_of(reply: Any) -> str | None:
    """What a person has answered; none where they have closed the question."""
    try:
        said = reply["responses"][FIELD]
        return str(said["content"][FIELD]) if said["action"] == "accept" else None
    except (KeyError, TypeError):
        return None
