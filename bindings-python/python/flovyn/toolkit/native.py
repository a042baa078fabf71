"""Tasks that the toolkit runs: how agents schedule them, and how a worker comes to serve them."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from .. import _native
from ..errors import InvalidArgument
from ..scope import current
from ..serde import Rebuild, Signature
from ..step import Step
from ..task import Task

if TYPE_CHECKING:
    from ..agent import Agent
    from ..hub import Hub
    from .kit import Toolkit

GENERATE = "llm.generate"
PARENT_QUEUE = "parent/"
"""Stands for the queue of the run that has started a run."""

Via = Literal["parent"]
"""Whose workers make a model call: those of the run that has started this one."""


async def _elsewhere(input: Any = None) -> Any:
    raise NotImplementedError("the toolkit runs this task")


_ONE_INPUT = Signature(_elsewhere, "TaskContext")


class NativeTask(Task[..., Any]):
    """A task of the toolkit. A worker serves those that its agents' code names."""

    is_native = True

    def __init__(self, kind: str, tool: str | None = None) -> None:
        super().__init__(_elsewhere, kind, {}, signature=_ONE_INPUT)
        self.tool: str | None = tool
        """The tool that it calls; none for a model call."""

    def schedule(
        self,
        input: Any,
        *,
        via: Via | None = None,
        key: str | None = None,
        rebuild: Rebuild | None = None,
        made: type[Step[Any]] = Step,
    ) -> Step[Any] | None:
        """Schedule it inside an agent; none outside of one. ``made`` is the class of its step."""
        activation = current.get()
        if activation is None:
            return None
        if via not in (None, "parent"):
            raise InvalidArgument(f'via={via!r} names nobody who can be asked; write via="parent", or leave it out')
        queue = None if via is None else PARENT_QUEUE
        return activation.schedule_native(self.kind, input, queue=queue, key=key, rebuild=rebuild, made=made)


async def serve_kit(
    kit: _native.Toolkit,
    hub: Hub,
    runtime: _native.Runtime,
    agents: Iterable[Agent[Any, Any]],
    tasks: Iterable[Task[..., Any]],
    toolkit: Toolkit | None,
    taken: Iterable[str],
) -> None:
    """Serve what a worker serves of the toolkit for its agents and tasks, in the place of what it served of it.

    ``taken`` are the kinds of tasks that it serves itself.
    """
    descriptions: list[dict[str, Any]] = [agent.describe() for agent in agents if agent.is_native]
    if toolkit is not None:
        descriptions.append(toolkit.describe())
    named = [task.tool for task in tasks if isinstance(task, NativeTask) and task.tool is not None]
    descriptions.append({"tools": sorted(set(named))})
    given = {name for description in descriptions for name in description.get("providers", {})}
    scripted = {name: provider for name, provider in scripted_providers().items() if name not in given}
    descriptions.append({"providers": scripted})
    problems: Sequence[str] = await hub.call(kit.replace, runtime, descriptions, sorted(taken))
    if problems:
        import warnings

        for problem in problems:
            warnings.warn(problem, RuntimeWarning, stacklevel=2)


async def serve_met(serving: Awaitable[None]) -> None:
    """Serve agents of the toolkit that code has handed over; what cannot be served is said, and waits."""
    try:
        await serving
    except Exception as error:
        import warnings

        warnings.warn(f"an agent that was handed over cannot be served: {error}", RuntimeWarning, stacklevel=2)


def scripted_providers() -> dict[str, dict[str, Any]]:
    """Return the scripted models of tests that this process serves, as providers."""
    scripted = sys.modules.get("flovyn.testing.scripted")
    return {} if scripted is None else scripted.providers()


def not_served(kind: str, kinds: Iterable[str]) -> InvalidArgument:
    """Say what to do about a task that the worker's toolkit does not have."""
    name = kind.removeprefix("tool.")
    served = sorted(served.removeprefix("tool.") for served in kinds if served.startswith("tool."))
    return InvalidArgument(
        f"the agent calls the tool {name!r}, which its worker does not serve (it serves "
        f"{', '.join(served) or 'no tools'}); give it toolkit=Toolkit(tools=[{name!r}])"
    )
