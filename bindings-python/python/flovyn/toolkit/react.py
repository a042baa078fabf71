"""The built-in agent from Python: a model, its tools and a conversation in a loop, durable by construction."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar, cast

from ..agent import Agent
from ..declared import listed
from ..errors import InvalidArgument
from ..inputs import NOT_GIVEN
from ..task import Task
from .approvals import ApprovalPolicy
from .delegates import Delegate, DelegateLike, made_delegates
from .kit import Provider, Toolkit, absolute
from .native import Via
from .native_agent import NativeAgent
from .output import RETRIES, spec_of, value_of
from .tool import Tool, made_tool

if TYPE_CHECKING:
    from typing_extensions import TypeVar as _TypeVar

    T = _TypeVar("T", default=Any)
    O = _TypeVar("O", default=Any)  # noqa: E741 - the output
else:
    T = TypeVar("T")
    O = TypeVar("O")  # noqa: E741 - the output

Decided = Literal["ask", "allow", "deny"] | ApprovalPolicy
"""Which calls need a person."""
Thinking = Literal["off", "minimal", "low", "medium", "high", "max"]
"""How long a model thinks."""
Mode = Literal["one_shot", "chat"]
"""What follows the model's last word: the end, or the user's next message."""
StopReason = Literal["end", "length", "refusal", "max_turns", "budget", "interrupted", "invalid_output", "error"]
"""Why a run stopped."""
ToolLike = str | Tool | Task[..., Any] | Callable[..., Any] | Agent[Any, Any] | Delegate
"""A host or MCP tool by name (``mcp__server__*`` is all of a server), a task of one's own, or an agent, which is a
delegate then."""


@dataclass(frozen=True)
class ModelUsage:
    """What the calls of one model used."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None
    """None where a price is unknown; unknown is not free."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> ModelUsage:
        """Make it from what is stored."""
        micros = found.get("cost_micros")
        names = ("calls", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
        counts = {name: int(found.get(name) or 0) for name in names}
        return cls(**counts, cost_usd=None if micros is None else micros / 1_000_000)


@dataclass(frozen=True)
class RunOutcome(Generic[T]):
    """What a run of the agent ends with."""

    text: str
    """The model's last words."""
    stop_reason: StopReason
    turns: int
    """Model calls that got an answer, without those of compactions."""
    model: str
    """The model that spoke last, as ``provider/model``."""
    usage: Mapping[str, ModelUsage]
    """Tokens and cost by ``provider/model``."""
    output: T = None  # pyright: ignore[reportAssignmentType]
    """The answer as a value of the agent's ``output``; none where the run has stopped before."""

    @classmethod
    def of(cls, found: Mapping[str, Any], output: Any = None) -> RunOutcome[Any]:
        """Make it from what is stored, the answer as a value of the type ``output``."""
        model = found["model"]
        return cls(
            text=found["text"],
            stop_reason=found["stopReason"],
            turns=found["turns"],
            model=f"{model['provider']}/{model['modelId']}",
            usage={name: ModelUsage.of(usage) for name, usage in found["usage"].items()},
            output=value_of(output, found.get("output")),
        )


@dataclass(frozen=True)
class Budget:
    """What a run may use; what is not given is without limit."""

    max_tokens: int | None = None
    """Tokens in all: prompts, cached ones included, and answers."""
    max_cost_usd: float | None = None
    """Calls of unknown price do not count."""
    max_calls: int | None = None
    max_tokens_per_call: int | None = None

    def describe(self) -> dict[str, Any]:
        """Return the budget as the agent reads it."""
        micros = None if self.max_cost_usd is None else round(self.max_cost_usd * 1_000_000)
        return _given(
            maxTokens=self.max_tokens,
            maxCostMicros=micros,
            maxCalls=self.max_calls,
            maxTokensPerCall=self.max_tokens_per_call,
        )


