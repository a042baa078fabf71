"""Shapes of classes: dataclasses, typed dicts, enums.

The class is looked at once, when its first value comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from .shapes import ANY, EXACT, LENIENT, SCALARS, STRICT, Shape, Unfit, accepted, shown

Shapes = Callable[[], Mapping[str, Shape]]
"""The shapes of a class's fields, once they are needed: a class may hold itself."""


def unknown(name: str, value: Any, cls: Any) -> Unfit:
    """Say that a value has what its class has no place for."""
    unfit = Unfit(shown(value), f"{cls.__qualname__} has no field {name!r}")
    return unfit.at(name)


class Record(Shape):
    """A dataclass. What comes back has the fields that were written, whatever its ``__post_init__`` does to them."""

    __slots__ = ("_bare", "_bound", "_cls", "_fields", "_later", "_needed", "_restored", "_shapes", "_sure", "wanted")

    kind = dict
    plain = False

    def __init__(self, cls: Any, shapes: Shapes) -> None:
        self._cls = cls
        self._shapes = shapes
        self._fields: dict[str, Shape] | None = None
        self.wanted = cls.__qualname__

    def _prepare(self) -> dict[str, Shape]:
        import dataclasses

        cls = self._cls
        shapes = self._shapes()
        fields = dataclasses.fields(cls)
        known = {field.name: shapes[field.name] for field in fields}
        inits: set[str] = {field.name for field in fields if field.init}
        missing = dataclasses.MISSING
        self._later = frozenset(known) - inits
        self._needed = {
            field.name
            for field in fields
            if field.init and field.default is missing and field.default_factory is missing
        }
        owner = next(base for base in cls.__mro__ if "__dataclass_params__" in vars(base))
        generated = owner.__dataclass_params__.init and cls.__init__ is owner.__init__
        required = [
            each
            for each in cls.__dataclass_fields__.values()
            if each._field_type is dataclasses._FIELD_INITVAR and each.default is missing  # pyright: ignore
        ]
        # An `__init__` that wants what is not stored cannot be called: the fields are put in place as `copy` does.
        self._bare = not generated or bool(required)
        own_set = cls.__setattr__ is not object.__setattr__ and not owner.__dataclass_params__.frozen
        properties = any(isinstance(getattr(cls, name, None), property) for name in known)
        self._restored = hasattr(cls, "__post_init__") or own_set
        self._sure = not (self._restored or properties or (self._bare and not required))
        self._bound: dict[str, Callable[[], Any]] = {}
        for field in fields:
            if field.default is not missing:
                self._bound[field.name] = lambda kept=field.default: kept
            elif field.default_factory is not missing:
                self._bound[field.name] = field.default_factory
        self._fields = known
        return known

    def read(self, value: Any, level: int) -> Any:
        if not isinstance(value, dict):
            if isinstance(value, self._cls) or (value is None and level == STRICT):
                return value
            raise Unfit(shown(value), f"a {self.wanted} is rebuilt from an object")
        known = self._fields or self._prepare()
        items = cast("dict[str, Any]", value)
        parts: dict[str, Any] = {}
        name = ""
        try:
            for name, shape in known.items():
                if name in items:
                    parts[name] = items[name] if shape.plain and not level else shape.read(items[name], level)
        except Unfit as unfit:
            raise unfit.at(name) from None
        if len(parts) < len(known):
            absent = sorted((self._needed if level < EXACT else set(known)) - set(parts))
            if absent:
                raise Unfit("an object", f"{self.wanted} wants a field {absent[0]!r}, which it does not have")
        if level and len(items) > len(parts):
            strange = next(name for name in items if name not in known)
            raise unknown(strange, items[strange], self._cls)
        return self._made(parts, level)

    def _made(self, parts: dict[str, Any], level: int) -> Any:
        cls = self._cls
        if self._bare:
            made, restored = self._filled(parts), parts
        else:
            given = {name: part for name, part in parts.items() if name not in self._later} if self._later else parts
            restored = parts if self._restored else {name: parts[name] for name in self._later if name in parts}
            try:
                made = cls(**given)
            except Unfit:
                raise
            except Exception as error:
                if accepted.get():
                    made, restored = self._filled(parts), parts
                elif level == LENIENT:
                    raise
                else:
                    raise Unfit("an object", f"{self.wanted}() raised {type(error).__name__}: {error}") from error
        for name, part in restored.items():
            # The fields were already what `__post_init__` had made of them; a frozen class is filled too.
            object.__setattr__(made, name, part)
        return made

    def _filled(self, parts: dict[str, Any]) -> Any:
        """Make one without its ``__init__``, with the defaults of what is absent."""
        made = self._cls.__new__(self._cls)
        for name, make in self._bound.items():
            if name not in parts:
                object.__setattr__(made, name, make())
        return made

    def parts(self) -> Iterable[tuple[str, Shape]]:
        return ((f".{name}", shape) for name, shape in (self._fields or self._prepare()).items())

    def fits(self, value: Any) -> bool:
        if type(value) is not self._cls:
            return False
        known = self._fields or self._prepare()
        if not self._sure or len(getattr(value, "__dict__", known)) != len(known):
            return False
        return all(shape.fits(getattr(value, name, value)) for name, shape in known.items())


