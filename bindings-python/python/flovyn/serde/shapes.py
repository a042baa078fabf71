"""Shapes: what an annotation makes of decoded JSON, and which values come back from JSON as they are.

``read`` makes the value. How much it asks of the JSON is its level: what another language or an older program wrote is
taken as far as it goes, a stored state must not lose anything, and the member of a union must be the very one that
wrote it. ``fits`` tells, without writing anything, that a value is sure to come back as itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextvars import ContextVar
from itertools import chain
from typing import Any, cast

LENIENT, STRICT, EXACT = range(3)

SCALARS: frozenset[type] = frozenset({str, int, float, bool, type(None)})
_JSON = SCALARS | {dict, list}
_KEYS = frozenset({str})
_COLLECTIONS = frozenset({list, tuple, set, frozenset})

MAX_DEPTH = 121
"""How deep a value may be nested; the engine writes no deeper."""

KINDS: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}


accepted: ContextVar[bool] = ContextVar("flovyn_accepted", default=False)
"""Whether what is read was accepted when it was stored: what validators have against it now is not heard."""


class Unfit(TypeError):
    """Decoded JSON that does not fit a shape; it knows the place inside the value."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(f"{found} was found, but {wanted}")
        self.found = found
        self.wanted = wanted
        self.steps: list[str | int] = []
        """From the innermost to the outermost."""

    def at(self, step: str | int) -> Unfit:
        """Note what it is inside of."""
        self.steps.append(step)
        return self

    @property
    def path(self) -> str:
        """Its place, such as ``$.items[3]``."""
        return place(reversed(self.steps))

    @property
    def told(self) -> str:
        """What was found where, and what is wanted there."""
        return f"at {self.path} {self.args[0]}"


def place(steps: Any) -> str:
    """Write the way to a part of a value as the engine does: ``$.items[3].when``."""
    text = "$"
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.isascii() and step.isidentifier():
            text += f".{step}"
        else:
            import json

            text += f"[{json.dumps(step, ensure_ascii=False)}]"
    return text


def shown(value: Any) -> str:
    """Say what a decoded value is, in few words."""
    of: type[Any] = cast(Any, type(value))
    kind = KINDS.get(of, f"a {of.__qualname__}")
    if isinstance(value, (dict, list)) or value is None:
        return kind
    text = repr(value)
    return f"{kind} ({text if len(text) <= 60 else text[:57] + '...'})"


def is_exact(value: Any) -> bool:
    """Whether it consists of nothing but JSON's own types, so that it is sure to come back as it is."""
    return type(value) in SCALARS or are_exact((value,))


def are_exact(items: Collection[Any]) -> bool:
    """Whether all of these consist of nothing but JSON's own types."""
    # Level by level, so that `map`, `set` and `chain` do the work in C: this is asked of every value that is written.
    for level in range(MAX_DEPTH + 1):
        types = set(map(type, items))
        if types <= SCALARS:
            return True
        if not types <= _JSON:
            return False
        if level > 8:
            # What holds itself more than once would double with every level.
            items = list({id(item): item for item in items}.values())
        inner: list[Any] = []
        if dict in types:
            dicts: list[dict[Any, Any]] = [item for item in items if type(item) is dict]
            if not set(map(type, chain.from_iterable(dicts))) <= _KEYS:
                return False
            for item in dicts:
                inner += item.values()
        if list in types:
            for item in items:
                if type(item) is list:
                    inner += item
        items = inner
    return False


class Shape:
    """Any JSON value."""

    __slots__ = ()

    plain: bool = True
    """Whether what JSON says is the value already, at the lenient level."""
    wanted: str = "any value"
    """What it is called in messages."""
    kind: type | None = None
    """The one type of JSON that it is read from, where there is one."""
    vague: bool = False
    """Whether much text that means something else is text of it too: beside ``str`` in a union, text stays text."""

    def read(self, value: Any, level: int) -> Any:
        """Make the value of decoded JSON; raises ``Unfit``."""
        return value

    def fits(self, value: Any) -> bool:
        """Tell whether a value is sure to come back as itself."""
        return is_exact(value)

    def parts(self) -> Iterable[tuple[str, Shape]]:
        """Return the shapes of what it holds, with their places."""
        return ()


ANY = Shape()


