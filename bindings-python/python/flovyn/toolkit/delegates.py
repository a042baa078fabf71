"""Agents that an agent of the built-in kind may give work to: what its models are shown of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from ..agent import Agent
from ..errors import InvalidArgument
from ..serde import described
from .schema import description_of, parameters_of
from .tool import Effect

_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,52}$")


@dataclass(frozen=True)
class Delegate:
    """An agent as the model of another one sees it; ``delegate`` makes one."""

    agent: Agent[Any, Any] | None
    """The agent, which whoever serves the other one serves too; none for one that is named by its kind."""
    kind: str
    name: str
    """The name that models use; a handoff is ``transfer_to_NAME``."""
    description: str
    """When to give it work."""
    options: Mapping[str, Any]
    """How a run of it is started, as the kit reads it."""

    def describe(self) -> dict[str, Any]:
        """Return the agent as the kit reads it."""
        return {"kind": self.kind, "name": self.name, "description": self.description, **self.options}


DelegateLike = Agent[Any, Any] | Delegate
"""An agent, or one with options."""


def delegate(
    agent: Agent[Any, Any] | str,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | None = None,
    budget: Any = None,
    timeout: float | None = None,
    max_steps: int | None = None,
    queue: str | None = None,
    shared_context: Literal["read_only", "conversation"] | Mapping[str, Any] | None = None,
) -> Delegate:
    """Make an agent one that ``react_agent(delegates=…)`` or ``react_agent(handoffs=…)`` takes, with options.

    ``agent`` is an agent of either kind, or the kind of one that other workers serve: that gets a text.
    Models know it by ``name`` (its kind unless given), and when to give it work by ``description`` (its own unless
    given). ``budget`` is a part of the run's budget that is its alone, and ``shared_context`` what it is given of the
    conversation (a handoff gives all of it). ``effect`` is what approvals go by: ``read`` unless given, since the agent
    has approvals of its own. The rest is as for ``ctx.spawn_agent``.
    """
    kind = agent if isinstance(agent, str) else agent.kind
    shown = name or re.sub(r"[^a-zA-Z0-9_-]", "_", kind)
    if not _NAME.match(shown):
        raise InvalidArgument(f"the agent {kind!r} is named {shown!r} as a tool; use 1 to 52 letters, digits, _ and -")
    own = None if isinstance(agent, str) else agent.description
    told = description or description_of(inspect.cleandoc(own or ""))
    if not told:
        how = "" if isinstance(agent, str) else "declare it with description=…, or "
        raise InvalidArgument(
            f"the agent {kind!r} has no description, so a model would not know when to give it work; {how}write "
            f"delegate({kind!r}, description=…)"
        )
    if effect is not None and effect not in get_args(Effect):
        raise InvalidArgument(f"the effect of the agent {kind!r} is {effect!r}; write 'read', 'write' or 'exec'")
    if timeout is None and isinstance(agent, Agent):
        timeout = agent.timeout
    options: dict[str, Any] = {
        **({} if isinstance(agent, str) else _taken(agent)),
        "effect": effect,
        "budget": None if budget is None else described(budget),
        "timeoutMs": None if timeout is None else round(timeout * 1_000),
        "maxSteps": max_steps,
        "queue": queue,
        "sharedContext": None if shared_context is None else described(shared_context),
    }
    given = {key: value for key, value in options.items() if value is not None}
    return Delegate(agent if isinstance(agent, Agent) else None, kind, shown, told, given)


def _taken(agent: Agent[Any, Any]) -> dict[str, Any]:
    """What a run of it is started with."""
    if agent.is_native:
        return {"takesPrompt": True}
    signature = agent.signature
    # Without an input it gets none, whatever the model says.
    argument = signature.names[0] if signature.names else "input"
    return {"parameters": parameters_of(agent.fn, signature.names, signature.local), "argument": argument}


def made_delegates(what: str, given: Sequence[Any]) -> list[Delegate]:
    """Make what may be given work of what was given."""
    made: list[Delegate] = []
    for one in given:
        if isinstance(one, Delegate):
            made.append(one)
        elif isinstance(one, Agent):
            made.append(delegate(cast("Agent[Any, Any]", one)))
        else:
            raise InvalidArgument(
                f"{what} takes agents, and what delegate(…) gave, not {one!r}"
                + ("; write delegate(kind, description=…)" if isinstance(one, str) else "")
            )
    return made
