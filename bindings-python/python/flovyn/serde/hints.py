"""Annotations: what shape each one stands for. Loaded when the first value of an annotation comes."""

from __future__ import annotations

import collections
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Union

from .kept import Unknown, formless_member, unknown_class, unknown_maker
from .models import Model
from .parsers import Text, parsed
from .records import Chosen, Record, Typed
from .resolve import hints_of
from .shapes import ANY, STRICT, Either, Items, Mapped, OneOf, Scalar, Shape, Tuple, Whole

_SCALARS: dict[Any, Shape] = {of: Scalar(of) for of in (str, int, float, bool, type(None))}
_SCALARS[None] = _SCALARS[type(None)]
_NO_KEY = "is no key of an object in JSON: declare a list of pairs"
_UNIONS = (Union, getattr(types, "UnionType", Union))
_WRAPPERS = frozenset({"Required", "NotRequired", "ReadOnly", "Final", "ClassVar", "InitVar"})

Bound = Mapping[Any, Any]
"""What type variables stand for."""


def shape_of(hint: Any, *, local: Mapping[str, Any] | None = None) -> Shape:
    """Return the shape of an annotation. ``local`` has the names around it, where it is inside of a function."""
    return _Compiler(local).shape(hint, {})


class _Compiler:
    """Makes shapes; a class is one shape however often it is named, so that one may hold itself."""

    def __init__(self, local: Mapping[str, Any] | None) -> None:
        self._local = local
        self._made: dict[Any, Shape] = {}

    def shape(self, hint: Any, bound: Bound) -> Shape:
        if hint is Any or hint is object:
            return ANY
        if _is_hashable(hint) and hint in _SCALARS:
            return _SCALARS[hint]
        if isinstance(hint, typing.TypeVar):
            return self._variable(hint, bound)
        if hasattr(hint, "__supertype__"):
            return self.shape(hint.__supertype__, bound)
        if type(hint).__name__ == "TypeAliasType":
            return self.shape(hint.__value__, bound)
        arguments = typing.get_args(hint)
        origin = typing.get_origin(hint)
        if hasattr(hint, "__metadata__"):
            return self.shape(arguments[0], bound)
        if origin is not None and str(origin).rpartition(".")[2] in _WRAPPERS:
            return self.shape(arguments[0], bound)
        if origin is typing.Literal:
            return OneOf(arguments)
        if origin in _UNIONS:
            members = [self.shape(each, bound) for each in arguments if each not in (None, type(None))]
            return Either(members, nullable=len(members) < len(arguments))
        cls: Any = origin or hint
        if type(origin).__name__ == "TypeAliasType":
            inner = dict(zip(cls.__type_params__, arguments, strict=False))
            return self.shape(cls.__value__, {**bound, **inner})
        return self._class(cls, arguments, bound) if isinstance(cls, type) else unknown_maker(hint) or ANY

    def _variable(self, variable: Any, bound: Bound) -> Shape:
        if variable in bound:
            return self.shape(bound[variable], {})
        if variable.__bound__ is not None:
            return self.shape(variable.__bound__, {})
        members = [self.shape(each, {}) for each in variable.__constraints__]
        return Either(members, nullable=False) if members else ANY

    def _class(self, cls: Any, arguments: tuple[Any, ...], bound: Bound) -> Shape:
        if issubclass(cls, (bytes, bytearray)):
            return _whole(cls)
        if cls.__module__ == "flovyn.blob":
            return _whole(cls)
        if hasattr(cls, "model_validate") and hasattr(cls, "__pydantic_core_schema__"):
            return self._once(cls, (), lambda: Model(cls))
        if hasattr(cls, "__dataclass_fields__"):
            given = tuple(substituted(each, bound) for each in arguments)
            return self._once(cls, given, lambda: Record(cls, lambda: self._fields(cls, given)))
        if typing.is_typeddict(cls):
            given = tuple(substituted(each, bound) for each in arguments)
            return self._once(cls, given, lambda: Typed(cls, lambda: self._fields(cls, given)))
        enum = sys.modules.get("enum")
        if enum is not None and issubclass(cls, enum.Enum):
            return formless_member(cls) or Chosen(cls)
        if (text := parsed(cls)) is not None:
            return text
        if cls is memoryview:
            return unknown_class(cls) or ANY
        if issubclass(cls, tuple):
            return self._tuple(cls, arguments, bound)
        if issubclass(cls, Mapping):
            return self._mapping(typing.cast(Any, cls), arguments, bound)
        if _is_standard(cls) and issubclass(cls, Iterable) and not issubclass(cls, (str, typing.Iterator)):
            return self._items(typing.cast(Any, cls), arguments, bound)
        return unknown_class(cls) or ANY

    def _once(self, cls: Any, arguments: tuple[Any, ...], make: Callable[[], Shape]) -> Shape:
        key = (cls, arguments)
        try:
            return self._made[key] if key in self._made else self._made.setdefault(key, make())
        except TypeError:
            return make()

    def _fields(self, cls: Any, arguments: tuple[Any, ...]) -> Mapping[str, Shape]:
        hints = hints_of(cls, self._local)
        variables = _variables_of(cls, arguments)
        owners: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            for name in getattr(base, "__annotations__", {}) if "__annotations__" in vars(base) else ():
                owners[name] = base
        names: Iterable[str] = getattr(cls, "__dataclass_fields__", hints)
        return {
            name: self.shape(hints.get(name, Any), variables.get(owners.get(name, cls), variables[cls]))
            for name in names
        }

    def _tuple(self, cls: Any, arguments: tuple[Any, ...], bound: Bound) -> Shape:
        names: tuple[str, ...] | None = getattr(cls, "_fields", None)
        if names is not None:
            hints = hints_of(cls, self._local)
            return Tuple([self.shape(hints.get(name, Any), bound) for name in names], cls._make, names)
        if cls is not tuple:
            return ANY
        if not arguments or (len(arguments) == 2 and arguments[1] is Ellipsis):
            return Items(self.shape(arguments[0], bound) if arguments else ANY, tuple)
        return Tuple([self.shape(each, bound) for each in arguments])

    def _mapping(self, cls: Any, arguments: tuple[Any, ...], bound: Bound) -> Shape:
        make: Any = None if cls is dict or cls.__module__ in ("collections.abc", "typing") else cls
        if make is collections.defaultdict or not _is_standard(cls):
            # Nobody knows its factory.
            make = None
        if cls is collections.Counter:
            return Mapped(_SCALARS[int], self._key(arguments[:1], bound)[0], make)
        item = self.shape(arguments[1], bound) if len(arguments) == 2 else ANY
        key, keys = self._key(arguments[:1], bound)
        return Mapped(item, key, make, keys=keys)

    def _key(self, arguments: tuple[Any, ...], bound: Bound) -> tuple[Callable[[str], Any] | None, Shape | None]:
        """Return what makes a key of the text that JSON has for it, and the shape of keys that have no text."""
        hint: Any = substituted(arguments[0], bound) if arguments else str
        while hasattr(hint, "__metadata__") or hasattr(hint, "__supertype__"):
            hint = hint.__supertype__ if hasattr(hint, "__supertype__") else typing.get_args(hint)[0]
        if hint is int or hint is float:
            return (lambda key: hint(key) if type(key) is str else key), None
        member = self.shape(hint, {})
        if isinstance(member, (Chosen, Text)):
            return (lambda key: member.read(key, STRICT)), None
        if isinstance(member, (Tuple, Items, Mapped, Record)):
            return None, Unknown(hint if isinstance(hint, type) else typing.get_origin(hint), _NO_KEY)
        return None, member if isinstance(member, Unknown) else None

    def _items(self, cls: Any, arguments: tuple[Any, ...], bound: Bound) -> Shape:
        item = self.shape(arguments[0], bound) if arguments else ANY
        if issubclass(cls, AbstractSet):
            return Items(item, frozenset if cls in (frozenset, AbstractSet) else set)
        return Items(item, collections.deque if cls is collections.deque else None)


