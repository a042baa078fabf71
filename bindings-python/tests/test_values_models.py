"""What pydantic writes of its models is the same in every process, and what it cannot write is told."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import flovyn
import pydantic
import pytest
from flovyn import _native
from flovyn.serde import codec_of


class Inner(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    name: str


@dataclass
class Held:
    of: frozenset[str] = frozenset()


class Tagged(pydantic.BaseModel):
    tags: set[str] = pydantic.Field(default=set(), serialization_alias="labels")
    inner: frozenset[Inner] = frozenset()
    many: list[dict[str, set[str]]] = []
    pair: tuple[set[str], Any] = (set(), None)
    held: Held = field(default_factory=Held)  # type: ignore[assignment]
    next: Tagged | None = None
    numbers: set[int] = set()


NAMES = ["delta", "alpha", "charlie", "bravo", "echo"]


def tagged(depth: int = 1) -> Tagged:
    names = set(NAMES)
    return Tagged(
        tags=names,
        inner=frozenset(Inner(name=name) for name in names),
        many=[{"z": names, "a": names}],
        pair=(names, frozenset(names)),
        held=Held(frozenset(names)),
        next=tagged(depth - 1) if depth else None,
        numbers={10, 9, 100},
    )


def test_sets_in_models_are_written_in_order_in_every_process() -> None:
    seen: set[str] = set()
    for seed in ("1", "2", "3"):
        done = subprocess.run(
            [sys.executable, __file__], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        )
        seen.add(done.stdout)
        assert not done.stderr
    (written,) = seen
    value = _native.decode_json(written.encode())
    assert value["tags"] == sorted(NAMES) and value["numbers"] == [9, 10, 100]
    assert [each["name"] for each in value["next"]["inner"]] == sorted(NAMES)
    assert value["many"] == [{"a": sorted(NAMES), "z": sorted(NAMES)}] and value["pair"] == [sorted(NAMES)] * 2
    codec = codec_of(Tagged)
    assert codec.rebuild is not None and codec.check(tagged())
    back, made = codec.rebuild(value), tagged()
    assert (back.tags, back.inner, back.many, back.held) == (made.tags, made.inner, made.many, made.held)


class Raw(pydantic.BaseModel):
    data: bytes


class Base64(Raw):
    model_config = pydantic.ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


class Odd(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    what: Any


def test_what_pydantic_cannot_write_is_told() -> None:
    assert codec_of(Raw).check(Raw(data=b"text")).data == b"text"
    with pytest.raises(flovyn.NotSerializable, match=r"bytes that are no text.*ser_json_bytes='base64'") as refused:
        codec_of(list[Raw]).check([Raw(data=b"\xff")])
    assert refused.value.path == "$[0]"
    with pytest.raises(flovyn.NotSerializable, match="Unable to serialize unknown type") as refused:
        codec_of(dict[str, Odd]).check({"a": Odd(what=object())})
    assert refused.value.path == "$.a"


def test_bytes_come_back_where_the_model_says_how() -> None:
    codec = codec_of(list[Base64])
    value = codec.check([Base64(data=b"\xfb\xff")])
    assert codec.rebuild is not None
    assert codec.rebuild(_native.decode_json(_native.encode_json(value))) == value


if __name__ == "__main__":
    print(_native.encode_json(tagged()).decode())
