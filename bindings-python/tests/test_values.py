"""What values become on their way to the journal and back."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import threading
from functools import partial
from typing import Any

import flovyn
import pydantic
import pytest
from flovyn import _native

ROUND_TRIPS: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    2**64,
    10**40,
    0.1,
    1.0,
    -0.0,
    1e300,
    5e-324,
    "",
    'é\u2028\U0001f600\x00\x1f"\\/',
    [],
    {},
    [1, [2, [3, {"a": [None]}]]],
    {"b": 1, "a": {"ü": 2, "z": []}},
]


@pytest.mark.parametrize("value", ROUND_TRIPS, ids=repr)
def test_values_come_back_as_they_were(value: Any) -> None:
    text = _native.encode_json(value)
    back = _native.decode_json(text)
    assert back == value and type(back) is type(value)
    assert json.loads(text) == value
    if isinstance(value, float):
        assert math.copysign(1, back) == math.copysign(1, value)


def test_keys_are_sorted_as_rfc_8785_says() -> None:
    assert _native.encode_json({"\ufb33": 1, "\U0001f600": 2, "a": 3}) == '{"a":3,"😀":2,"\ufb33":1}'.encode()


def test_tuples_become_lists_and_subclasses_their_base() -> None:
    class Colour(str, enum.Enum):
        RED = "red"

    assert _native.encode_json((1, (2,))) == b"[1,[2]]"
    assert _native.encode_json([Colour.RED, enum.IntEnum("N", "A").A]) == b'["red",1]'


@dataclasses.dataclass
class Point:
    x: int
    y: list[Any]


class Model(pydantic.BaseModel):
    when: datetime.date
    name: str = "n"


def test_dataclasses_and_pydantic_models_are_objects() -> None:
    assert _native.encode_json({"p": Point(1, [Point(2, [])])}) == b'{"p":{"x":1,"y":[{"x":2,"y":[]}]}}'
    assert _native.encode_json(Model(when=datetime.date(2026, 1, 2))) == b'{"name":"n","when":"2026-01-02"}'


REFUSED = [
    ({"a": [1, {"b c": {1, 2j}}]}, '$.a[1]["b c"]', "complex"),
    (Point(1, [threading.Lock()]), "$.y[0]", "_thread.lock"),
    ([memoryview(b"x")], "$[0]", "memoryview"),
    ({"x": float("nan")}, "$.x", "NaN"),
    ([float("-inf")], "$[0]", "-inf"),
    (["\ud800"], "$[0]", "a str with a lone surrogate"),
    (object(), "$", "object"),
]


@pytest.mark.parametrize(("value", "path", "found"), REFUSED, ids=[path for _, path, _ in REFUSED])
def test_what_has_no_json_form_is_refused_with_its_place(value: Any, path: str, found: str) -> None:
    with pytest.raises(flovyn.NotSerializable) as refused:
        _native.encode_json(value)
    assert (refused.value.path, refused.value.type) == (path, found)
    assert path in str(refused.value)


@pytest.mark.parametrize(
    "key", [None, True, (1, 2), b"a", float("nan"), frozenset("a"), decimal.Decimal("NaN"), object()]
)
def test_keys_without_a_text_are_refused(key: Any) -> None:
    with pytest.raises(flovyn.NotSerializable, match="keys must be str, or have a text") as refused:
        _native.encode_json({"a": {key: 2}})
    assert refused.value.path == "$.a"


def test_keys_that_fall_together_are_refused() -> None:
    with pytest.raises(flovyn.NotSerializable, match='two keys that are both written "1"'):
        _native.encode_json({1: "a", "1": "b"})


ADVICE: list[tuple[Any, str]] = [
    (flovyn.Blob(bytes(16 * 1024 * 1024 + 1)), "of at most 16777216 bytes; pass it alone"),
    ((n for n in ()), r"pass list\(it\)"),
    (map(str, ()), r"pass list\(it\)"),
    (datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(seconds=90))), "pass it in UTC"),
    (decimal.Decimal("Infinity"), "finite numbers only"),
    (threading.Lock(), "serializer="),
    (open(__file__), "serializer="),
    (len, "serializer="),
]


@pytest.mark.parametrize(("value", "advice"), ADVICE, ids=lambda value: type(value).__name__)
def test_a_refusal_says_what_to_pass(value: Any, advice: str) -> None:
    with pytest.raises(flovyn.NotSerializable, match=advice) as refused:
        _native.encode_json({"a": (value,)})
    assert refused.value.path == "$.a[0]"


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(flovyn.NotSerializable, match="nested too deeply"):
        _native.encode_json(loop)


@pytest.mark.parametrize(
    "text", [b"", b"[1,", b'{"a" 1}', b"tru", b'"a', b"[1]2", b'"\\ud800"', b"\xff", b'"\\x"', b"[,]", b"-"]
)
def test_broken_text_is_an_error(text: bytes) -> None:
    with pytest.raises((flovyn.NotSerializable, ValueError)):
        _native.decode_json(text)


def test_escapes_and_space_are_read() -> None:
    assert _native.decode_json(b' { "a" : [ 1 , "\\ud83d\\ude00\\n\\u0041" ] } ') == {"a": [1, "\U0001f600\nA"]}


def test_what_is_bound_to_a_step_is_not_printed(url: str) -> None:
    printed: list[str] = []

    class Long:
        def __repr__(self) -> str:
            printed.append("this takes as long as the argument is large")
            return ""

    @flovyn.agent
    async def bound(ctx: flovyn.AgentContext[Any]) -> int:
        return await ctx.run("step", partial(lambda _: 7, Long()))

    assert flovyn.run(bound, url=url) == 7
    assert not printed
