"""Values that are text in JSON, read back where an annotation names their type. ``forms.py`` writes them."""

from __future__ import annotations

import base64
import datetime
import decimal
import re
import sys
import uuid
from collections.abc import Callable
from typing import Any, cast

from .forms import form
from .shapes import EXACT, Shape, Unfit, shown

Parse = Callable[[str], Any]

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d+))?(Z|z|[+-]\d\d:?\d\d)?", re.ASCII)
_CLOCK = re.compile(r"(\d\d:\d\d(?::\d\d)?)(?:[.,](\d+))?(Z|z|[+-]\d\d:?\d\d)?", re.ASCII)
_DURATION = re.compile(
    r"([+-])?P(?:(\d+)Y)?(?:(\d+)W)?(?:(\d+)D)?"
    r"(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d+))?S)?)?",
    re.ASCII,
)


class Text(Shape):
    """A value that is text in JSON."""

    __slots__ = ("_cls", "_numbers", "_parse", "vague", "wanted")

    kind = str
    plain = False

    def __init__(self, cls: Any, parse: Parse, example: str, *, vague: bool = False, numbers: bool = False) -> None:
        self._cls = cls
        self._parse = parse
        self._numbers = numbers
        self.vague = vague
        self.wanted = f"{cls.__qualname__}, such as {example!r},"

    def read(self, value: Any, level: int) -> Any:
        if type(value) is not str:
            if isinstance(value, self._cls) or (value is None and level < EXACT):
                return value
            if not (self._numbers and level < EXACT and type(value) in (int, float)):
                raise Unfit(shown(value), f"{self.wanted} is wanted")
        try:
            made = self._parse(value if type(value) is str else repr(value))
        except (ValueError, ArithmeticError, NotImplementedError) as error:
            raise Unfit(shown(value), f"{self.wanted} is wanted") from error
        if level == EXACT and form(made) != value:
            raise Unfit(shown(value), f"{self.wanted} would not be written like that")
        return made

    def fits(self, value: Any) -> bool:
        return type(value) is self._cls and _is_sure(value)


class Number(Shape):
    """One of numpy's numbers, which is a plain number in JSON."""

    __slots__ = ("_cls", "kind", "wanted")

    plain = False

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self.kind = cast("type[Any]", type(cls(0).item()))
        self.wanted = cls.__qualname__

    def read(self, value: Any, level: int) -> Any:
        if isinstance(value, self._cls) or (value is None and level < EXACT):
            return value
        if not isinstance(value, (int, float)):
            raise Unfit(shown(value), f"{self.wanted} is wanted")
        try:
            made = self._cls(value)
        except (ValueError, OverflowError, TypeError) as error:
            raise Unfit(shown(value), f"{self.wanted} is wanted") from error
        plain = made.item()
        if level and (plain != value or (level == EXACT and type(plain) is not type(value))):
            raise Unfit(shown(value), f"{self.wanted} is wanted")
        return made


def parsed(cls: Any) -> Shape | None:
    """Return the shape of a class whose values are text in JSON, or numbers of numpy; none for another one."""
    made = _MADE.get(cls)
    if made is not None:
        return made
    path = getattr(sys.modules.get("pathlib"), "PurePath", None)
    if path is not None and issubclass(cls, path) and cls.__module__.partition(".")[0] == "pathlib":
        return Text(cls, cls, "notes/a.txt", vague=True)
    number = getattr(sys.modules.get("numpy"), "number", None)
    if number is not None and (issubclass(cls, number) or cls is sys.modules["numpy"].bool_):
        return _numpy(cls)
    return None


def _numpy(cls: Any) -> Shape | None:
    try:
        return Number(cls) if type(cls(0).item()) in (int, float, bool) else None
    except TypeError:
        # An abstract one, such as `numpy.integer`.
        return None


def _is_sure(value: Any) -> bool:
    """Tell that a value of one of the classes below is read as itself."""
    if isinstance(value, (datetime.datetime, datetime.time)):
        return not value.fold and (value.tzinfo is None or value.tzinfo is datetime.timezone.utc)
    return not isinstance(value, decimal.Decimal) or value.is_finite()


def moment(text: str) -> datetime.datetime:
    """Read a date with a time of RFC 3339; without an offset it is a naive one."""
    try:
        return datetime.datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in ("Z", "z") else text)
    except ValueError:
        # Python 3.10 reads less than others write.
        found = _MOMENT.fullmatch(text)
        if found is None:
            raise
        day, clock, fraction, offset = found.groups()
        return datetime.datetime.fromisoformat(f"{day}T{_whole(clock)}{_micros(fraction)}{_offset(offset)}")


def clock(text: str) -> datetime.time:
    """Read a time of day."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no time of day")
    time, fraction, offset = found.groups()
    return datetime.time.fromisoformat(f"{_whole(time)}{_micros(fraction)}{_offset(offset)}")


def _whole(clock: str) -> str:
    return clock if len(clock) == 8 else f"{clock}:00"


def _micros(fraction: str | None) -> str:
    """Write a fraction of a second as microseconds, the finest that Python has."""
    return "" if fraction is None else f".{fraction[:6]:0<6}"


def _offset(offset: str | None) -> str:
    if offset is None:
        return ""
    return "+00:00" if offset in "Zz" else offset if len(offset) == 6 else f"{offset[:3]}:{offset[3:]}"


def duration(text: str) -> datetime.timedelta:
    """Read a duration of ISO 8601 without months; a year is 365 days, as pydantic has it."""
    found = _DURATION.fullmatch(text)
    if found is None or text[-1:] in ("P", "T"):
        raise ValueError(f"{text!r} is no duration")
    sign, *parts, fraction = found.groups()
    years, weeks, days, hours, minutes, seconds = (int(part or 0) for part in parts)
    days += years * 365 + weeks * 7
    if sign == "-":
        # Part by part: the shortest duration that there is has no positive twin.
        days, hours, minutes, seconds = -days, -hours, -minutes, -seconds
    micros = int(_micros(fraction)[1:] or 0) * (-1 if sign == "-" else 1)
    return datetime.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, microseconds=micros)


def base64_bytes(text: str) -> bytes:
    """Read base64, in either of its two alphabets."""
    return base64.b64decode(text.translate(_STANDARD), validate=True)


_STANDARD = str.maketrans("-_", "+/")

_MADE: dict[Any, Shape] = {
    datetime.datetime: Text(datetime.datetime, moment, "2026-01-31T12:00:00Z"),
    datetime.date: Text(datetime.date, datetime.date.fromisoformat, "2026-01-31"),
    datetime.time: Text(datetime.time, clock, "12:00:00"),
    datetime.timedelta: Text(datetime.timedelta, duration, "PT1H30M"),
    uuid.UUID: Text(uuid.UUID, uuid.UUID, "00000000-0000-0000-0000-000000000000"),
    decimal.Decimal: Text(decimal.Decimal, decimal.Decimal, "1.10", vague=True, numbers=True),
}
