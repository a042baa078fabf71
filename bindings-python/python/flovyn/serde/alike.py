"""Arguments of a step that runs in its agent's process: what has no annotation is what a later attempt would be given.

Another attempt, in this process or the next, is given what was stored. A moment would be text then, so it is text at
once. Dataclasses, models and named tuples are left as they are: many steps take them without saying so.
"""

from __future__ import annotations

from typing import Any, cast

from .. import _native
from .forms import Formless, form, key_form
from .shapes import SCALARS


def alike(value: Any, *, nested: bool) -> Any:
    """Return a value with what stands in JSON for what JSON has no type for; the same object where there is none.

    Bytes as a whole value are stored as they are, where the value is not ``nested``.
    """
    of = cast(Any, type(value))
    if of in SCALARS or isinstance(value, (str, int, float)):
        return value
    if of is dict:
        return _dict(cast("dict[Any, Any]", value))
    if of is list or of is tuple:
        items = cast("list[Any] | tuple[Any, ...]", value)
        made = [alike(each, nested=True) for each in items]
        return value if all(map(_is, items, made)) else made if of is list else tuple(made)
    if isinstance(value, (bytes, bytearray)) and not nested:
        return cast(Any, value)
    if isinstance(value, tuple) or hasattr(of, "__dataclass_fields__") or hasattr(of, "model_dump"):
        return cast(Any, value)
    try:
        if isinstance(value, (set, frozenset)):
            return _native.decode_json(_native.encode_json(value))
        return alike(form(value), nested=True)
    except (Formless, ValueError):
        # Whoever writes it says what is wrong with it.
        return cast(Any, value)


def _is(one: Any, other: Any) -> bool:
    return one is other


def _dict(value: dict[Any, Any]) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    is_same = True
    for key, item in value.items():
        name = key if isinstance(key, str) else key_form(key)
        if name is None or name in made:
            return value
        made[name] = alike(item, nested=True)
        is_same = is_same and name is key and made[name] is item
    return value if is_same else made
