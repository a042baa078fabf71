"""Tools of an agent that are tasks of the user's: what the model is shown of them, and how a call is run."""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args, overload

from ..agent import Agent
from ..errors import InvalidArgument
from ..task import Task, task
from .schema import description_of, parameters_of

Effect = Literal["read", "write", "exec"]
"""What a call does to the world: it looks, it changes something, it runs what the model wrote."""

_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


@dataclass(frozen=True)
class Tool:
    """A task as a model sees it."""

    task: Task[..., Any]
    """What runs."""
    name: str
    """The name that models use."""
    description: str
    """When and how to use it."""
    effect: Effect
    """What a call does to the world: what approvals go by."""
    parameters: Mapping[str, Any]
    """The JSON Schema of its arguments."""

    def describe(self) -> dict[str, Any]:
        """Return the tool as the kit reads it."""
        names = self.task.signature.names
        options = self.task.native_options()
        queue = options.pop("queue", None)
        given: dict[str, Any] = {
            "kind": self.task.kind,
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
            "effect": self.effect,
            "options": options,
        }
        if len(names) == 1:
            given["argument"] = names[0]
        if queue is not None:
            given["queue"] = queue
        return given


@overload
def tool(
    fn: Task[..., Any] | Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | None = None,
) -> Tool: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None, effect: Effect | None = None
) -> Callable[[Task[..., Any] | Callable[..., Any]], Tool]: ...


def tool(
    fn: Task[..., Any] | Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | None = None,
) -> Tool | Callable[[Task[..., Any] | Callable[..., Any]], Tool]:
    """Make a tool of a task, or of a function, which becomes a task without retries. Also a decorator.

    The name is the task's kind, the description its docstring, the arguments' schema follows from its annotations.
    ``effect`` is what approvals go by. It is ``write`` unless given: only ``effect="read"`` says that a call changes
    nothing. Whether the task may be repeated (``side_effects``, ``retries``) says nothing about it.
    """

    def make(given: Task[..., Any] | Callable[..., Any]) -> Tool:
        return made_tool(given, name=name, description=description, effect=effect)

    return make if fn is None else make(fn)


def made_tool(
    fn: Tool | Task[..., Any] | Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | None = None,
) -> Tool:
    """Make a tool of a task or function, or return the tool that it is already."""
    if isinstance(fn, Tool):
        return fn
    declared = cast("Task[..., Any]", fn) if isinstance(fn, Task) else _declared(fn)
    shown = name or re.sub(r"[^a-zA-Z0-9_-]", "_", declared.kind)
    if not _NAME.match(shown):
        raise InvalidArgument(f"a tool is named {shown!r}; use 1 to 64 letters, digits, _ and -")
    told = description or description_of(inspect.getdoc(declared.fn) or "")
    if not told:
        raise InvalidArgument(
            f"the tool {shown!r} has no description, so a model would not know when to use it; write a docstring, or "
            "tool(fn, description=…)"
        )
    signature = declared.signature
    parameters = parameters_of(declared.fn, signature.names, signature.local)
    # The engine may repeat an idempotent task. It may still change something, so this is no reason to run it unasked.
    stated: Effect = "write" if effect is None else effect
    if stated not in get_args(Effect):
        raise InvalidArgument(f"the effect of the tool {shown!r} is {stated!r}; write 'read', 'write' or 'exec'")
    return Tool(declared, shown, told, stated, parameters)


def _declared(fn: Any) -> Task[..., Any]:
    if isinstance(fn, Agent):
        kind: str = cast("Agent[Any, Any]", fn).kind
        raise InvalidArgument(
            f"the agent {kind!r} is no task: a call of it starts a child. Give it to react_agent(delegates=[…]), with "
            "delegate(…) for a name or a description of its own"
        )
    if not callable(fn):
        raise InvalidArgument(f"a tool is a task, a function or a name, not {fn!r}")
    made: Task[..., Any] = task(fn)
    made.signature.local = _names_around(fn)
    return made


def _names_around(fn: Any) -> Mapping[str, Any] | None:
    """Return the local names of whoever gives a function that was defined inside another one."""
    if "<locals>" not in getattr(fn, "__qualname__", ""):
        return None
    frame: types.FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "flovyn":
        frame = frame.f_back
    return None if frame is None else dict(frame.f_locals)
