"""Which tasks, and which other agents, an agent's code refers to.

A worker that takes up a run of a process that is gone must know the functions of its unfinished tasks before the
agent's code has called them again: a task whose next attempt is due wakes nobody who does not serve it. The same
holds for the agents of its children.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .task import Task

if TYPE_CHECKING:
    from .agent import Agent

_MAX_FUNCTIONS = 500

_STARTS = frozenset({"spawn_agent", "handoff_to_agent"})
"""What code calls that starts children."""


def tasks_of(fn: Callable[..., Any]) -> list[Task[..., Any]]:
    """Return the tasks that a function, and the functions it refers to, name."""
    return [thing for thing in _referred(fn) if isinstance(thing, Task)]


def agents_of(agent: Agent[Any, Any]) -> list[Agent[Any, Any]]:
    """Return the agents that an agent's code names and may start, and those that these may start."""
    from .agent import Agent

    found: dict[int, Agent[Any, Any]] = {}
    waiting = [agent]
    while waiting:
        starting = waiting.pop()
        for thing in (*_referred(starting.fn, _STARTS), *starting.given_work()):
            if isinstance(thing, Agent) and thing is not agent and id(thing) not in found:  # pyright: ignore[reportUnknownArgumentType]
                found[id(thing)] = thing  # pyright: ignore[reportUnknownArgumentType]
                waiting.append(thing)  # pyright: ignore[reportUnknownArgumentType]
    return list(found.values())


def _referred(fn: Callable[..., Any], calls: frozenset[str] = frozenset()) -> list[Any]:
    """Return what a function, and the functions it refers to, name: nothing where none of them makes such a call."""
    found: dict[int, Any] = {}
    makes_one = not calls
    seen: set[int] = set()
    waiting: list[Any] = [fn]
    while waiting and len(seen) < _MAX_FUNCTIONS:
        function = waiting.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        makes_one = makes_one or (isinstance(code, types.CodeType) and not calls.isdisjoint(_names(code)))
        for thing in _named_by(function):
            found[id(thing)] = thing
            if isinstance(thing, types.FunctionType):
                waiting.append(thing)
            elif isinstance(thing, types.MethodType):
                waiting.append(thing.__func__)
    return list(found.values()) if makes_one else []


def _named_by(fn: Any) -> Iterator[Any]:
    fn = getattr(fn, "__func__", fn)
    code = getattr(fn, "__code__", None)
    if not isinstance(code, types.CodeType):
        return
    names = set(_names(code))
    known: dict[str, Any] = fn.__globals__
    for cell in fn.__closure__ or ():
        try:
            yield from _with_members(cell.cell_contents, names)
        except ValueError:
            continue  # not bound yet
    for name in names:
        if name in known:
            yield from _with_members(known[name], names)


def _with_members(thing: Any, names: set[str]) -> Iterator[Any]:
    yield thing
    if isinstance(thing, (types.ModuleType, type)):
        for name in names & vars(thing).keys():
            yield vars(thing)[name]
    elif isinstance(thing, (list, tuple)) and len(thing) < 100:  # pyright: ignore[reportUnknownArgumentType]
        yield from thing
    elif isinstance(thing, dict) and len(thing) < 100:  # pyright: ignore[reportUnknownArgumentType]
        yield from thing.values()  # pyright: ignore[reportUnknownVariableType]


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
