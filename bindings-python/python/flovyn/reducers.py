"""How ``ctx.update(field=value)`` joins a new value with the old one: reducers named by ``Annotated``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .serde import hints_of

Reducer = Callable[[Any, Any], Any]


def append(old: Any, new: Any) -> Any:
    """Add items to a list: one item, or each of a list."""
    items: list[Any] = list(old or [])
    if isinstance(new, (list, tuple)):
        items.extend(new)  # pyright: ignore[reportUnknownArgumentType]
    else:
        items.append(new)
    return items


def merge(old: Any, new: Any) -> Any:
    """Join two dicts, the new one's values counting."""
    joined: dict[str, Any] = dict(old or {})
    joined.update(new)
    return joined


def replace(old: Any, new: Any) -> Any:
    """Take the new value: what happens without a reducer."""
    return new


def reduce_fields(state: Any, fields: Mapping[str, Any]) -> Any:
    """Return the state with fields changed by their reducers."""
    hints: dict[str, Any] = {} if isinstance(state, dict) else hints_of(type(state))
    for name, value in fields.items():
        reducer = _reducer(hints.get(name))
        if isinstance(state, dict):
            state[name] = value
        else:
            setattr(state, name, reducer(getattr(state, name, None), value))
    return state  # pyright: ignore[reportUnknownVariableType]


def _reducer(hint: Any) -> Reducer:
    for extra in getattr(hint, "__metadata__", ()):
        if callable(extra):
            return extra
    return replace