class Scalar(Shape):
    """One of JSON's own scalars."""

    __slots__ = ("_exactly", "_types", "kind", "wanted")

    def __init__(self, of: type) -> None:
        self.kind = of
        self.wanted = of.__name__ if of is not type(None) else "None"
        # JSON does not tell numbers apart as Python does, and None stands where a default is None in spite of the hint.
        numbers: dict[type, set[type]] = {int: {int, float, bool}, float: {int, float}}
        self._types = {type(None)} | numbers.get(of, {of})
        self._exactly = {int, float} if of is float else {of}

    def read(self, value: Any, level: int) -> Any:
        if level and type(value) not in (self._exactly if level == EXACT else self._types):
            raise Unfit(shown(value), f"{self.wanted} is wanted")
        return value

    def fits(self, value: Any) -> bool:
        return type(value) in self._types

    def all_fit(self, values: Collection[Any]) -> bool:
        """Tell whether all of them fit."""
        return set(map(type, values)) <= self._types


class OneOf(Shape):
    """The values of a ``Literal``; enum members among them are stored as their values."""

    __slots__ = ("_values", "plain", "wanted")

    def __init__(self, values: Sequence[Any]) -> None:
        import enum

        members = [value for value in values if isinstance(value, enum.Enum)]
        self.plain = not members
        self._values: list[tuple[Any, Any]] = [
            (value.value if isinstance(value, enum.Enum) else value, value) for value in values
        ]
        self.wanted = "one of " + ", ".join(repr(value) for value in values)

    def read(self, value: Any, level: int) -> Any:
        for stored, meant in self._values:
            if (type(value) is type(stored) and value == stored) or value is meant:
                return meant
        if level == LENIENT or (value is None and level == STRICT):
            return value
        raise Unfit(shown(value), f"{self.wanted} is wanted")

    def fits(self, value: Any) -> bool:
        return any(type(value) is type(meant) and value == meant for _, meant in self._values) and self.plain


class Whole(Shape):
    """Bytes and blobs, which are values of their own. Inside JSON they are text (base64)."""

    __slots__ = ("_cls", "_make", "wanted")

    kind = str
    plain = False
    vague = True

    def __init__(self, of: type, make: Callable[[Any], Any]) -> None:
        self._cls = of
        self.wanted = of.__name__
        self._make = make

    def read(self, value: Any, level: int) -> Any:
        if isinstance(value, str):
            return self._decoded(value)
        if level == EXACT and isinstance(value, (int, float, list, dict)):
            raise Unfit(shown(value), f"{self.wanted} is wanted")
        return self._make(value)

    def _decoded(self, text: str) -> Any:
        from .parsers import base64_bytes

        try:
            return self._make(base64_bytes(text))
        except ValueError as error:
            raise Unfit(shown(text), f"{self.wanted} as text (base64) are wanted") from error

    def fits(self, value: Any) -> bool:
        return self._cls is bytes and type(value) is bytes


class Items(Shape):
    """A list, or what is made of one: a set, a deque, a tuple of any length."""

    __slots__ = ("_item", "_make", "plain", "wanted")

    kind = list

    def __init__(self, item: Shape, make: Callable[[list[Any]], Any] | None = None) -> None:
        self._item = item
        self._make = make
        self.plain = item.plain and make is None
        self.wanted = getattr(make, "__name__", "list")

    def read(self, value: Any, level: int) -> Any:
        make, item = self._make, self._item
        if make is None and item.plain and level == LENIENT:
            return value
        if not isinstance(value, (list, tuple, set, frozenset)):
            if value is None and level == STRICT:
                return None
            raise Unfit(shown(value), f"a {self.wanted} is wanted")
        read = item.read
        made: list[Any] = []
        items = cast(Any, value)
        try:
            for each in items:
                made.append(read(each, level))
        except Unfit as unfit:
            raise unfit.at(len(made)) from None
        return made if make is None else make(made)

    def fits(self, value: Any) -> bool:
        if type(value) is not (self._make or list) or type(value) not in _COLLECTIONS:
            return False
        return _all_fit(self._item, value)

    def parts(self) -> Iterable[tuple[str, Shape]]:
        return (("[]", self._item),)


def _all_fit(item: Shape, values: Collection[Any]) -> bool:
    if isinstance(item, Scalar):
        return item.all_fit(values)
    if item is ANY:
        return are_exact(values)
    return all(map(item.fits, values))


