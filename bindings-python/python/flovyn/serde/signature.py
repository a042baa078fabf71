"""How a function takes its arguments, and their one wire value: nothing, the value, or an object by name."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ..errors import NotSerializable
from .codec import Codec, Rebuild, codec_of, under
from .kept import is_plain
from .resolve import hints_of
from .serializer import Own
from .shapes import are_exact


class Signature:
    """How a function takes its arguments, and their one wire value: nothing, the value, or an object by name."""

    __slots__ = (
        "_codecs",
        "_defaults",
        "_fn",
        "_keyword",
        "_many",
        "_options",
        "_positional",
        "_returned",
        "local",
        "own",
        "takes_context",
    )

    def __init__(
        self,
        fn: Callable[..., Any],
        context: str,
        local: Mapping[str, Any] | None = None,
        *,
        first_is_context: bool = False,
        own: Own | None = None,
    ) -> None:
        self._fn = fn
        self.own = own
        """What writes and reads its values in place of their annotations."""
        self.local = local
        """The names around the function, where it was defined inside another one."""
        self._many: str | None = None
        self._options: str | None = None
        self._codecs: dict[str, Codec] | None = None
        self._returned: Codec | None = None
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

    def takes(self, name: str) -> bool:
        """Whether an argument may be given by this name."""
        return self._options is not None or name in self._keyword or name in self._positional

    def _inspected(self, fn: Callable[..., Any]) -> tuple[list[str], list[str], dict[str, Any]]:
        import inspect

        positional: list[str] = []
        keyword: list[str] = []
        defaults: dict[str, Any] = {}
        try:
            parameters = inspect.signature(fn).parameters
        except ValueError:
            # Of `str` and others that are written in C nobody knows; they take what they take.
            self._many, self._options = "args", "kwargs"
            return positional, keyword, defaults
        for name, parameter in parameters.items():
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

    @property
    def single(self) -> tuple[str, ...]:
        """The parameters beside the context that stand for one value each: not ``*args`` and ``**kwargs``."""
        return (*self._positional, *self._keyword)

    def codec(self, name: str) -> Codec:
        """What reads and checks the values of a parameter."""
        return self._known()[name]

    def is_annotated(self, name: str) -> bool:
        """Whether a parameter says what it takes."""
        return name in (getattr(self._fn, "__annotations__", None) or {})

    def wire(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, travels: bool = False) -> Any:
        """Return the one value that stands for the arguments, defaults filled in.

        Where it ``travels`` the function gets what is read of it, so what would be read as something else is refused.
        """
        names = self.names
        if self.own is not None:
            return self._dumped(self._bind(args, kwargs))
        if len(args) == 1 and not kwargs and len(self._positional) == 1 and len(names) == 1:
            return self.check_input(args[0]) if travels else args[0]
        bound = self._bind(args, kwargs)
        if len(names) == 0:
            return None
        value = bound[names[0]] if len(names) == 1 else bound
        return self.check_input(value) if travels else value

    def _dumped(self, bound: Mapping[str, Any]) -> Any:
        parts = {name: self._each(name, part, "dump") for name, part in bound.items()}
        return None if not self.names else parts[self.names[0]] if len(self.names) == 1 else parts

    def _each(self, name: str, part: Any, way: Literal["dump", "load"]) -> Any:
        """Take a parameter's value through the serializer; of those that stand for any number of arguments, each."""
        of: Callable[[Any], Any] = getattr(self.own, way)
        if name == self._many and part is not None:
            return [of(each) for each in part]
        if name == self._options and part is not None:
            return {key: of(each) for key, each in part.items()}
        return of(part)

    def own_input(self, given: Any) -> Any:
        """Return what stands for a wire value whose parts are not written yet."""
        return self._dumped({self.names[0]: given} if len(self.names) == 1 else given)

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments for an attempt in this process, alike to those of a later one (``alike.py``)."""
        if self.own is not None or (are_exact(args) and (not kwargs or are_exact(tuple(kwargs.values())))):
            return args, kwargs
        from .alike import alike

        nested = len(self.names) > 1
        written: Mapping[str, Any] = getattr(self._fn, "__annotations__", None) or {}
        many = [self._many] * (len(args) - len(self._positional)) if self._many is not None else []
        # What is annotated is made again of what is stored.
        made = [
            alike(arg, nested=nested) if is_plain(written.get(name or "")) else arg
            for name, arg in zip([*self._positional, *many], args, strict=False)
        ]
        named = {
            name: alike(arg, nested=nested)
            if is_plain(written.get(name if name in self.single else self._options or ""))
            else arg
            for name, arg in kwargs.items()
        }
        return tuple(made), named

    def check_input(self, value: Any) -> Any:
        """Return a wire value; refuse one that would come to the function as something else."""
        names = self.names
        codecs = self._known()
        if len(names) == 1:
            return codecs[names[0]].check(value)
        parts: Any = value
        if isinstance(parts, dict):
            for name, part in typing.cast("dict[str, Any]", parts).items():
                try:
                    (codecs.get(name) or codec_of(Any)).check(part)
                except NotSerializable as error:
                    raise under(name, error) from error
        return value

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
        if self.own is not None:
            bound = {name: self._each(name, part, "load") for name, part in bound.items()}
        for name, codec in self._known().items():
            if codec.rebuild is not None and bound.get(name) is not None:
                bound[name] = codec.rebuild(bound[name])
        args = [bound[name] if name in bound else self._defaults[name] for name in self._positional]
        kwargs = {name: bound[name] for name in self._keyword if name in bound}
        if self._many is not None:
            args.extend(bound.get(self._many) or [])
        if self._options is not None:
            kwargs.update(bound.get(self._options) or {})
        return args, kwargs

    def _known(self) -> dict[str, Codec]:
        if self._codecs is None:
            hints = hints_of(self._fn, self.local)
            for name, of in ((self._many, list), (self._options, dict)):
                if name is not None and name in hints:
                    hints[name] = list[hints[name]] if of is list else dict[str, hints[name]]
            self._codecs = {name: codec_of(hints.get(name, Any), local=self.local) for name in self.names}
        return self._codecs

    def returned(self, value: Any) -> Any:
        """Return what is stored for a result; refuse one that an await would deliver as something else."""
        if self.own is not None:
            return self.own.dump(value)
        return self._result().check(value)

    def returns(self) -> Rebuild | None:
        """Return what rebuilds the annotated return type, if anything."""
        rebuild = self._result().rebuild
        if self.own is None:
            return rebuild
        load = self.own.load
        return load if rebuild is None else lambda value: rebuild(load(value))

    def _result(self) -> Codec:
        if self._returned is None:
            self._returned = codec_of(hints_of(self._fn, self.local).get("return", Any), local=self.local)
        return self._returned