@dataclass(frozen=True)
class Outage:
    """How long a run waits for models that cannot be reached or refuse for the moment, and what it does then."""

    max_wait: float | str = "6h"
    """Seconds, or a text such as ``"90s"``, ``"15m"``, ``"6h"`` or ``"2d"``."""
    then: Literal["pause", "fail"] = "pause"
    """A run that is paused makes its last call again when it is resumed."""

    def describe(self) -> dict[str, Any]:
        """Return the policy as the agent reads it."""
        return {"maxWait": self.max_wait, "then": self.then}


@dataclass(frozen=True)
class ResultLimits:
    """How much of a tool's result a model is shown. It reads the rest with ``read_result``."""

    max_bytes: int | None = None
    """50 KB unless given."""
    max_lines: int | None = None
    """2,000 unless given."""

    def describe(self) -> dict[str, Any]:
        """Return the limits as the agent reads them."""
        return _given(maxBytes=self.max_bytes, maxLines=self.max_lines)


@dataclass(frozen=True)
class Compaction:
    """How a full window is made room in; what is not given is as usual."""

    enabled: bool | None = None
    window: int | None = None
    """The model's window in tokens, where it shall be taken for another than is known."""
    reserve_tokens: int | None = None
    """Tokens that are kept free for the next answer."""
    keep_recent_tokens: int | None = None
    """The newest tokens that stay as they are."""

    def describe(self) -> dict[str, Any]:
        """Return the settings as the agent reads them."""
        return _given(
            enabled=self.enabled,
            window=self.window,
            reserveTokens=self.reserve_tokens,
            keepRecentTokens=self.keep_recent_tokens,
        )


@dataclass(frozen=True)
class RunInput:
    """What a run is started with, where a prompt is not enough. What is not given is as the agent was declared."""

    prompt: str = ""
    model: str | None = None
    system_prompt: str | None = None
    tools: Sequence[str] | None = None
    """The tools of the agent that this run may use, by name; all unless given."""
    parts: Sequence[Mapping[str, Any]] = ()
    """Images and documents that go with the prompt."""
    mode: Mode | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    via: Via | None = None
    """With ``"parent"``, the workers of the run that has started this one make its model calls: it needs no key."""
    thinking: Thinking | None = None
    fallback: Sequence[str] | None = None
    parallel_tools: int | None = None
    budget: Budget | None = None
    compaction: Compaction | None = None
    results: ResultLimits | None = None
    retry: Outage | None = None
    working_directory: str | os.PathLike[str] | None = None
    approvals: ApprovalPolicy | None = None
    """May be stricter than the agent's, never laxer."""
    output: Any = None
    """The form of this run's answer: a type or a JSON Schema."""
    output_retries: int = RETRIES
    """How often the model is asked again where its answer does not have it."""

    def describe(self) -> dict[str, Any]:
        """Return the input as the agent reads it."""
        return _given(
            userPrompt=self.prompt,
            model=self.model,
            systemPrompt=self.system_prompt,
            tools=None if self.tools is None else listed("tools", self.tools),
            userParts=[dict(part) for part in listed("parts", self.parts)] or None,
            config=_config(
                mode=self.mode,
                max_turns=self.max_turns,
                max_tokens=self.max_tokens,
                temperature=self.temperature,
                via=self.via,
                thinking=self.thinking,
                fallback=self.fallback,
                parallel_tools=self.parallel_tools,
                budget=self.budget,
                compaction=self.compaction,
                results=self.results,
                output=spec_of(self.output, self.output_retries),
                retry=self.retry,
            )
            or None,
            workingDirectory=absolute(self.working_directory),
            approvals=None if self.approvals is None else self.approvals.describe(),
        )


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _config(
    *,
    mode: Mode | None,
    max_turns: int | None,
    max_tokens: int | None,
    temperature: float | None,
    via: Via | None,
    thinking: Thinking | None,
    fallback: Sequence[str] | None,
    parallel_tools: int | None,
    budget: Budget | None,
    compaction: Compaction | None,
    results: ResultLimits | None,
    output: dict[str, Any] | None,
    retry: Outage | None,
    max_rounds: int | None = None,
) -> dict[str, Any]:
    return _given(
        mode=mode,
        maxTurns=max_turns,
        maxTokens=max_tokens,
        temperature=temperature,
        via=via,
        thinking=thinking,
        fallback=None if fallback is None else listed("fallback", fallback),
        parallelTools=parallel_tools,
        budget=None if budget is None else budget.describe(),
        compaction=None if compaction is None else compaction.describe(),
        results=None if results is None else results.describe(),
        output=output,
        maxRounds=max_rounds,
        retry=None if retry is None else retry.describe(),
    )


