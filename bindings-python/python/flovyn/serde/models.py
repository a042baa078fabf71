"""Shapes of pydantic models."""

from __future__ import annotations

import math
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, cast

from .records import unknown
from .shapes import EXACT, LENIENT, STRICT, Shape, Unfit, accepted, is_exact, shown

Certain = Callable[[Any], bool]
"""Tells that a part of a model comes back as it is, whatever pydantic makes of other ones."""

_PLAIN_CONFIG = frozenset(
    {"title", "frozen", "strict", "arbitrary_types_allowed", "from_attributes", "use_attribute_docstrings"}
)
"""What a model may say of itself that does not change values."""


class Model(Shape):
    """A pydantic model. It is written by the names of its fields, whatever aliases it takes."""

    __slots__ = ("_cls", "_known", "_looked", "_options", "wanted")

    kind = dict
    plain = False

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self._known: dict[str, Certain] | None = None
        self._looked = False
        self._options: dict[str, Any] | None = None
        self.wanted = cls.__qualname__

    def read(self, value: Any, level: int) -> Any:
        cls = self._cls
        if isinstance(value, cls) or (value is None and level == STRICT):
            return value
        try:
            made = self._validated(value)
        except ValueError as error:
            if accepted.get() and (unchecked := self._unchecked(value, error)) is not None:
                return unchecked
            # Whoever awaits a result gets pydantic's own error; a state and a union have to say where it is.
            if level == LENIENT or not hasattr(error, "errors"):
                raise
            raise _unfit_by(error, self.wanted) from error
        if level == EXACT and not _same_json(made, value):
            raise Unfit(shown(value), f"{self.wanted} would not be written like that")
        if level == STRICT:
            _check_kept(value, made)
        return made

    def _unchecked(self, value: Any, error: Any) -> Any:
        """Make one of fields that were accepted once; none where it lacks one, as no validator could help."""
        from .hints import shape_of

        cls, given = self._cls, _by_alias(self._cls, value)
        if not isinstance(given, dict) or any(each["type"] == "missing" for each in error.errors()):
            return None
        items = cast("dict[str, Any]", given)
        parts: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            known = [name, field.alias, field.validation_alias]
            stored = next((each for each in known if isinstance(each, str) and each in items), None)
            if stored is not None:
                parts[name] = _part(field, shape_of(field.annotation), items[stored])
        return cls.model_construct(**parts)

    def _validated(self, value: Any) -> Any:
        cls = self._cls
        if self._options is None:
            version = str(getattr(sys.modules.get("pydantic"), "VERSION", "2.0")).split(".")
            takes_names = (int(version[0]), int(version[1])) >= (2, 11)
            self._options = {"by_alias": True, "by_name": True} if takes_names else {}
        if not self._options:
            value = _by_alias(cls, value)
        try:
            return cls.model_validate(value, **self._options)
        except ValueError:
            # A strict model takes text for a date and a list for a tuple only from JSON, which this is.
            if not cls.model_config.get("strict"):
                raise
            from .. import _native

            return cls.model_validate_json(_native.encode_json(value), **self._options)

    def fits(self, value: Any) -> bool:
        if type(value) is not self._cls:
            return False
        if not self._looked:
            self._known = _certain_fields(self._cls)
            self._looked = True
        known, parts = self._known, value.__dict__
        return (
            known is not None
            and parts.keys() == known.keys()
            and all(certain(parts[name]) for name, certain in known.items())
        )


def _part(field: Any, shape: Shape, value: Any) -> Any:
    import pydantic

    try:
        # The type alone makes a date of its text; what else was said of the field is what it does not pass.
        return pydantic.TypeAdapter(field.annotation).validate_python(value)
    except ValueError:
        return shape.read(value, LENIENT)


def _unfit_by(error: Any, wanted: str) -> Unfit:
    """Say the first thing that pydantic has against a value."""
    first: dict[str, Any] = error.errors(include_url=False)[0]
    unfit = Unfit(shown(first["input"]), f"{wanted} says: {first['msg']}")
    for step in reversed(first["loc"]):
        unfit.at(step if isinstance(step, int) else str(step))
    return unfit


def _by_alias(cls: Any, value: Any) -> Any:
    """Name the fields as validation wants them; pydantic takes their own names since 2.11 only."""
    if not isinstance(value, dict):
        return value
    items = cast("dict[str, Any]", value)
    renamed = dict(items)
    for name, field in cls.model_fields.items():
        alias = field.validation_alias
        if isinstance(alias, str) and name in items and alias not in items:
            renamed[alias] = renamed.pop(name)
    return renamed


