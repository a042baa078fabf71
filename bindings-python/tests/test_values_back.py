"""Values that come back as they were written, or are refused when they are written."""

# ruff: noqa: UP007, UP045 - both ways to write a union are tested

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import pathlib
import uuid
import zoneinfo
from collections.abc import Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar, Union

import flovyn
import pydantic
import pytest
from flovyn import AgentContext, agent
from flovyn.serde import Signature, checked, codec_of, rebuilder

T = TypeVar("T")
U = TypeVar("U")


class Mode(str, enum.Enum):
    FAST = "fast"
    SLOW = "slow"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


class Plain(enum.Enum):
    A = "a"


@dataclasses.dataclass
class Cat:
    name: str = ""
    lives: int = 9


@dataclasses.dataclass
class Dog:
    name: str = ""
    tricks: int = 0


@dataclasses.dataclass
class Puppy(Dog):
    age: int = 0


@dataclasses.dataclass
class Twin:
    """Has the fields of a Dog, so nothing in JSON tells the two apart."""

    name: str = ""
    tricks: int = 0


@dataclasses.dataclass
class Square:
    kind: Literal["square"]
    side: int


@dataclasses.dataclass
class Circle:
    kind: Literal["circle"]
    side: int


@dataclasses.dataclass
class Number:
    value: int


@dataclasses.dataclass
class Text:
    value: str


@dataclasses.dataclass
class Short:
    name: str


@dataclasses.dataclass
class Long:
    name: str
    extra: int = 0


@dataclasses.dataclass
class Box(Generic[T]):
    items: list[T]


@dataclasses.dataclass
class Pair(Box[list[T]], Generic[T, U]):
    other: dict[str, U]


@dataclasses.dataclass
class Job:
    n: int = 0


@dataclasses.dataclass
class Jobs(Box[Job]):
    pass


@dataclasses.dataclass
class Counted:
    n: int = 0

    def __post_init__(self) -> None:
        self.n += 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", self.n * 2)


@dataclasses.dataclass
class Seeded:
    seed: dataclasses.InitVar[int]
    n: int = 0
    total: int = dataclasses.field(init=False, default=0)

    def __post_init__(self, seed: int) -> None:
        self.total = seed


@dataclasses.dataclass
class Tree:
    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Cached:
    n: int = 0

    @functools.cached_property
    def double(self) -> int:
        return self.n * 2


class Point(NamedTuple):
    x: int
    pet: Dog


class Info(TypedDict):
    job: Job
    pair: tuple[int, int]


class Aliased(pydantic.BaseModel):
    user_id: int = pydantic.Field(0, alias="userId")
    inner: Optional[Aliased] = None


class Validated(pydantic.BaseModel):
    user_id: int = pydantic.Field(0, validation_alias="uid", serialization_alias="ident")


