"""Stand-ins for tasks: by whom they stand in for, and never for nobody."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..agent import Agent
from ..errors import InvalidArgument
from ..task import Task, declared_kinds

Fakes = Mapping[Any, Callable[..., Any]]

_OF_THE_TOOLKIT = ("llm.", "tool.")


def fakes_by_kind(
    fakes: Fakes | None, agents: Iterable[Agent[Any, Any]], tasks: Iterable[Task[..., Any]] = ()
) -> dict[str, Callable[..., Any]]:
    """Return stand-ins by the kind of their task; refuse one for a task that nobody has heard of."""
    found: dict[str, Callable[..., Any]] = {}
    served, agents = list(tasks), list(agents)
    for key, fake in (fakes or {}).items():
        if not callable(fake):
            raise InvalidArgument(f"the stand-in for {key!r} is {fake!r}; it is a function that is called instead")
        if isinstance(key, Task):
            found[key.kind] = fake  # pyright: ignore[reportUnknownMemberType]
        elif not isinstance(key, str):
            raise InvalidArgument(f"a stand-in is for a function declared with @task, or its kind as text, not {key!r}")
        else:
            if not key.startswith(_OF_THE_TOOLKIT):
                _check_known(key, agents, served)
            found[key] = fake
    return found


def _check_known(kind: str, agents: list[Agent[Any, Any]], tasks: list[Task[..., Any]]) -> None:
    kinds = {task.kind for task in tasks} | {task.kind for agent in agents for task in agent.own_tasks()}
    if kind in kinds or kind in declared_kinds or any(kind in _texts(agent.fn) for agent in agents):
        return
    import difflib

    near = difflib.get_close_matches(kind, kinds | declared_kinds, 1)
    hint = f"; is {near[0]!r} meant?" if near else ""
    known = ", ".join(sorted(kinds)) or "none"
    raise InvalidArgument(f"there is no task {kind!r} to stand in for; the agents' code names: {known}{hint}")


def _texts(fn: Callable[..., Any]) -> set[str]:
    """The texts in a function and those that it refers to: ``ctx.run("name", …)``, ``schedule_task("kind")``."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting: list[Any] = [getattr(fn, "__func__", fn)]
    while waiting and len(seen) < 500:
        function = waiting.pop()
        code = getattr(function, "__code__", None)
        if not isinstance(code, types.CodeType) or id(code) in seen:
            continue
        seen.add(id(code))
        names: set[str] = set()
        for part in _codes(code):
            found.update(each for each in part.co_consts if isinstance(each, str))
            names.update(part.co_names)
        known: dict[str, Any] = getattr(function, "__globals__", {})
        waiting += [known[name] for name in names if isinstance(known.get(name), (types.FunctionType, str))]
        found.update(each for each in (known.get(name) for name in names) if isinstance(each, str))
        for cell in getattr(function, "__closure__", None) or ():
            try:
                held = cell.cell_contents
            except ValueError:
                continue  # not bound yet
            if isinstance(held, str):
                found.add(held)
            waiting.append(held)
    return found


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
