"""Values between Python and the journal: what an annotation rebuilds, how a call's arguments become one value.

The text itself is written and read in Rust. Here is only what needs Python's types: dataclasses and pydantic models
behind annotations, and the binding of arguments.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

Rebuild = Callable[[Any], Any]

_PLAIN: frozenset[Any] = frozenset({Any, None, type(None), str, int, float, bool, dict, list, object})


def rebuilder(hint: Any, *, nested: bool = False) -> Rebuild | None:
    """Return what turns decoded JSON into the annotated type; none where JSON is the value already.

    Top-level tuples stay lists: that is what an await delivers after a restart. Inside a dataclass they are rebuilt.
    """
    if isinstance(hint, typing.Hashable) and hint in _PLAIN:
        return None
    if hint is bytes:
        return None if nested else _bytes_rebuilder
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
        return _class_rebuilder(hint)
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is None or origin is typing.Literal:
        return None
    if hasattr(hint, "__metadata__"):
        return rebuilder(origin if origin is not typing.Annotated else arguments[0], nested=nested)
    if origin is Union or origin is getattr(types, "UnionType", None):
        return _union_rebuilder(arguments, nested)
    if origin is tuple and nested:
        return _tuple_rebuilder(arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2:
        of_value = rebuilder(arguments[1], nested=nested)
        return of_value and (lambda value: {key: of_value(item) for key, item in value.items()})
    if isinstance(origin, type) and issubclass(origin, Sequence) and arguments and origin is not tuple:
        of_item = rebuilder(arguments[0], nested=nested)
        return of_item and (lambda value: [of_item(item) for item in value])
    if isinstance(origin, type):
        return _class_rebuilder(typing.cast(Any, origin))
    return None


def _bytes_rebuilder(value: Any) -> Any:
    if type(value) is bytes:
        return value
    from .blob import as_bytes

    return as_bytes(value)


def _class_rebuilder(cls: Any) -> Rebuild | None:
    blob = sys.modules.get("flovyn.blob")
    if blob is not None and cls is blob.Blob:
        return blob.as_blob
    validate = getattr(cls, "model_validate", None)
    if validate is not None and hasattr(cls, "__pydantic_core_schema__"):
        return validate
    if hasattr(cls, "__dataclass_fields__"):
        return _dataclass_rebuilder(cls)
    enum = sys.modules.get("enum")
    if enum is not None and issubclass(cls, enum.Enum):
        return cls
    return None


def _dataclass_rebuilder(cls: Any) -> Rebuild:
    known: dict[str, Rebuild | None] = {}
    later: list[str] = []

    def prepare() -> None:
        import dataclasses

        hints = hints_of(cls)
        for field in dataclasses.fields(cls):
            known[field.name] = rebuilder(hints.get(field.name), nested=True)
            if not field.init:
                later.append(field.name)

    def rebuild(value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError(f"a {cls.__qualname__} is rebuilt from an object, but {type(value).__name__} was found")
        if not known:
            prepare()
        items = typing.cast("dict[str, Any]", value)
        parts = {name: make(items[name]) if make else items[name] for name, make in known.items() if name in items}
        rest = {name: parts.pop(name) for name in later if name in parts}
        made = cls(**parts)
        for name, item in rest.items():
            object.__setattr__(made, name, item)
        return made

    return rebuild


def _union_rebuilder(arguments: tuple[Any, ...], nested: bool) -> Rebuild | None:
    makers = [make for argument in arguments if (make := rebuilder(argument, nested=nested)) is not None]
    if not makers:
        return None
    plain = any(argument not in (None, type(None)) and argument in _PLAIN for argument in arguments)

    def rebuild(value: Any) -> Any:
        if value is None:
            return None
        for make in makers:
            try:
                return make(value)
            except (TypeError, ValueError, AttributeError):
                continue
        if plain:
            return value
        return makers[-1](value)

    return rebuild


def _tuple_rebuilder(arguments: tuple[Any, ...]) -> Rebuild:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        of_item = rebuilder(arguments[0], nested=True)
        return lambda value: tuple(map(of_item, value)) if of_item else tuple(value)
    makers = [rebuilder(argument, nested=True) for argument in arguments]
    return lambda value: tuple(make(item) if make else item for make, item in zip(makers, value, strict=True))


def hints_of(thing: Any, local: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Resolve annotations; those that cannot be resolved are left out."""
    if not isinstance(thing, type) and getattr(thing, "__annotations__", None) is None:
        # `typing` would refuse it, with the text of a `partial` and all that is bound to it in the message.
        return {}
    try:
        return typing.get_type_hints(thing, localns=dict(local) if local else None, include_extras=True)
    except Exception:
        raw: Mapping[str, Any] = getattr(thing, "__annotations__", {})
        names: dict[str, Any] = dict(getattr(thing, "__globals__", None) or _module_of(thing))
        names.update(local or {})
        return {name: hint for name, text in raw.items() if (hint := _resolved(text, names)) is not None}


def _module_of(thing: Any) -> Mapping[str, Any]:
    return vars(sys.modules.get(getattr(thing, "__module__", ""), typing))


def _resolved(text: Any, names: dict[str, Any]) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return eval(text, names)
    except Exception:
        return None