class ByAlias(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(serialize_by_alias=True)
    user_id: int = pydantic.Field(0, serialization_alias="ident")


class Secret(pydantic.BaseModel):
    key: pydantic.SecretStr = pydantic.SecretStr("")


class Hidden(Secret):
    model_config = pydantic.ConfigDict(frozen=True)


class Nanos(datetime.datetime):
    nanosecond = 5


class Excluding(pydantic.BaseModel):
    n: int = 0
    hidden: int = pydantic.Field(0, exclude=True)


class Private(pydantic.BaseModel):
    _n: int = pydantic.PrivateAttr(0)
    _lock: Any = pydantic.PrivateAttr(default_factory=object)

    def counted(self, n: int) -> Private:
        self._n = n
        return self


class Computing(pydantic.BaseModel):
    n: int = 0

    @pydantic.computed_field
    @property
    def double(self) -> int:
        return self.n * 2


class Animal(pydantic.BaseModel):
    name: str = ""


class Bird(Animal):
    wings: int = 2


class Fish(pydantic.BaseModel):
    name: str = ""
    fins: int = 2


class Owner(pydantic.BaseModel):
    pet: Animal


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    when: datetime.date
    pair: tuple[int, int]


class Rich(pydantic.BaseModel):
    when: datetime.datetime
    price: decimal.Decimal
    id: uuid.UUID
    path: pathlib.Path
    tags: set[str]
    by_number: dict[int, str]
    pair: tuple[int, int]
    data: bytes
    took: datetime.timedelta


class Sure(pydantic.BaseModel):
    """Is known to come back by its types, so that no value of it is tried."""

    n: int
    names: list[str] = []
    next: Optional[Sure] = None
    by_name: dict[str, list[float]] = {}
    more: Any = None


class Generous(pydantic.BaseModel, Generic[T]):
    item: T


UserId = NewType("UserId", int)
UTC = datetime.timezone.utc


def rich(**changes: Any) -> Rich:
    parts: dict[str, Any] = {
        "when": datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "price": decimal.Decimal("1.10"),
        "id": uuid.UUID(int=7),
        "path": pathlib.Path("/a/b"),
        "tags": {"x", "y"},
        "by_number": {1: "one"},
        "pair": (1, 2),
        "data": b"abc",
        "took": datetime.timedelta(seconds=1.5),
    }
    return Rich(**(parts | changes))


def back(hint: Any, value: Any) -> Any:
    """Write a state and read it as another process does after a crash."""

    @agent(state=hint)
    async def holder(ctx: AgentContext[Any]) -> None: ...

    holder.check_state(value)
    return holder.initial_state((flovyn._native.decode_json(flovyn._native.encode_json(value)),))


SURVIVE: list[tuple[str, Any, Any]] = [
    ("a union of dataclasses", Box[Union[Cat, Dog, None]], Box([Dog("rex", 3), Cat("tom"), None])),
    ("a union as new ones are written", Box[Cat | Dog], Box([Dog()])),
    ("a union by a literal", Box[Union[Square, Circle]], Box([Circle("circle", 1), Square("square", 1)])),
    ("a union by the types of fields", Box[Union[Number, Text]], Box([Text("1"), Number(1)])),
    ("a union where one has all fields of the other", Box[Union[Long, Short]], Box([Short("a"), Long("b")])),
    ("a union of models", Box[Union[Animal, Bird, Fish]], Box([Fish(), Animal(), Bird()])),
    ("a union of containers", Box[Union[list[Dog], dict[str, Dog]]], Box([[Dog()], {"a": Dog()}])),
    ("a union with a scalar", Box[Union[Mode, int, Dog]], Box([3, Mode.FAST, Dog()])),
    ("a generic", Box[Job], Box([Job(1)])),
    ("a generic that is bound by a base", Jobs, Jobs([Job(1)])),
    ("a generic whose base has another variable", Pair[Job, Dog], Pair([[Job(1)]], {"d": Dog("r")})),
    ("a generic model", Generous[tuple[int, ...]], Generous[tuple[int, ...]](item=(1, 2))),
    ("a class that holds itself", Tree, Tree("a", [Tree("b", [Tree("c")])])),
    ("a model of plain fields", Sure, Sure(n=1, names=["a"], next=Sure(n=2), by_name={"a": [1.5]}, more={"a": [1]})),
    ("an alias", Aliased, Aliased(userId=7, inner=Aliased(userId=8))),
    ("a validation alias", Validated, Validated(uid=7)),
    ("a computed field", Computing, Computing(n=3)),
    ("an excluded field that is its default", Excluding, Excluding(n=3)),
    ("a strict model", Strict, Strict(when=datetime.date(2026, 1, 2), pair=(1, 2))),
    ("what pydantic knows of JSON", Rich, rich()),
    ("__post_init__", Counted, Counted(5)),
    ("__post_init__ of a frozen class", Frozen, Frozen(5)),
    ("a field without init", Seeded, Seeded(4, 1)),
    ("a cached property", Cached, Cached(3)),
    ("a named tuple", Box[Point], Box([Point(1, Dog("rex"))])),
    ("a typed dict", Info, {"job": Job(1), "pair": (1, 2)}),
    ("tuples in dicts", dict[str, tuple[int, Job]], {"a": (1, Job(2))}),
    ("tuples in tuples", Box[tuple[tuple[int, ...], ...]], Box([((1, 2), ())])),
    ("an enum of str", Box[Mode], Box([Mode.SLOW])),
    ("an enum of int", dict[str, Level], {"a": Level.HIGH}),
    ("flags", Box[Rights], Box([Rights.READ | Rights.WRITE])),
    ("enum keys", dict[Mode, int], {Mode.SLOW: 1}),
    ("a literal of enum members", Box[Literal[Mode.SLOW]], Box([Mode.SLOW])),
    ("a new type", Box[UserId], Box([UserId(3)])),
    ("a new type of a class", Box[NewType("Best", Dog)], Box([Dog("rex")])),
    ("an annotated type", Box[Annotated[Dog, "good"]], Box([Dog("rex")])),
    ("an enum of anything", Box[Plain], Box([Plain.A])),
    ("a deque", Box[collections.deque[int]], Box([collections.deque([1])])),
    ("keys that are numbers", dict[int, str], {1: "a"}),
    ("a counter", collections.Counter[str], collections.Counter("abca")),
    ("an ordered dict in order", collections.OrderedDict[str, int], collections.OrderedDict(a=1, b=2)),
    ("numbers", Box[Any], Box([2**70, -0.0, 0.1, True, 2**53 + 1, 1.0])),
    ("None for a default", Number, Number(None)),  # pyright: ignore[reportArgumentType]
]


@pytest.mark.parametrize(("hint", "value"), [case[1:] for case in SURVIVE], ids=[case[0] for case in SURVIVE])
def test_a_state_comes_back_as_it_was(hint: Any, value: Any) -> None:
    if isinstance(value, Cached):
        assert value.double == 6
    found = back(hint, value)
    assert found == value and type(found) is type(value)
    assert codec_of(hint).check_state(value) is value, "what comes back is not refused"
    if isinstance(value, Box):
        assert [type(item) for item in found.items] == [type(item) for item in value.items]
    if isinstance(value, dict):
        assert list(map(type, found)) == list(map(type, value))


def test_fields_of_init_that_are_not_stored_do_not_hinder() -> None:
    assert back(Seeded, Seeded(4, 1)).total == 4


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_a_model_is_certain_by_what_it_holds_not_by_its_class() -> None:
    shape = codec_of(Sure).shape
    assert shape.fits(Sure(n=1, names=["a"], next=Sure(n=2), by_name={"a": [1.5]}, more={"a": [1]}))
    changed = Sure(n=1)
    for name, value in (("n", True), ("names", ("a",)), ("next", {"n": 1}), ("by_name", {"a": [1]}), ("more", (1,))):
        wrong = changed.model_copy(update={name: value})
        assert not shape.fits(wrong)
        with pytest.raises(flovyn.NotSerializable, match=name):
            back(Sure, wrong)
    for cls in (Aliased, Excluding, Computing, Secret, Rich, Animal):
        assert codec_of(cls).shape.fits(cls.model_construct()) is (cls is Animal or cls is Computing)


VIENNA = zoneinfo.ZoneInfo("Europe/Vienna")
REFUSED: list[tuple[str, Any, Any, str, str]] = [
    ("a secret", Secret, Secret(key="s3cret"), "$.key", "keep secrets out"),
    ("an excluded field", Excluding, Excluding(hidden=5), "$.hidden", "excludes"),
    ("a private attribute", Private, Private().counted(5), "$._n", "private"),
    ("an alias that only writes", ByAlias, ByAlias(user_id=7), "$.user_id", "another value"),
    ("a subclass of a dataclass", Box[Dog], Box([Puppy("p", 1, 2)]), "$.items[0]", "has no field 'age'"),
    ("a subclass of a model", Box[Animal], Box([Bird(wings=3)]), "$.items[0]", "has no field 'wings'"),
    ("a subclass of a model in a model", Owner, Owner(pet=Bird(wings=3)), "$.pet", "come back as"),
    ("a subclass of the state", Animal, Bird(), "$", "has no field 'wings'"),
    ("a union that JSON cannot tell apart", Box[Union[Dog, Twin]], Box([Twin("a", 1)]), "$.items[0]", "Literal"),
    ("a tuple in a dict", dict, {"a": [(1, 2)]}, "$.a[0]", "pass a list"),
    ("a tuple where a list is declared", Box[int], Box((1, 2)), "$.items", "pass a list"),  # pyright: ignore
    ("a dataclass in a dict", dict, {"a": Job(1)}, "$.a", "annotate it as Job"),
    ("an enum as its base", Box[str], Box([Mode.SLOW]), "$.items[0]", "annotate it as Mode"),
    ("a counter as a dict", dict, {"a": collections.Counter("ab")}, "$.a", "pass a dict"),
    ("a default dict", dict[str, Any], {"a": collections.defaultdict(int)}, "$.a", "factory"),
    ("an order", collections.OrderedDict[str, int], collections.OrderedDict(b=1, a=2), "$", "sorted"),
    ("keys that are no text", dict, {1: "a"}, "$", "annotate it as what its keys are"),
    ("keys that are tuples", dict, {(1, 2): "a"}, "$", "keys must be str"),
    ("keys that are None", dict, {None: "a"}, "$", "keys must be str"),
    ("a moment in a dict", dict, {"a": datetime.datetime(2026, 1, 2)}, "$.a", "annotate it as what it is"),
    ("a set in a dict", dict, {"a": {1}}, "$.a", "annotate it as what it is"),
    ("a decimal that is no number", Box[decimal.Decimal], Box([decimal.Decimal("NaN")]), "$.items[0]", "finite"),
    ("a date for a moment", Box[datetime.datetime], Box([datetime.date(2026, 1, 2)]), "$.items[0]", "come back as"),
    ("a moment for a date", Box[datetime.date], Box([datetime.datetime(2026, 1, 2)]), "$.items[0]", "is wanted"),
    ("a path beside text", Box[str | pathlib.Path], Box([pathlib.Path("a")]), "$.items[0]", "come back as a str"),
    ("bytes beside text", Box[bytes | str], Box([b"a"]), "$.items[0]", "come back as a str"),
    (
        "text that is a moment",
        Box[str | datetime.date],
        Box(["2026-01-02"]),
        "$.items[0]",
        "come back as a datetime.date",
    ),
    ("NaN", Box[float], Box([float("nan")]), "$.items[0]", "finite"),
    ("infinity", Box[float], Box([float("inf")]), "$.items[0]", "finite"),
    ("a lone surrogate", Box[str], Box(["\ud800"]), "$.items[0]", "surrogate"),
    ("a zone", Rich, rich(when=datetime.datetime(2026, 1, 2, tzinfo=VIENNA)), "$.when", "UTC"),
    ("a fold", Rich, rich(when=datetime.datetime(2026, 10, 25, 2, 30, tzinfo=VIENNA, fold=1)), "$.when", "UTC"),
    ("a str in a field of int", Number, Number("5"), "$.value", "int is wanted"),  # pyright: ignore
    ("a dict in a field of a class", Box[Job], Box([{"n": 1}]), "$.items[0]", "pass a"),
]


@pytest.mark.parametrize(("hint", "value", "path", "why"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED])
def test_a_state_that_would_change_is_refused(hint: Any, value: Any, path: str, why: str) -> None:
    with pytest.raises(flovyn.NotSerializable) as refused:
        back(hint, value)
    assert (refused.value.path.startswith(path), why in str(refused.value)) == (True, True), str(refused.value)
    assert path in str(refused.value) and refused.value.type


def test_attributes_that_are_no_fields_are_refused_and_private_ones_are_not() -> None:
    job = Job(1)
    vars(job)["_cache"] = [1]
    assert back(Job, job) == job
    vars(job)["note"] = "x"
    with pytest.raises(flovyn.NotSerializable, match=r"\$\.note.*declare the field"):
        back(Job, job)


def test_a_state_that_holds_itself_is_refused() -> None:
    state: dict[str, Any] = {}
    state["a"] = [state, state]
    tree = Tree("a")
    tree.children.append(tree)
    for hint, value in ((dict, state), (Tree, tree)):
        with pytest.raises(flovyn.NotSerializable, match="nested too deeply"):
            back(hint, value)


def test_classes_inside_of_a_function_are_found() -> None:
    @dataclasses.dataclass
    class Inner:
        n: int = 0

    @dataclasses.dataclass
    class Outer:
        inner: Inner
        many: list[Inner]

    value = Outer(Inner(1), [Inner(2)])

    @agent(state=Outer)
    async def holder(ctx: AgentContext[Any], given: Outer) -> Outer: ...

    stored = flovyn._native.decode_json(flovyn._native.encode_json(value))
    holder.check_state(value)
    assert holder.initial_state((stored,)) == value
    assert holder.arguments(stored)[0] == [value] and holder.output(value) is value


def test_members_of_a_union_keep_to_their_types() -> None:
    for hint, value in (
        (Box[Union[Level, bool]], Box([True, Level.LOW])),
        (Box[Union[int, float, Level]], Box([1.0])),
        (Box[Union[dict[str, int], Job]], Box([Job(1), {"m": 1}])),
    ):
        assert back(hint, value) == value
        assert list(map(type, back(hint, value).items)) == list(map(type, value.items))
    with pytest.raises(flovyn.NotSerializable, match="Level"):
        back(Box[Union[Level, int]], Box([1]))


def test_a_factory_says_by_what_it_makes_how_a_state_is_read() -> None:
    made: list[Job] = []

    def first() -> Job:
        made.append(Job(1))
        return made[-1]

    assert back(first, Job(5)) == Job(5)


# ── results and arguments ───────────────────────────────────────────────────────────────────────────────────────────


def result(hint: Any, value: Any) -> Any:
    """Write a result and give what an await delivers of it."""

    def fn() -> Any: ...

    fn.__annotations__["return"] = hint
    signature = Signature(fn, "TaskContext")
    assert signature.returned(value) is value
    make = signature.returns()
    stored = value if isinstance(value, bytes) else flovyn._native.decode_json(flovyn._native.encode_json(value))
    return make(stored) if make else stored


DELIVERED: list[tuple[str, Any, Any, Any]] = [
    ("a tuple alone", tuple[int, Job], (1, Job(2)), (1, Job(2))),
    ("a tuple without an annotation", Any, {"a": (1, (2,))}, {"a": [1, [2]]}),
    ("a named tuple without an annotation", Any, [Point(1, Dog("rex"))], [[1, {"name": "rex", "tricks": 0}]]),
    ("keys without an annotation", Any, {1: {uuid.UUID(int=1): 2.5}}, {"1": {str(uuid.UUID(int=1)): 2.5}}),
    ("a moment without an annotation", Any, [datetime.datetime(2026, 1, 2, tzinfo=UTC)], ["2026-01-02T00:00:00Z"]),
    ("a set without an annotation", Any, {"a": {2, 10, 1}}, {"a": [1, 2, 10]}),
    ("an enum without an annotation", Any, (Plain.A, Mode.FAST), ["a", "fast"]),
    ("bytes without an annotation", Any, {"a": b"\xfb\xff"}, {"a": "+/8="}),
    ("a moment as text", str, datetime.date(2026, 1, 2), "2026-01-02"),
    ("text for a moment", datetime.datetime, "2026-01-02 03:04:05.5+0200", None),
    ("a tuple in a dict", dict[str, tuple[int, int]], {"a": (1, 2)}, {"a": (1, 2)}),
    ("a dataclass without an annotation", Any, {"a": Job(1)}, {"a": {"n": 1}}),
    ("a model without an annotation", Any, rich(), None),
    ("JSON for what it stands for", Job, {"n": 1}, Job(1)),
    ("an enum as its base", str, Mode.SLOW, "slow"),
    ("a union", Union[Cat, Dog], Dog("rex", 3), Dog("rex", 3)),
    ("a sequence", Sequence[Dog], [Dog("rex")], [Dog("rex")]),
    ("nothing", Optional[Job], None, None),
    ("bytes", bytes, b"abc", b"abc"),
]


@pytest.mark.parametrize(("hint", "value", "expected"), [c[1:] for c in DELIVERED], ids=[c[0] for c in DELIVERED])
def test_a_result_is_what_it_stands_for(hint: Any, value: Any, expected: Any) -> None:
    found = result(hint, value)
    if expected is not None or value is None:
        assert found == expected and type(found) is type(expected)


NOT_DELIVERED: list[tuple[str, Any, Any, str]] = [
    ("a secret without an annotation", Any, {"a": Secret(key="x")}, "$.a.key"),
    ("a counter without an annotation", Any, collections.Counter("ab"), "$"),
    ("bytes that may change", Any, bytearray(b"a"), "$"),
    ("bytes where something else is annotated", Box[Any], Box([b"a"]), "$.items[0]"),
    ("what a set holds", Any, {"a": {Frozen(1), 1j}}, "$.a"),
    ("a secret in a set", Any, [{Hidden(key="x")}], "$[0].key"),
    ("nanoseconds", Any, [Nanos(2026, 1, 1)], "$[0]"),
    ("an offset in seconds", Any, datetime.time(1, tzinfo=datetime.timezone(datetime.timedelta(seconds=1))), "$"),
    ("a subclass", Dog, Puppy(), "$"),
    ("an object of another class", Job, Number(1), "$"),
    ("a union that JSON cannot tell apart", Union[Dog, Twin], Twin(), "$"),
]


@pytest.mark.parametrize(("hint", "value", "path"), [c[1:] for c in NOT_DELIVERED], ids=[c[0] for c in NOT_DELIVERED])
def test_a_result_that_would_change_is_refused(hint: Any, value: Any, path: str) -> None:
    with pytest.raises(flovyn.NotSerializable) as refused:
        result(hint, value)
    assert refused.value.path == path


def test_a_bytearray_comes_back_where_it_is_declared() -> None:
    make = rebuilder(bytearray)
    assert make is not None and type(make(b"a")) is bytearray


def test_arguments_that_travel_are_checked_with_their_names() -> None:
    def many(first: Dog, *rest: Dog, **more: tuple[int, int]) -> None: ...

    signature = Signature(many, "TaskContext")
    wire = signature.wire((Dog("a"), Dog("b")), {"c": (1, 2)}, travels=True)
    stored = flovyn._native.decode_json(flovyn._native.encode_json(wire))
    assert signature.unwire(stored) == ([Dog("a"), Dog("b")], {"c": (1, 2)})
    with pytest.raises(flovyn.NotSerializable, match=r"\$\.rest\[0\]"):
        signature.wire((Dog(), Puppy()), {}, travels=True)
    assert signature.wire((Dog(), Puppy()), {}), "what stays in the process is given as it is"


def test_parameters_of_tools_become_what_is_annotated() -> None:
    def tool(
        by_number: dict[int, str],
        tags: set[str],
        pair: tuple[int, int],
        pet: Cat | Dog,
        size: Annotated[int, pydantic.Field(ge=1)],
        queue: collections.deque[int],
    ) -> None: ...

    given = {
        "by_number": {"1": "a"},
        "tags": ["x", "x"],
        "pair": [1, 2],
        "pet": {"name": "rex", "tricks": 3},
        "size": 5,
        "queue": [1],
    }
    args, _ = Signature(tool, "TaskContext").unwire(given)
    assert args == [{1: "a"}, {"x"}, (1, 2), Dog("rex", 3), 5, collections.deque([1])]


def test_live_values_pass_where_they_are_rebuilt() -> None:
    def fn(dog: Dog, model: Animal, level: Level) -> None: ...

    given = {"dog": Dog("a"), "model": Bird(), "level": Level.LOW}
    assert Signature(fn, "TaskContext").unwire(given)[0] == [Dog("a"), Bird(), Level.LOW]


def test_an_input_that_would_change_is_refused_at_the_start() -> None:
    @agent
    async def taking(ctx: AgentContext[Any], pet: Union[Dog, Twin]) -> None: ...

    assert taking.wire({"name": "a"}) == {"name": "a"}
    with pytest.raises(flovyn.NotSerializable, match="Literal"):
        taking.wire(Twin("a", 1))


def test_what_has_no_annotation_is_checked_alone() -> None:
    kept = {"a": [1, "b", None, {"c": 1.5}]}
    assert checked(kept) is kept
    with pytest.raises(flovyn.NotSerializable, match="masked"):
        checked([Secret(key="x")])
