"""What can never be kept: annotations of which nothing that is stored could make a value again."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple, cast

from ..errors import NotSerializable
from .shapes import SCALARS, Either, Shape

PLAIN: frozenset[Any] = frozenset({str, int, float, bool, None, type(None), Any, object, dict, list, bytes})
"""Annotations that need no look; most functions have no other ones."""
PLAIN_NAMES = frozenset({"str", "int", "float", "bool", "None", "Any", "object", "dict", "list", "bytes"})


def is_plain(hint: Any) -> bool:
    """Whether an annotation, resolved or as it is written, needs no look."""
    return isinstance(hint, Hashable) and hint in (PLAIN_NAMES if isinstance(hint, str) else PLAIN)


_OPEN_FILES = ("IO", "TextIO", "BinaryIO")
_OF_ONE_PROCESS = frozenset({"threading", "_thread", "asyncio", "multiprocessing", "socket", "sqlite3", "subprocess"})
_UNLIKE_VALUES: dict[str, str] = {
    "Callable": "is a function, which is no value: let it take the name of what to call",
    "Iterator": "is used up where it is made: declare a list",
    "Generator": "is used up where it is made: declare a list",
    "AsyncIterator": "is used up where it is made: declare a list",
    "AsyncIterable": "is used up where it is made: declare a list",
    "AsyncGenerator": "is used up where it is made: declare a list",
    "Awaitable": "ends in one process: declare what it gives",
    "Coroutine": "ends in one process: declare what it gives",
}


class Unkept(NamedTuple):
    """A part of an annotation, and why no value of it can be kept."""

    steps: tuple[str, ...]
    cls: type
    why: str


class Unknown(Shape):
    """A class of which nobody knows how its values are written and made again."""

    __slots__ = ("cls", "why")

    def __init__(self, cls: type, why: str) -> None:
        self.cls = cls
        self.why = why


def unknown_class(cls: Any) -> Unknown | None:
    """Return the shape of a class that has none; none where its values may be of another class that has one."""
    module = cls.__module__.partition(".")[0]
    if module in ("collections", "typing", "contextlib") and cls.__name__ in _UNLIKE_VALUES:
        return Unknown(cls, _UNLIKE_VALUES[cls.__name__])
    if module in ("flovyn", "builtins") and cls not in (complex, memoryview, type, slice, property):
        return None
    if getattr(cls, "_is_protocol", False) or getattr(cls, "__abstractmethods__", None):
        return None
    if issubclass(cls, (str, int, float, list, dict, tuple)):
        # Is stored as its base, and comes back as that.
        return None
    return Unknown(cls, _why(cls, module))


def unknown_maker(hint: Any) -> Unknown | None:
    """Return the shape of a lock, which some Pythons name by the function that makes one."""
    threads = sys.modules.get("threading")
    if threads is None or hint not in (threads.Lock, threads.RLock):
        return None
    return unknown_class(type(hint()))


def formless_member(cls: Any) -> Unknown | None:
    """Return the shape of an enum that has a member whose value has no form in JSON; none where each has one."""
    from .. import _native

    for member in cls:
        if type(member.value) not in SCALARS:
            try:
                _native.encode_json(member)
            except NotSerializable:
                why = f"has values with no form in JSON ({cls.__qualname__}.{member.name}): give its members text or "
                return Unknown(cls, f"{why}numbers, or give serializer= what writes and reads it")
    return None


def _why(cls: Any, module: str) -> str:
    base: Any = getattr(sys.modules.get("io"), "IOBase", ())
    if (module == "typing" and cls.__name__ in _OPEN_FILES) or issubclass(cls, base):
        return "is an open file, which is of one process: let it take the path, or the bytes"
    if module == "numpy":
        return "has no form in JSON: declare a list, and pass its tolist()"
    if module in _OF_ONE_PROCESS:
        return "is of one process: make it where it is used"
    if cls is memoryview:
        return "is a view of memory: declare bytes"
    return (
        "cannot be made again of what is stored: make it a dataclass or a pydantic model, declare what it is made of, "
        "or give serializer= what writes and reads it"
    )


def unkept(shape: Shape) -> Unkept | None:
    """Return the first part of a shape of which no value can be kept."""
    return _first(shape, (), set())


def _first(shape: Shape, steps: tuple[str, ...], seen: set[int]) -> Unkept | None:
    if isinstance(shape, Unknown):
        return Unkept(steps, shape.cls, shape.why)
    if id(shape) in seen:
        return None
    seen.add(id(shape))
    if isinstance(shape, Either):
        # A value may always be of the others.
        found = [_first(member, steps, seen) for _, member in shape.parts()]
        return found[0] if found and None not in found and not shape.nullable else None
    for step, part in shape.parts():
        if (found_in := _first(part, (*steps, step), seen)) is not None:
            return found_in
    return None


def refusal(of: str, hints: Iterable[tuple[str, Any]], local: Mapping[str, Any] | None) -> str | None:
    """Say of the first annotation that can never be kept what it is, where, and what to do."""
    from .codec import codec_of

    for what, hint in hints:
        if is_plain(hint):
            continue
        found = unkept(codec_of(hint, local=local).shape)
        if found is not None:
            where = f" at {''.join(('$', *found.steps))}" if found.steps else ""
            name = cast(Any, found.cls).__qualname__
            return f"{what} of {of} holds{where} a {name} ({found.cls.__module__}.{name}), which {found.why}"
    return None