class Signature:
    """How a function takes its arguments, and their one wire value: nothing, the value, or an object by name."""

    __slots__ = (
        "_defaults",
        "_fn",
        "_keyword",
        "_makers",
        "_many",
        "_options",
        "_positional",
        "local",
        "takes_context",
    )

    def __init__(
        self,
        fn: Callable[..., Any],
        context: str,
        local: Mapping[str, Any] | None = None,
        *,
        first_is_context: bool = False,
    ) -> None:
        self._fn = fn
        self.local = local
        """The names around the function, where it was defined inside another one."""
        self._many: str | None = None
        self._options: str | None = None
        self._makers: dict[str, Rebuild] | None = None
        code = getattr(fn, "__code__", None)
        if code is None:
            positional, keyword, self._defaults = self._inspected(fn)
        else:
            names = code.co_varnames
            count = code.co_argcount
            positional = list(names[:count])
            keyword = list(names[count : count + code.co_kwonlyargcount])
            at = count + code.co_kwonlyargcount
            if code.co_flags & 0x04:
                self._many = names[at]
                at += 1
            if code.co_flags & 0x08:
                self._options = names[at]
            defaults: tuple[Any, ...] = getattr(fn, "__defaults__", None) or ()
            self._defaults = dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))
            self._defaults.update(getattr(fn, "__kwdefaults__", None) or {})
            if hasattr(fn, "__self__"):
                positional = positional[1:]
        self.takes_context: bool = bool(positional) and (
            first_is_context or self._is_context(fn, positional[0], context)
        )
        self._positional: tuple[str, ...] = tuple(positional[1:] if self.takes_context else positional)
        self._keyword: tuple[str, ...] = tuple(keyword)

    def _inspected(self, fn: Callable[..., Any]) -> tuple[list[str], list[str], dict[str, Any]]:
        import inspect

        positional: list[str] = []
        keyword: list[str] = []
        defaults: dict[str, Any] = {}
        for name, parameter in inspect.signature(fn).parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                self._many = name
            elif parameter.kind is parameter.VAR_KEYWORD:
                self._options = name
            else:
                (keyword if parameter.kind is parameter.KEYWORD_ONLY else positional).append(name)
            if parameter.default is not parameter.empty:
                defaults[name] = parameter.default
        return positional, keyword, defaults

    @staticmethod
    def _is_context(fn: Callable[..., Any], name: str, context: str) -> bool:
        hint = getattr(fn, "__annotations__", {}).get(name)
        if isinstance(hint, str):
            return hint.split("[")[0].split(".")[-1].strip("\"' ") == context
        hint = typing.get_origin(hint) or hint
        return getattr(hint, "__name__", "") == context

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The values of parameters that need not be given."""
        return self._defaults

    @property
    def names(self) -> tuple[str, ...]:
        """All parameters beside the context, in order."""
        more = [name for name in (self._many, self._options) if name is not None]
        return (*self._positional, *self._keyword, *more)

    def wire(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the one value that stands for the arguments, defaults filled in."""
        if len(args) == 1 and not kwargs and len(self._positional) == 1 and len(self.names) == 1:
            return args[0]
        bound = self._bind(args, kwargs)
        if len(self.names) == 0:
            return None
        return bound[self.names[0]] if len(self.names) == 1 else bound

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        name = getattr(self._fn, "__name__", "task")
        count = len(self._positional)
        if len(args) > count and self._many is None:
            raise TypeError(f"{name}() takes {count} positional arguments but {len(args)} were given")
        bound: dict[str, Any] = dict(zip(self._positional, args, strict=False))
        options: dict[str, Any] = {}
        for key, value in kwargs.items():
            if key in bound:
                raise TypeError(f"{name}() got multiple values for argument {key!r}")
            if key in self._positional or key in self._keyword:
                bound[key] = value
            elif self._options is not None:
                options[key] = value
            else:
                raise TypeError(f"{name}() got an unexpected keyword argument {key!r}")
        for key in (*self._positional, *self._keyword):
            if key not in bound:
                if key not in self._defaults:
                    raise TypeError(f"{name}() missing a required argument: {key!r}")
                bound[key] = self._defaults[key]
        if self._many is not None:
            bound[self._many] = list(args[count:])
        if self._options is not None:
            bound[self._options] = options
        return bound

    def unwire(self, value: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments that a wire value stands for, annotated types rebuilt."""
        names = self.names
        if not names:
            return [], {}
        if len(names) == 1:
            bound: dict[str, Any] = {names[0]: value}
        else:
            if not isinstance(value, dict):
                raise TypeError(
                    f"the input of {getattr(self._fn, '__name__', 'task')}() is no object by parameter name"
                )
            bound = dict(typing.cast("dict[str, Any]", value))
        for name, make in self._rebuilders().items():
            if name in bound and bound[name] is not None:
                bound[name] = make(bound[name])
        args = [bound[name] if name in bound else self._defaults[name] for name in self._positional]
        kwargs = {name: bound[name] for name in self._keyword if name in bound}
        if self._many is not None:
            args.extend(bound.get(self._many) or [])
        if self._options is not None:
            kwargs.update(bound.get(self._options) or {})
        return args, kwargs

    def _rebuilders(self) -> dict[str, Rebuild]:
        if self._makers is None:
            hints = hints_of(self._fn, self.local)
            makers = {name: rebuilder(hints.get(name)) for name in (*self._positional, *self._keyword)}
            self._makers = {name: make for name, make in makers.items() if make is not None}
        return self._makers

    def returns(self) -> Rebuild | None:
        """Return what rebuilds the annotated return type, if anything."""
        return rebuilder(hints_of(self._fn, self.local).get("return"))


def local_names(fn: Callable[..., Any], depth: int) -> Mapping[str, Any] | None:
    """Return the names around a function that was defined inside another one, for its annotations."""
    if "<locals>" not in getattr(fn, "__qualname__", ""):
        return None
    return dict(sys._getframe(depth + 1).f_locals)  # pyright: ignore[reportPrivateUsage]


def described(value: Any) -> Any:
    """Return the JSON of what describes itself, such as a budget of the toolkit, and anything else as it is."""
    describe: Callable[[], Any] | None = getattr(value, "describe", None)
    return value if describe is None else describe()