class Tuple(Shape):
    """A tuple of so many parts, or a named one."""

    __slots__ = ("_make", "_names", "_parts", "wanted")

    kind = list
    plain = False

    def __init__(self, parts: Sequence[Shape], make: Callable[[Any], Any] = tuple, names: Sequence[str] = ()) -> None:
        self._parts = tuple(parts)
        self._make = make
        self._names: Sequence[Any] = names or range(len(parts))
        self.wanted = f"a list of {len(parts)}"

    def read(self, value: Any, level: int) -> Any:
        if value is None and level == STRICT:
            return None
        if not isinstance(value, (list, tuple)):
            raise Unfit(shown(value), f"{self.wanted} is wanted")
        items = cast("Sequence[Any]", value)
        if len(items) != len(self._parts):
            raise Unfit(f"a list of {len(items)}", f"{self.wanted} is wanted")
        made: list[Any] = []
        try:
            for part, item in zip(self._parts, items, strict=True):
                made.append(part.read(item, level))
        except Unfit as unfit:
            raise unfit.at(self._names[len(made)]) from None
        return self._make(made)

    def fits(self, value: Any) -> bool:
        if value.__class__ is not tuple or self._make is not tuple or len(value) != len(self._parts):
            return False
        return all(part.fits(item) for part, item in zip(self._parts, value, strict=True))

    def parts(self) -> Iterable[tuple[str, Shape]]:
        return ((f"[{name}]", part) for name, part in zip(self._names, self._parts, strict=True))


class Mapped(Shape):
    """An object as a dict, or what is made of one: a Counter, an OrderedDict."""

    __slots__ = ("_item", "_key", "_keys", "_make", "plain")

    kind = dict
    wanted = "dict"

    def __init__(
        self,
        item: Shape,
        key: Callable[[str], Any] | None = None,
        make: Callable[[dict[Any, Any]], Any] | None = None,
        *,
        keys: Shape | None = None,
    ) -> None:
        self._item = item
        self._key = key
        self._keys = keys
        self._make = make
        self.plain = item.plain and key is None and make is None

    def read(self, value: Any, level: int) -> Any:
        if self.plain and not level:
            return value
        if not isinstance(value, dict):
            if value is None and level == STRICT:
                return None
            if level or not hasattr(value, "items"):
                raise Unfit(shown(value), "a dict is wanted")
        read, key = self._item.read, self._key
        made: dict[Any, Any] = {}
        name: Any = ""
        items = cast(Any, value)
        try:
            for name, each in items.items():
                made[name if key is None else key(name)] = read(each, level)
        except Unfit as unfit:
            raise unfit.at(name) from None
        except ValueError as error:
            raise Unfit(f"the key {name!r}", str(error)) from None
        return made if self._make is None else self._make(made)

    def fits(self, value: Any) -> bool:
        if value.__class__ is not dict or self._make is not None or self._key is not None:
            return False
        return set(map(type, value)) <= _KEYS and _all_fit(self._item, value.values())

    def parts(self) -> Iterable[tuple[str, Shape]]:
        keys = (("{}", self._keys),) if self._keys is not None else ()
        return (*keys, ("[]", self._item))


class Either(Shape):
    """A union: the member that JSON fits exactly, else the first that takes it."""

    __slots__ = ("_exact", "_members", "_plain", "_stays_text", "nullable", "plain", "wanted")

    def __init__(self, members: Sequence[Shape], nullable: bool) -> None:
        # What is made of JSON is looked for first; JSON's own types take the rest.
        self._members = tuple(sorted(members, key=lambda member: member.plain))
        self.nullable = nullable
        """Whether None is one of its values."""
        self.plain = all(member.plain for member in members)
        self._plain = any(member.plain for member in members)
        self._stays_text = any(member.plain and member.kind in (str, None) for member in members)
        self.wanted = " or ".join(member.wanted for member in members)
        # JSON's own types tell such members apart; where they do not, only the round trip shows which one comes back.
        kinds = [member.kind for member in members]
        self._exact = len(members) == 1 or (None not in kinds and len(set(kinds)) == len(kinds))

    def read(self, value: Any, level: int) -> Any:
        if value is None and (self.nullable or level < EXACT):
            return None
        if self.plain and not level:
            return value
        if len(self._members) == 1:
            return self._members[0].read(value, level)
        failed: Unfit | None = None
        is_object = value.__class__ is dict
        is_text = self._stays_text and value.__class__ is str
        for asked in range(EXACT, level - 1, -1):
            if asked == LENIENT and self._plain and not is_object:
                return value
            for member in self._members:
                if is_text and member.vague:
                    continue
                try:
                    return member.read(value, asked)
                except Unfit as unfit:
                    failed = unfit if len(unfit.steps) >= len(failed.steps if failed else ()) else failed
                except (TypeError, ValueError, AttributeError) as error:
                    failed = failed or Unfit(shown(value), str(error))
        if level == LENIENT and self._plain:
            return value
        if failed is not None and failed.steps:
            raise failed
        raise Unfit(shown(value), f"{self.wanted} is wanted")

    def fits(self, value: Any) -> bool:
        if value is None:
            return self.nullable
        return self._exact and any(member.fits(value) for member in self._members)

    def parts(self) -> Iterable[tuple[str, Shape]]:
        return (("", member) for member in self._members)
