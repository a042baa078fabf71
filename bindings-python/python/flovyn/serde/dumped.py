"""What pydantic writes of its models, with sets in an order that is the same in every process."""

from __future__ import annotations

from typing import Any, cast
from weakref import WeakKeyDictionary

from .. import _native
from .forms import Formless

_MAY_HOLD = ("'set'", "'frozenset'", "'any'", "'is-instance'", "Mock")
"""What the schema of a model says where there may be a set in it."""

_WITH_SETS: WeakKeyDictionary[type[Any], bool] = WeakKeyDictionary()


def dumped(model: Any) -> Any:
    """Return the JSON of a model; raises ``Formless``."""
    try:
        made: Any = model.model_dump(mode="json")
    except UnicodeDecodeError as error:
        raise Formless(
            ": it has bytes that are no text; give its config ser_json_bytes='base64' and val_json_bytes='base64'"
        ) from error
    except ValueError as error:
        if type(error).__name__ != "PydanticSerializationError":
            raise
        raise Formless(f": {str(error).rstrip('.')}") from error
    cls = cast(Any, type(model))
    with_sets = _WITH_SETS.get(cls)
    if with_sets is None:
        schema = repr(cls.__pydantic_core_schema__)
        with_sets = _WITH_SETS[cls] = any(name in schema for name in _MAY_HOLD)
    return _ordered(model, made) if with_sets else made


def _ordered(value: Any, made: Any) -> Any:
    """Put what was written of sets in order, as far as what was written is like the value."""
    if isinstance(made, list):
        items = cast("list[Any]", made)
        if isinstance(value, (set, frozenset)):
            return _set(items)
        if isinstance(value, (list, tuple)) and len(cast("list[Any]", value)) == len(items):
            return [_ordered(*pair) for pair in zip(cast("list[Any]", value), items, strict=True)]
    elif isinstance(made, dict):
        parts = cast("dict[str, Any]", made)
        if isinstance(value, dict):
            values = cast("dict[Any, Any]", value).values()
            if len(values) == len(parts):
                return {key: _ordered(each, parts[key]) for key, each in zip(parts, values, strict=True)}
        elif hasattr(cast(Any, type(value)), "model_fields"):
            return _fields(value, parts)
        elif hasattr(value, "__dataclass_fields__"):
            return {key: _ordered(getattr(value, key, None), part) for key, part in parts.items()}
    return cast(Any, made)


def _fields(model: Any, parts: dict[str, Any]) -> dict[str, Any]:
    names: dict[str, str] = {}
    fields: dict[str, Any] = cast(Any, type(model)).model_fields
    for name, field in fields.items():
        names[field.serialization_alias or name] = name
        names.setdefault(name, name)
    held: dict[str, Any] = {**(model.__pydantic_extra__ or {}), **model.__dict__}
    return {key: _ordered(held.get(names.get(key, key)), part) for key, part in parts.items()}


def _set(items: list[Any]) -> Any:
    try:
        # A set of what was written is put in order as any other one.
        written = set(items)
        if len(written) == len(items):
            return written
    except TypeError:
        # Objects and lists have no hash.
        pass
    return sorted(items, key=_native.encode_json)
