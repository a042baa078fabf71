"""Values are the same in every life of a run, and come back as they were however they are nested."""

from __future__ import annotations

import collections
import dataclasses
import enum
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import flovyn
import flovyn.testing
import pydantic
import pytest
from flovyn import AgentContext, _native, agent, task
from flovyn.serde import codec_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy


class Colour(enum.Enum):
    RED = "red"
    BLUE = (0, 0, 255)


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Spot(NamedTuple):
    at: datetime
    of: frozenset[UUID]


class Seen(TypedDict):
    spot: Spot
    prices: dict[UUID, Decimal]


class Model(pydantic.BaseModel):
    when: datetime
    price: Decimal


@dataclasses.dataclass
class All:
    moment: datetime = datetime(2026, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=-3)))
    day: date = date(2026, 1, 2)
    hour: time = time(3, 4, 5, 6)
    took: timedelta = timedelta(days=-1, microseconds=1)
    id: UUID = dataclasses.field(default_factory=lambda: UUID(int=7))
    price: Decimal = Decimal("-0.10")
    colours: tuple[Colour, ...] = (Colour.BLUE, Colour.RED)
    rights: Rights = Rights.READ | Rights.WRITE
    tags: frozenset[str] = frozenset({"b", "a"})
    numbers: set[int] = dataclasses.field(default_factory=lambda: {10, 9})
    pair: tuple[Path, bytes] = (Path("a/b"), b"\xfb\xff")
    queue: collections.deque[date] = dataclasses.field(default_factory=lambda: collections.deque([date(2026, 1, 2)]))
    by_number: dict[int, Colour] = dataclasses.field(default_factory=lambda: {1: Colour.RED})
    seen: Seen | None = None
    model: Model | None = None
    long: int = 10**40
    zero: float = -0.0


def everything() -> All:
    spot = Spot(datetime(2026, 1, 2, tzinfo=timezone.utc), frozenset({UUID(int=1), UUID(int=2)}))
    # pydantic has a class of its own for the offsets that it reads.
    model = Model.model_validate({"when": "2026-01-02T03:00:00Z", "price": "1.0"})
    return All(seen={"spot": spot, "prices": {UUID(int=1): Decimal("1E+2")}}, model=model)


def told(value: Any) -> str:
    """What can be told of a value: sets are told in order."""
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}{sorted(map(told, value))}"
    if isinstance(value, (tuple, list, collections.deque)):
        return f"{type(value).__name__}{[told(each) for each in value]}"
    if isinstance(value, dict):
        return f"dict{sorted((told(key), told(item)) for key, item in value.items())}"
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return f"{type(value).__name__}{[told(getattr(value, field.name)) for field in fields]}"
    return repr(value)


@task
async def gives() -> All:
    return everything()


@task
async def takes(all: All, day: date, *more: UUID) -> tuple[str, datetime, tuple[UUID, ...]]:
    return told(all), all.moment, more


@task
def untold() -> Any:
    return {"at": datetime(2026, 1, 2), "ids": {UUID(int=2), UUID(int=1)}, "colour": Colour.BLUE, "raw": b"\xfb", 3: ()}


UNTOLD = {
    "at": "2026-01-02T00:00:00",
    "ids": [str(UUID(int=1)), str(UUID(int=2))],
    "colour": [0, 0, 255],
    "raw": "+w==",
    "3": [],
}


@agent(signals={"due": datetime})
async def through(ctx: AgentContext[None], given: All) -> list[Any]:
    assert told(given) == told(everything())
    assert told(await gives()) == told(given)
    text, moment, more = await takes(given, date(2026, 1, 2), UUID(int=1), UUID(int=2))
    assert (text, moment, more) == (told(given), given.moment, (UUID(int=1), UUID(int=2)))
    due = await ctx.wait_for_signal("due")
    assert due == datetime(2026, 1, 3, tzinfo=timezone.utc) and due.tzinfo is timezone.utc
    plain = await untold()
    assert plain == UNTOLD, plain
    assert await ctx.once("colour", lambda: Colour.RED) == "red"
    return [text, plain, due]


async def test_values_are_the_same_in_every_life() -> None:
    """Enters the agent again at each of its awaits, and lets it crash at each commit."""
    given = everything()
    due = [("due", datetime(2026, 1, 3, tzinfo=timezone.utc))]
    assert await flovyn.testing.check(through, given, signals=due) is not None


@agent
async def sending(ctx: AgentContext[None], given: All) -> tuple[str, str]:
    far = takes.options(queue="far")
    text, moment, _ = await far(given, date(2026, 1, 2), UUID(int=1))
    return text, repr(moment)


async def test_values_travel_to_another_worker_and_back(url: str) -> None:
    async with flovyn.connect(url) as client, client.worker([sending]), client.worker(tasks=[takes], queue="far"):
        handle = await client.start(sending, everything())
        result = await handle.result(timeout=20)
    assert result == (told(everything()), repr(everything().moment))


@agent(state=All)
async def keeping(ctx: AgentContext[All], _: int) -> str:
    if ctx.state.seen is None:
        await ctx.checkpoint(everything())
    await gives()
    assert told(ctx.state) == told(everything())
    return told(ctx.state)


async def test_a_state_is_the_same_in_every_life() -> None:
    await flovyn.testing.check(keeping, 1)


# ── however they are nested ─────────────────────────────────────────────────────────────────────────────────────────

Case = tuple[Any, Any]
"""An annotation and a value of it."""

