"""A program's own way to write and read values: what ``serializer=`` of a task or an agent takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from ..errors import InvalidArgument, NotSerializable


class Serializer(Protocol):
    """Writes and reads the values of a task or an agent: an object with these two methods, or a pair of functions.

    ``dump`` gets each argument, the result, the state and each signal, as a whole, and gives what is stored for it:
    JSON, or what stands in JSON by itself, such as a ``datetime``. ``load`` gets that back as JSON; what it gives is
    then read as the annotation says, where it is not of the annotated type already. ``None`` goes through neither.
    """

    def dump(self, value: Any, /) -> Any:
        """Return what is stored for a value."""
        ...

    def load(self, json: Any, /) -> Any:
        """Return the value of what was stored."""
        ...


Pair = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""``dump`` and ``load``."""


class Own:
    """A serializer at work: what it raises is told with what it is of."""

    __slots__ = ("_dump", "_load", "_of")

    def __init__(self, dump: Callable[[Any], Any], load: Callable[[Any], Any], of: str) -> None:
        self._dump = dump
        self._load = load
        self._of = of

    def dump(self, value: Any) -> Any:
        """Return what is stored for a value."""
        return None if value is None else self._called("dump", self._dump, value)

    def load(self, json: Any) -> Any:
        """Return the value of what was stored."""
        return None if json is None else self._called("load", self._load, json)

    def _called(self, name: str, fn: Callable[[Any], Any], value: Any) -> Any:
        try:
            return fn(value)
        except Exception as error:
            of: type[Any] = cast(Any, type(value))
            raise NotSerializable(
                f"the value at $ is a {of.__qualname__} that serializer.{name} of {self._of} does not take: "
                f"{type(error).__name__}: {error}",
                context={"path": "$", "type": of.__qualname__},
            ) from error


def own_serializer(given: Any, of: str) -> Own | None:
    """Return a serializer at work; refuse what is none."""
    if given is None:
        return None
    parts: tuple[Any, ...] = (getattr(given, "dump", None), getattr(given, "load", None))
    if isinstance(given, tuple):
        parts = cast("tuple[Any, ...]", given)
    if len(parts) != 2 or not all(map(callable, parts)):
        raise InvalidArgument(
            f"serializer= of {of} is {given!r}; pass an object with dump(value) and load(json), "
            "or a pair of such functions"
        )
    dump, load = parts
    return Own(dump, load, of)