class Typed(Shape):
    """A ``TypedDict``: a dict whose values have shapes."""

    __slots__ = ("_cls", "_fields", "_shapes", "wanted")

    kind = dict
    plain = False

    def __init__(self, cls: Any, shapes: Shapes) -> None:
        self._cls = cls
        self._shapes = shapes
        self._fields: Mapping[str, Shape] | None = None
        self.wanted = cls.__qualname__

    def read(self, value: Any, level: int) -> Any:
        if not isinstance(value, dict):
            if level == LENIENT or value is None:
                return value
            raise Unfit(shown(value), f"a {self.wanted} is an object")
        if self._fields is None:
            self._fields = self._shapes()
        items = cast("dict[str, Any]", value)
        if level == EXACT and not (items.keys() <= self._fields.keys() and items.keys() >= self._cls.__required_keys__):
            raise Unfit("an object", f"the fields of {self.wanted} are wanted")
        made = dict(items)
        name = ""
        try:
            for name, shape in self._fields.items():
                if name in items:
                    made[name] = shape.read(items[name], level)
        except Unfit as unfit:
            raise unfit.at(name) from None
        return made

    def parts(self) -> Iterable[tuple[str, Shape]]:
        if self._fields is None:
            self._fields = self._shapes()
        return ((f".{name}", shape) for name, shape in self._fields.items())

    def fits(self, value: Any) -> bool:
        if type(value) is not dict:
            return False
        if self._fields is None:
            self._fields = self._shapes()
        fields = self._fields
        items = cast("dict[str, Any]", value)
        return set(map(type, items)) <= {str} and all(fields.get(name, ANY).fits(item) for name, item in items.items())


class Chosen(Shape):
    """A member of an enum, stored as the value it is."""

    __slots__ = ("_by_json", "_cls", "_sure", "wanted")

    plain = False

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self._by_json: dict[bytes, Any] | None = None
        self._sure: bool | None = None
        names = [repr(member.value) for member in cls]
        listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        self.wanted = f"a {cls.__qualname__} ({listed})"

    def read(self, value: Any, level: int) -> Any:
        if isinstance(value, self._cls) or (value is None and level == STRICT):
            return value
        try:
            member = self._cls(value)
        except ValueError as error:
            member = self._by_form(value)
            if member is None:
                raise NoMember(shown(value), f"{self.wanted} is wanted") from error
            return member
        if level == EXACT and type(member.value) is not type(value):
            # True and 1.0 are equal to 1, but were not written by its member.
            raise Unfit(shown(value), f"{self.wanted} is wanted")
        return member

    def _by_form(self, value: Any) -> Any:
        """Return the member whose value is not JSON's, such as a tuple or a date, by what JSON has for it."""
        from .. import _native

        if self._by_json is None:
            of_members = [member for member in self._cls if type(member.value) not in SCALARS]
            self._by_json = {_native.encode_json(member): member for member in of_members}
        return self._by_json.get(_native.encode_json(value)) if self._by_json else None

    def fits(self, value: Any) -> bool:
        if type(value) is not self._cls:
            return False
        if self._sure is None:
            self._sure = self._is_sure()
        return self._sure

    def _is_sure(self) -> bool:
        from .. import _native

        cls = self._cls
        try:
            return all(self.read(_native.decode_json(_native.encode_json(member)), EXACT) is member for member in cls)
        except Exception:
            return False


class NoMember(Unfit, ValueError):
    """A value that is none of an enum's; calling the enum with it raises a ``ValueError``."""