@dataclass
class Declared:
    """An agent as the kit reads it, and what its worker has to serve beside it."""

    agent: dict[str, Any]
    toolkit: Toolkit
    tools: list[Tool] = field(default_factory=list[Tool])
    agents: list[Agent[Any, Any]] = field(default_factory=list[Agent[Any, Any]])
    """Those that its model may give work to."""


class ReactAgent(NativeAgent["str | RunInput | Mapping[str, Any] | None", RunOutcome[T]]):
    """An agent of the built-in kind; ``react_agent`` makes one."""

    def __init__(self, kind: str, declared: Declared, description: str | None, output: Any = None) -> None:
        super().__init__(kind, description)
        self._declared = declared
        self._output = output

    @property
    def rebuild(self) -> Callable[[Any], Any]:
        # After a handoff the run may end with what a function returned.
        return lambda found: RunOutcome.of(found, self._output) if _is_outcome(found) else found

    @property
    def tools(self) -> Sequence[Tool]:
        """Its tools that are tasks of one's own."""
        return tuple(self._declared.tools)

    def wire(self, input: Any = NOT_GIVEN) -> Any:
        """Return the value that stands for the input: a prompt, or an object."""
        if isinstance(input, RunInput):
            return input.describe()
        if input is NOT_GIVEN or input is None:
            return ""
        if isinstance(input, (str, Mapping)):
            return cast("Any", input) or ""
        raise InvalidArgument(
            f"agent {self.kind!r} takes a prompt, a RunInput or its JSON, not a {type(input).__qualname__}"
        )

    def own_tasks(self) -> list[Task[..., Any]]:
        return [tool.task for tool in self._declared.tools]

    def given_work(self) -> Sequence[Agent[Any, Any]]:
        return tuple(self._declared.agents)

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            f"agent {self.kind!r} is not called like a function: use flovyn.run(agent, prompt) or "
            "client.start(agent, prompt)"
        )

    def describe(self) -> dict[str, Any]:
        return {**self._declared.toolkit.describe(), "agents": [self._declared.agent]}


def _is_outcome(found: Any) -> bool:
    return isinstance(found, Mapping) and "stopReason" in found and "turns" in found


