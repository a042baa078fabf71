"""What may be declared as a task or an agent: what could only go wrong later is refused where it is written."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from .errors import InvalidArgument
from .serde import hints_of, is_plain, refusal

T = TypeVar("T")

_YIELDS = 0x20 | 0x200
"""The flags of code that yields: a generator, an async generator."""
_UNIONS: tuple[Any, ...] = (typing.Union, types.UnionType)
_AGENT_CONTEXTS = ("AgentContext", "SyncAgentContext")


def check_task(fn: Any) -> None:
    """Refuse what cannot be a task."""
    _check(fn, "task")
    first, *others = _parameters(fn) or ("",)
    written: Mapping[str, Any] = getattr(fn, "__annotations__", None) or {}
    if _last_name(written.get(first)) in _AGENT_CONTEXTS:
        raise InvalidArgument(
            f"task {_name(fn)!r} takes an agent's context, which no task has: it may run in another process. Let it "
            f"take what it needs as arguments; `{first}: TaskContext` is what a task may know of itself"
        )
    for other in others:
        if _last_name(written.get(other)) == "TaskContext":
            raise InvalidArgument(
                f"task {_name(fn)!r} takes its context as {other!r}; it is the first parameter: "
                f"def {_name(fn)}({other}: TaskContext, …)"
            )


def check_agent(fn: Any, local: Mapping[str, Any] | None) -> None:
    """Refuse what cannot be an agent."""
    _check(fn, "agent")
    parameters = _parameters(fn)
    if parameters == ():
        raise InvalidArgument(
            f"agent {_name(fn)!r} must take its context as the first parameter: def {_name(fn)}(ctx: AgentContext, …)"
        )
    first = parameters[0] if parameters else ""
    written: Mapping[str, Any] = getattr(fn, "__annotations__", None) or {}
    if first in written and not _may_be_context(hints_of(fn, local).get(first, Any)):
        raise InvalidArgument(
            f"agent {_name(fn)!r} must take its context as the first parameter, and its input, if any, as the second: "
            f"def {_name(fn)}(ctx: AgentContext, …); its first parameter is {first!r}, a "
            f"{_last_name(written[first]) or written[first]}"
        )


def check_kept(
    what: str,
    fn: Any,
    names: Sequence[str] | None,
    local: Mapping[str, Any] | None,
    others: Iterable[tuple[str, Any]] = (),
) -> None:
    """Refuse annotations of which no value can be kept: of the parameters of these names and the result, and others.

    What an annotation names and is not there yet is found out by the first value.
    """
    written: Mapping[str, Any] = getattr(fn, "__annotations__", None) or {}
    hints: list[tuple[str, Any]] = [*others]
    if names is not None and not all(is_plain(written.get(name)) for name in (*names, "return")):
        known = hints_of(fn, local)
        hints += [(f"the parameter {name!r}", known[name]) for name in names if name in known]
        hints += [("the result", known["return"])] if "return" in known else []
    told = refusal(f"{what} {_name(fn)!r}", hints, local) if hints else None
    if told is not None:
        raise InvalidArgument(told)


def listed(name: str, values: Iterable[T]) -> list[T]:
    """Return the values of an argument; refuse a text, whose letters would be taken for them: ``"/x"`` for ``"/"``."""
    if isinstance(values, (str, bytes)):
        raise InvalidArgument(f"{name} is a list, and {values!r} is one text; write {name}=[{values!r}]")
    return list(values)


def names_before(what: str, kind: str, aliases: Any) -> tuple[str, ...]:
    """Return the names that a function had before; refuse what is no list of names."""
    names: tuple[Any, ...] = () if isinstance(aliases, str) else tuple(aliases)
    if isinstance(aliases, str) or not all(isinstance(name, str) and name for name in names):
        raise InvalidArgument(
            f'{what} {kind!r} has aliases={aliases!r}; they are the names that it had before: aliases=("old_name",)'
        )
    return tuple(dict.fromkeys(name for name in names if name != kind))


def check_step(call: str, name: Any, fn: Any) -> None:
    """Refuse what ``ctx.run`` and ``ctx.once`` cannot name, or cannot call."""
    how = f"it is ctx.{call}(name, function, *arguments)"
    if not isinstance(name, str):
        raise InvalidArgument(f"ctx.{call} was given {_described(name)} for the name of its step; {how}")
    of: Any = cast(Any, type(fn))
    if of.__name__ == "Agent":
        raise InvalidArgument(f"ctx.{call} was given {fn!r}, which is no step of another one; start it by a client")
    if not callable(fn):
        closing = getattr(fn, "close", None)
        if hasattr(of, "__await__") and closing is not None:
            # It would be said of it that nobody has awaited it, which is true and no help.
            closing()
            how += ", not what calling it gives: without the step it would have run again after a crash"
        raise InvalidArgument(f"ctx.{call} was given {_described(fn)} for its function; {how}")


def _described(thing: Any) -> str:
    return f"{thing!r}" if isinstance(thing, (str, int, float)) or thing is None else f"a {type(thing).__qualname__}"


def _check(fn: Any, what: str) -> None:
    if isinstance(fn, (staticmethod, classmethod)):
        above = type(fn).__name__  # pyright: ignore[reportUnknownArgumentType]
        raise InvalidArgument(
            f"@{what} is put on a {above}; "
            + (f"write @staticmethod above @{what}" if above == "staticmethod" else _no_object(what))
        )
    if not callable(fn):
        raise InvalidArgument(f"@{what} is put on a function, not on {fn!r}")
    code: Any = getattr(fn, "__code__", None)
    if code is not None and code.co_flags & _YIELDS:
        more = "; what it shows before its end goes by stream_token or stream_data" if what == "task" else ""
        raise InvalidArgument(f"{what} {_name(fn)!r} yields, but it has one result: let it return a list{more}")
    if _is_method(fn):
        raise InvalidArgument(f"{what} {_name(fn)!r} is a method: {_no_object(what)}")


def _no_object(what: str) -> str:
    return (
        f"a process that goes on with a run finds its {what}s by name, and has no object to call them on. Make it a "
        f"function, or a @staticmethod above @{what}, and pass what it needs of the object as an argument; where every "
        f"process makes the same object, {what}(object.method) declares that object's"
    )


def _is_method(fn: Any) -> bool:
    """Whether it is written in a class, for objects of it; one of an object has that object."""
    around = getattr(fn, "__qualname__", "").rpartition(".")[0]
    is_in_class = bool(around) and not around.endswith("<locals>")
    return is_in_class and not hasattr(fn, "__self__") and (_parameters(fn) or ("",))[0] in ("self", "cls")


def _parameters(fn: Any) -> tuple[str, ...] | None:
    """The names of its positional parameters; none where it has no code to look at."""
    code: Any = getattr(fn, "__code__", None)
    if code is None:
        return None
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    return names[1:] if hasattr(fn, "__self__") else names


def _may_be_context(hint: Any) -> bool:
    members = typing.get_args(hint) if typing.get_origin(hint) in _UNIONS else (hint,)
    return any(map(_is_context, members))


def _is_context(hint: Any) -> bool:
    cls: Any = typing.get_origin(hint) or hint
    if cls is Any or not isinstance(cls, type):
        # A type variable, an alias, a `NewType`: who knows.
        return cls is not None
    if cls.__module__.partition(".")[0] == "flovyn":
        return cls.__name__ in (*_AGENT_CONTEXTS, "Context")
    # A class of one's own that stands for the context in tests, as a base or a protocol, is as good.
    return cls is object or getattr(cls, "_is_protocol", False) or "Context" in cls.__name__ or _derives(cls)


def _derives(cls: type) -> bool:
    return any(base.__name__ in _AGENT_CONTEXTS for base in cls.__mro__)


def _last_name(hint: Any) -> str:
    text: str = hint if isinstance(hint, str) else getattr(typing.get_origin(hint) or hint, "__name__", "")
    return text.split("[")[0].rpartition(".")[2].strip("\"' ")


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", type(fn).__name__)