def _is_hashable(hint: Any) -> bool:
    return isinstance(hint, typing.Hashable)


def _is_standard(cls: Any) -> bool:
    """Whether a collection is one of Python's own, of which it is known how it is made."""
    return cls.__module__ in ("builtins", "collections", "collections.abc", "typing")


def _whole(cls: Any) -> Shape:
    from ..blob import Blob, as_blob, as_bytes

    if cls is Blob:
        return Whole(cls, as_blob)
    if issubclass(cls, bytearray):
        return Whole(
            cls, lambda value: cls(typing.cast(Any, as_bytes(value))) if isinstance(value, (bytes, Blob)) else value
        )
    return Whole(cls, lambda value: value if type(value) is bytes else as_bytes(value))


def substituted(hint: Any, bound: Bound) -> Any:
    """Return an annotation with what its type variables stand for."""
    if isinstance(hint, typing.TypeVar):
        return bound.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if not bound or not parameters or type(hint) is type:
        return hint
    return hint[tuple(bound.get(each, each) for each in parameters)]


def _variables_of(cls: Any, arguments: tuple[Any, ...]) -> dict[Any, Bound]:
    """Return what the type variables of a class and of its bases stand for, class by class."""
    own: Bound = dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=False))
    found: dict[Any, Bound] = {cls: own}
    bases = typing.cast(Any, vars(cls)).get("__orig_bases__", cls.__bases__)
    for base in bases:
        origin = typing.get_origin(base)
        origin = origin or base
        if isinstance(origin, type) and origin is not typing.Generic:
            given = tuple(substituted(each, own) for each in typing.get_args(base))
            found |= {name: bound for name, bound in _variables_of(origin, given).items() if name not in found}
    return found
