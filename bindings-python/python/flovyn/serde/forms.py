"""What stands in JSON for a value that JSON has no type for: one form a type, the same in every language.

``docs/values.md`` has the table. The writer in Rust asks here for whatever it does not know itself; ``parsers.py``
reads the forms back where an annotation names the type.
"""

from __future__ import annotations

import base64
import sys
import types
from collections import deque
from collections.abc import Callable
from typing import Any, cast

#: The most bytes of a blob inside a value.
LARGEST_BLOB = 16 * 1024 * 1024

Form = Callable[[Any], Any]
"""Gives what JSON has for a value, made of JSON's types or of what has a form again."""


class Formless(Exception):
    """A value has no form in JSON; says what to do instead, as the end of a sentence."""


def form(value: Any) -> Any:
    """Return what stands in JSON for a value; raises ``Formless``."""
    of: type[Any] = cast(Any, type(value))
    found = _FOUND.get(of)
    if found is None:
        found = _form_of(of)
        if of.__module__ in _KEPT_MODULES:
            # Classes of a program may come and go; these stay.
            _FOUND[of] = found
    return found(value)


def key_form(key: Any) -> str | None:
    """Return the text that stands for a key of a dict; none where it has no such text."""
    if isinstance(key, bool) or key is None:
        return None
    if isinstance(key, int):
        return int.__repr__(key)
    if isinstance(key, float):
        return float.__repr__(key) if key - key == 0 else None
    if isinstance(key, (bytes, bytearray, tuple, frozenset)):
        return None
    try:
        made = form(key)
    except Formless:
        return None
    return made if isinstance(made, str) else key_form(made) if isinstance(made, (int, float)) else None


def _form_of(of: type[Any]) -> Form:
    """Look for what a class derives from. What is not loaded, nothing derives from."""
    for module, name, found in _FORMS:
        base = getattr(sys.modules.get(module), name, None)
        if base is not None and issubclass(of, base):
            return found
    return _refused


def _moment(value: Any) -> str:
    if getattr(value, "nanosecond", 0):
        raise Formless(": it has nanoseconds, of which only whole microseconds are kept; round it")
    import datetime

    return _in_utc(datetime.datetime.isoformat(value), value)


def _time(value: Any) -> str:
    import datetime

    return _in_utc(datetime.time.isoformat(value), value)


def _date(value: Any) -> str:
    import datetime

    return datetime.date.isoformat(value)


def _in_utc(text: str, value: Any) -> str:
    offset = value.utcoffset()
    if offset is None:
        return text
    if not offset:
        return text[:-6] + "Z"
    if offset.total_seconds() % 60:
        raise Formless(": its offset from UTC is not in whole minutes; pass it in UTC")
    return text


def _duration(value: Any) -> str:
    """Write ISO 8601 in days, hours, minutes and seconds, which are of one length everywhere."""
    sign, left = ("-", -value) if value.days < 0 else ("", value)
    hours, seconds = divmod(left.seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    fraction = f".{left.microseconds:06}".rstrip("0") if left.microseconds else ""
    time = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if seconds or fraction or not (time or left.days):
        time += f"{seconds}{fraction}S"
    return f"{sign}P{f'{left.days}D' if left.days else ''}{f'T{time}' if time else ''}"


def _decimal(value: Any) -> str:
    if not value.is_finite():
        raise Formless(": JSON knows finite numbers only; pass None or a string")
    return str(value)


def _path(value: Any) -> str:
    return str(value)


def _uuid(value: Any) -> str:
    return str(value)


def _member(value: Any) -> Any:
    return value.value


def _bytes(value: Any) -> str:
    return base64.b64encode(value).decode()


def _blob(value: Any) -> str:
    if value.size > LARGEST_BLOB:
        raise Formless(
            f" of {value.size} bytes: inside a value a blob is text (base64), of at most {LARGEST_BLOB} bytes; "
            "pass it alone"
        )
    return _bytes(value.read())


def _array(value: Any) -> Any:
    raise Formless(": pass its tolist(), or its bytes alone with what it takes to read them")


def _number(value: Any) -> Any:
    """Give the plain number of one of numpy's."""
    made = value.item()
    if type(made) in (int, float, bool, str):
        return made
    if type(made).__name__ in ("date", "datetime", "timedelta") or value.dtype.kind in "mM":
        raise Formless(": pass its .astype('datetime64[us]').item(), or the duration's, which Python has a type for")
    raise Formless(": pass a plain number")


def _refused(value: Any) -> Any:
    of: type[Any] = cast(Any, type(value))
    if isinstance(value, (types.GeneratorType, types.AsyncGeneratorType, map, filter, zip, range)):
        raise Formless(": pass list(it)")
    if isinstance(value, types.CoroutineType):
        raise Formless(": await it, and pass what it gives")
    if hasattr(of, "to_dict") and hasattr(of, "iloc"):
        raise Formless(": pass its to_dict()")
    raise Formless(
        ": pass str, int, float, bool, None, list, tuple, dict, set, a date or time, UUID, Decimal, Enum, Path, bytes, "
        "a dataclass or a pydantic model; what else you have goes through a serializer="
    )


_FORMS: tuple[tuple[str, str, Form], ...] = (
    ("enum", "Enum", _member),
    ("datetime", "datetime", _moment),
    ("datetime", "date", _date),
    ("datetime", "time", _time),
    ("datetime", "timedelta", _duration),
    ("uuid", "UUID", _uuid),
    ("decimal", "Decimal", _decimal),
    ("pathlib", "PurePath", _path),
    ("builtins", "bytes", _bytes),
    ("builtins", "bytearray", _bytes),
    ("flovyn.blob", "Blob", _blob),
    ("collections", "deque", list[Any]),
    ("numpy", "generic", _number),
    ("numpy", "ndarray", _array),
)
"""Where a class is, its name, and its form; what derives from another one here stands before it."""

_KEPT_MODULES = frozenset(
    {"datetime", "uuid", "decimal", "pathlib", "pathlib._local", "builtins", "collections", "numpy"}
)
_FOUND: dict[type[Any], Form] = {deque: list}