OFFSETS = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
ZONES = st.none() | st.just(timezone.utc) | OFFSETS
LEAVES: dict[Any, SearchStrategy[Any]] = {
    datetime: st.datetimes(timezones=ZONES).map(lambda at: at.replace(fold=0)),
    date: st.dates(),
    time: st.times(timezones=ZONES).map(lambda at: at.replace(fold=0)),
    timedelta: st.timedeltas(),
    UUID: st.uuids(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    Colour: st.sampled_from(Colour),
    Rights: st.sampled_from([Rights.READ, Rights.WRITE, Rights.READ | Rights.WRITE]),
    PurePosixPath: st.text("abc/. é", max_size=9).map(PurePosixPath),
    bytes: st.binary(max_size=40),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(st.characters(exclude_categories=["Cs"])),
    bool: st.booleans(),
}
KEYS = [str, int, UUID, date, datetime, Decimal, PurePosixPath]


@st.composite
def typed(draw: st.DrawFn, depth: int = 3) -> tuple[Any, SearchStrategy[Any]]:
    """Draw an annotation and what makes values of it."""
    how = draw(st.sampled_from(["leaf", "list", "dict", "tuple", "many", "set", "maybe"] if depth else ["leaf"]))
    if how == "leaf":
        leaf: Any = draw(st.sampled_from(list(LEAVES)))
        return leaf, LEAVES[leaf]
    if how == "set":
        leaf = draw(st.sampled_from(list(LEAVES)))
        return frozenset[leaf], st.frozensets(LEAVES[leaf], max_size=4)
    if how == "dict":
        key = draw(st.sampled_from(KEYS))
        hint, values = draw(typed(depth - 1))
        return dict[key, hint], st.dictionaries(LEAVES[key], values, max_size=3)
    if how == "tuple":
        parts = [draw(typed(depth - 1)) for _ in range(draw(st.integers(1, 3)))]
        return tuple[tuple(hint for hint, _ in parts)], st.tuples(*(values for _, values in parts))
    hint, values = draw(typed(depth - 1))
    if how == "maybe":
        return hint | None, st.none() | values
    if how == "many":
        return tuple[hint, ...], st.lists(values, max_size=3).map(tuple)
    return list[hint], st.lists(values, max_size=3)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    hint, values = draw(typed())
    return hint, draw(values)


@settings(max_examples=400, deadline=None)
@given(cases())
def test_what_is_annotated_comes_back_as_it_was(case: Case) -> None:
    hint, value = case
    codec = codec_of(list[hint])
    assert codec.check([value]) == [value]
    codec.check_state([value])
    text = _native.encode_json([value])
    back: Any = codec.shape.read(_native.decode_json(text), 0)
    assert told(back) == told([value])
    assert _native.encode_json(back) == text, "digests are taken of it"
    # What a state may hold is also what nothing at all is annotated of, as what stands for it.
    codec_of(Any).check([value])


@settings(max_examples=200, deadline=None)
@given(cases())
def test_what_is_not_annotated_is_what_stands_for_it_from_the_first(case: Case) -> None:
    _, value = case
    stands = _native.decode_json(_native.encode_json(value))
    assert _native.decode_json(_native.encode_json(stands)) == stands
    if told(stands) != told(value):
        with pytest.raises(flovyn.NotSerializable):
            codec_of(dict[str, Any]).check_state({"a": value})


MOMENT = datetime(2026, 1, 2, tzinfo=timezone.utc)
GIVEN: list[Any] = [
    MOMENT,
    {"at": [MOMENT, {1: {UUID(int=1)}}]},
    Colour.BLUE,
    b"\xfb",
    [b"\xfb"],
    (1, MOMENT),
    Spot(MOMENT, frozenset()),
]
seen: dict[int, list[str]] = {}


async def tried(value, *more, plain: Any = None, moment: datetime = MOMENT) -> None:  # type: ignore[no-untyped-def]
    """Fails at its first attempt, so that the second one is given what was stored."""
    told_of = [told(each) for each in (value, more, plain, moment)]
    attempts = seen.setdefault(len(seen) if not more else more[0], [])
    attempts.append(repr(told_of))
    if len(attempts) == 1:
        raise ConnectionError("again")


@agent
async def trying(ctx: AgentContext[None]) -> None:
    again = task(retries=1)(tried)
    for number, value in enumerate(GIVEN):
        await again(value, number, plain=value)


def test_an_attempt_without_annotations_is_given_what_a_later_one_is(url: str) -> None:
    seen.clear()
    flovyn.run(trying, url=url)
    for number, value in enumerate(GIVEN):
        first, second = seen[number]
        if not isinstance(value, tuple):
            assert first.replace("tuple", "list") == second.replace("tuple", "list")
    # A named tuple is left as it is, and a tuple is one with what a later attempt is given.
    assert seen[6][0].startswith('["Spot[') and "2026-01-02T00:00:00Z" in seen[5][0]


def test_arguments_of_json_and_of_classes_are_the_very_objects() -> None:
    from flovyn.serde import Signature

    def fn(value, other: Any = None, *rest, **more) -> None: ...  # type: ignore[no-untyped-def]

    signature = Signature(fn, "TaskContext")
    for value in ({"a": [1, {"b": ()}]}, everything(), [everything()], (1, [2]), object(), [object()], {(1, 2): 3}):
        args, kwargs = signature.given((value, value, value), {"more": value})
        assert all(each is value for each in (*args, *kwargs.values()))
