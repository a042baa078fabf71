"""The annotations of functions and classes, and the names that they are written with."""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any


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


def local_names(fn: Callable[..., Any], depth: int) -> Mapping[str, Any] | None:
    """Return the names around a function that was defined inside another one, for its annotations."""
    if "<locals>" not in getattr(fn, "__qualname__", ""):
        return None
    return dict(sys._getframe(depth + 1).f_locals)  # pyright: ignore[reportPrivateUsage]