def _same_json(made: Any, value: Any) -> bool:
    from .. import _native

    try:
        return _native.encode_json(made) == _native.encode_json(value)
    except Exception:
        return False


def _check_kept(value: Any, made: Any) -> None:
    """Refuse what a model has silently left out of what was stored."""
    parts: list[tuple[Any, Any, Any]] = []
    if isinstance(value, list):
        if isinstance(made, (list, tuple)):
            pairs = zip(cast("list[Any]", value), cast("list[Any]", made), strict=False)
            parts = [(at, *pair) for at, pair in enumerate(pairs)]
    elif isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        kept = _kept_by(made, items)
        parts = [(name, item, kept[name]) for name, item in items.items() if name in kept]
    for step, item, part in parts:
        try:
            _check_kept(item, part)
        except Unfit as unfit:
            raise unfit.at(step) from None


def _kept_by(made: Any, items: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a model by every name that stored JSON may have for them."""
    if isinstance(made, dict):
        return cast("dict[str, Any]", made)
    cls = cast(Any, type(made))
    if not hasattr(cls, "model_fields") or cls.model_config.get("extra") == "allow":
        return {}
    parts: dict[str, Any] = {}
    for name, field in cls.model_fields.items():
        for known in (name, field.alias, field.validation_alias, field.serialization_alias):
            if isinstance(known, str):
                parts[known] = getattr(made, name, None)
    # A choice of aliases, or a path, may take what has any name.
    chosen = any(not isinstance(field.validation_alias, (str, type(None))) for field in cls.model_fields.values())
    for name, item in items.items():
        if name not in parts and name not in cls.model_computed_fields and not chosen:
            raise unknown(name, item, cls)
    return parts


def _certain_fields(cls: Any) -> dict[str, Certain] | None:
    """Return what tells of each field that it comes back; none where the model does more than to hold its fields."""
    import pydantic

    base: Any = pydantic.BaseModel
    own = ("__init__", "model_post_init", "model_dump", "model_validate", "__get_pydantic_core_schema__")
    decorators = cls.__pydantic_decorators__
    changing = ("validators", "field_validators", "root_validators", "model_validators", "field_serializers")
    if (
        not set(cls.model_config) <= _PLAIN_CONFIG
        or any(getattr(cls, name, None) != getattr(base, name, None) for name in own[:3])
        or any(getattr(getattr(cls, name), "__func__", None) is not getattr(base, name).__func__ for name in own[3:])
        or any(getattr(decorators, name, True) for name in (*changing, "model_serializers"))
    ):
        return None
    found: dict[str, Certain] = {}
    for name, field in cls.model_fields.items():
        named = field.alias is not None or field.validation_alias is not None or field.serialization_alias is not None
        certain = None if named or field.exclude or field.metadata else _certain(field.annotation)
        if certain is None:
            return None
        found[name] = certain
    return found


def _certain(hint: Any) -> Certain | None:
    """Return what tells that a value of an annotation comes back from pydantic; none where it takes a try."""
    if hint is float:
        return lambda value: type(value) is float and math.isfinite(value)
    if hint in (str, int, bool, type(None)):
        return lambda value: type(value) is hint
    if hint is Any:
        return is_exact
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is list and arguments:
        return _certain_items(arguments[0])
    if origin is dict and arguments and arguments[0] is str:
        items = _certain_items(arguments[1])
        return None if items is None else lambda value: _is_object(value) and items([*value.values()])
    if origin is typing.Union or origin is getattr(types, "UnionType", None):
        members = [_certain(each) for each in arguments if each is not type(None)]
        if len(members) == 1 and members[0] is not None:
            only = members[0]
            return lambda value: value is None or only(value)
        return None
    if hasattr(hint, "__pydantic_decorators__") and hasattr(hint, "model_validate"):
        return Model(hint).fits
    return None


def _certain_items(hint: Any) -> Certain | None:
    item = _certain(hint)
    if item is None:
        return None

    def certain(value: Any) -> bool:
        items = cast("list[Any]", value)
        if type(items) is not list:
            return False
        return set(map(type, items)) <= {hint} if hint in (str, int, bool) else all(map(item, items))

    return certain


def _is_object(value: Any) -> bool:
    return type(value) is dict and set(map(type, cast("dict[Any, Any]", value))) <= {str}