def react_agent(
    name: str = "react-agent",
    *,
    model: str | None = None,
    tools: Sequence[ToolLike] = (),
    delegates: Sequence[DelegateLike] = (),
    handoffs: Sequence[DelegateLike] = (),
    escalates: bool = False,
    max_rounds: int | None = None,
    system_prompt: str | None = None,
    approvals: Decided = "ask",
    mode: Mode = "one_shot",
    max_turns: int | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    via: Via | None = None,
    thinking: Thinking = "off",
    fallback: Sequence[str] = (),
    parallel_tools: int | None = None,
    budget: Budget | None = None,
    compaction: Compaction | None = None,
    results: ResultLimits | None = None,
    retry: Outage | None = None,
    working_directory: str | os.PathLike[str] | None = None,
    roots: Sequence[str | os.PathLike[str]] = (),
    sandbox: bool | None = None,
    network: bool | None = None,
    fetch_allowed_hosts: Sequence[str] = (),
    fetch_private_hosts: Sequence[str] = (),
    add_dirs: Sequence[str | os.PathLike[str]] = (),
    variables: Sequence[str] = (),
    caches: Literal["private", "user"] | None = None,
    mcp_servers: Mapping[str, Mapping[str, Any]] | None = None,
    providers: Mapping[str, Provider] | None = None,
    records: str | os.PathLike[str] | None = None,
    description: str | None = None,
    output: type[O] | Mapping[str, Any] | None = None,
    output_retries: int = RETRIES,
    _supervises: bool = False,
) -> ReactAgent[O]:
    """Declare an agent of the built-in kind: a model that works with tools until it has said what it had to say.

    Take it like any agent: ``flovyn.run(assistant, "prompt", id="…")``, ``client.start(assistant, "prompt")``,
    ``client.worker(agents=[assistant])``. A run's input is a prompt, or a ``RunInput``; it ends with a ``RunOutcome``.

    ``model`` is ``provider/model``, with ``fallback`` for where it fails. ``tools`` are host tools (``read``,
    ``write``, ``edit``, ``bash``, ``grep``, ``find``, ``run-sandbox``, ``todo``, ``fetch``) and MCP tools by name, and
    tasks of one's own. ``delegates`` are agents that the model may give work to: each is a tool that starts a child,
    and its answer is the result. ``handoffs`` are agents that may go on with the conversation in its place, by the tool
    ``transfer_to_NAME``. Both take agents of either kind, and ``delegate(agent, …)`` for options.
    In ``max_rounds`` turns after a message of the user, unless there is no limit, the model may give work to delegates.
    With ``escalates`` it may ask whoever has given it its work: the run that has started it, else a person.
    ``approvals`` says which calls need a person: with ``"ask"`` those that change or run something, with ``"allow"``
    none; with ``"deny"`` such calls never run. With ``mode="chat"`` the run waits for the next ``userMessage`` signal.
    With ``via="parent"`` the workers of the run that has started it make its model calls: it needs no key of its own.
    ``retry`` says how long an outage of the models is waited for, six hours unless given, and what follows then;
    ``results`` how much of a tool's result the model is shown, ``compaction`` how a full window is made room in.
    With ``output``, a type (pydantic model, dataclass, ``TypedDict``, ``list[int]``, …) or a JSON Schema, the run's
    answer is a value of it, ``outcome.output``. An answer that does not fit is asked for again, at most
    ``output_retries`` times; then the run fails with the type ``invalid_output``.
    The rest says where tools work and what they may use, for all that its worker serves; see ``Toolkit``.
    """
    own: list[Tool] = []
    offered: list[Any] = []
    helpers = made_delegates("delegates", listed("delegates", delegates))
    successors = made_delegates("handoffs", listed("handoffs", handoffs))
    for given in listed("tools", tools):
        if isinstance(given, str):
            offered.append(given)
        elif isinstance(given, (Agent, Delegate)):
            helpers += made_delegates("tools", [given])
        else:
            own.append(made_tool(given))
            offered.append(own[-1].describe())
    agent = _given(
        kind=name,
        model=model,
        systemPrompt=system_prompt,
        tools=offered,
        delegates=[helper.describe() for helper in helpers] or None,
        handoffs=[successor.describe() for successor in successors] or None,
        escalates=escalates or None,
        supervises=_supervises or None,
        approvals=approvals if isinstance(approvals, str) else approvals.describe(),
        config=_config(
            mode=mode,
            max_turns=max_turns,
            max_tokens=max_tokens,
            temperature=temperature,
            via=via,
            thinking=thinking,
            fallback=fallback,
            parallel_tools=parallel_tools,
            budget=budget,
            compaction=compaction,
            results=results,
            output=spec_of(output, output_retries),
            retry=retry,
            max_rounds=max_rounds,
        ),
        workingDirectory=absolute(working_directory),
    )
    toolkit = Toolkit(
        roots=roots,
        sandbox=sandbox,
        network=network,
        fetch_allowed_hosts=fetch_allowed_hosts,
        fetch_private_hosts=fetch_private_hosts,
        add_dirs=add_dirs,
        variables=variables,
        caches=caches,
        mcp_servers=cast("Mapping[str, Mapping[str, Any]]", mcp_servers or {}),
        providers=providers or {},
        records=records,
    )
    given_work = [one.agent for one in (*helpers, *successors) if one.agent is not None]
    return ReactAgent(name, Declared(agent, toolkit, own, given_work), description, output)
