"""The form of each value that JSON has no type for: the same in every language, read back as what is annotated."""

from __future__ import annotations

import dataclasses
import enum
import json
import pathlib
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from flovyn import _native
from flovyn.serde import codec_of
from flovyn.serde.shapes import EXACT, LENIENT, STRICT, Unfit

VECTORS: list[dict[str, str]] = json.loads(
    (pathlib.Path(__file__).parents[2] / "tests/vectors/values.json").read_text(encoding="utf-8")
)


class Mode(enum.Enum):
    FAST = "fast"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Corner(enum.Enum):
    LEFT = (0, 0)
    START = date(2026, 1, 2)


@dataclasses.dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal


@dataclasses.dataclass
class Order:
    at: datetime
    lines: tuple[Line, ...]
    tags: frozenset[str]


NAMES: dict[str, Any] = {
    each.__name__: each
    for each in (
        *(date, datetime, time, timedelta, timezone, Decimal, PurePosixPath, UUID, Mode, Rights, Line, Order),
        *(set, frozenset, tuple, dict, list),
    )
}
NAMES |= {"utc": timezone.utc, "Any": Any}


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_values_stand_in_their_form_and_come_back(vector: dict[str, str]) -> None:
    value, hint = eval(vector["python"], NAMES), eval(vector["type"], NAMES)
    assert _native.encode_json(value).decode() == vector["json"]
    codec = codec_of(hint)
    stored = _native.decode_json(vector["json"].encode())
    for level in (LENIENT, STRICT, EXACT):
        back = codec.shape.read(stored, level)
        assert back == value and type(back) is type(value)
        assert repr(back) == repr(value) or isinstance(value, (set, frozenset, dict)) or "frozenset" in repr(value)
    codec.check(value)
    codec.check_state(value)


ALSO_READ: list[tuple[Any, Any, Any]] = [
    (datetime, "2026-01-02T03:04:05.1234567Z", datetime(2026, 1, 2, 3, 4, 5, 123456, timezone.utc)),
    (datetime, "2026-01-02 03:04+0200", datetime(2026, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=2)))),
    (datetime, "2026-01-02t03:04:05z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)),
    (time, "03:04", time(3, 4)),
    (time, "03:04:05.5Z", time(3, 4, 5, 500000, timezone.utc)),
    (timedelta, "P1Y2W1DT2S", timedelta(days=380, seconds=2)),
    (timedelta, "PT90M", timedelta(minutes=90)),
    (timedelta, "-P999999999D", timedelta.min),
    (timedelta, "-PT0,000001S", -timedelta.resolution),
    (Decimal, 1.1, Decimal("1.1")),
    (Decimal, 10**30, Decimal(10**30)),
    (UUID, "{F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6}", UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")),
    (bytes, "-_8=", b"\xfb\xff"),
    (bytearray, "-_8=", bytearray(b"\xfb\xff")),
    (Corner, [0, 0], Corner.LEFT),
    (Corner, "2026-01-02", Corner.START),
]


@pytest.mark.parametrize(("hint", "stored", "value"), ALSO_READ, ids=[str(case[1]) for case in ALSO_READ])
def test_readers_take_more_than_writers_give(hint: Any, stored: Any, value: Any) -> None:
    back = codec_of(hint).shape.read(stored, LENIENT)
    assert back == value and type(back) is type(value)
    if isinstance(value, datetime):
        assert back.utcoffset() == value.utcoffset()


NOT_READ: list[tuple[Any, Any]] = [
    (datetime, "tomorrow"),
    (datetime, 5),
    (datetime, "2026-13-01T00:00:00Z"),
    (date, "2026-01-02T00:00:00"),
    (time, "25:00"),
    (time, "3 pm"),
    (timedelta, "P"),
    (timedelta, "PT"),
    (timedelta, "P1M"),
    (timedelta, 90),
    (Decimal, "a lot"),
    (UUID, "1"),
    (bytes, "no base64!"),
    (Corner, [0, 1]),
    (set[int], "1"),
    (pathlib.Path, 1),
]


@pytest.mark.parametrize(("hint", "stored"), NOT_READ, ids=[f"{case[1]}" for case in NOT_READ])
def test_what_is_no_form_is_told(hint: Any, stored: Any) -> None:
    for level in (LENIENT, STRICT, EXACT):
        with pytest.raises(Unfit) as unfit:
            codec_of(dict[str, hint]).shape.read({"a": stored}, level)
        assert "at $.a " in unfit.value.told and "want" in unfit.value.told


def test_a_union_takes_what_text_is_exactly() -> None:
    read: Callable[[Any], Any] = codec_of(list[datetime | date | UUID | timedelta | str | int]).rebuild  # type: ignore[assignment]
    values = [datetime(2026, 1, 2), date(2026, 1, 2), UUID(int=1), timedelta(1), "x", "", "P1Y", "2026-01-02T00:00Z", 3]
    assert read(_native.decode_json(_native.encode_json(values))) == values
    assert codec_of(str | Decimal | bytes).shape.read("10", LENIENT) == "10"
    assert codec_of(Decimal | int | None).shape.read("10", LENIENT) == Decimal(10)
    assert codec_of(Decimal | int | None).shape.read(10, LENIENT) == 10


def test_the_order_of_a_set_is_that_of_its_values() -> None:
    items = {
        10,
        9,
        -1,
        0.5,
        -0.5,
        2**53 + 1,
        2**53,
        -(2**53) - 1,
        -(2**53),
        10**40,
        10**40 + 1,
        "b",
        "a",
        "a!",
        "\U0001f600",
        "\ufb33",
        None,
        (2,),
    }
    order = [-(2**53) - 1, -(2**53), -1, -0.5, 0.5, 9, 10, 2**53, 2**53 + 1, 10**40, 10**40 + 1]
    stored = _native.decode_json(_native.encode_json(items))
    assert stored == ["a", "a!", "b", "\U0001f600", "\ufb33", *order, [2], None]
