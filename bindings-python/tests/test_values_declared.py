"""Annotations of which no value can be kept are refused where they are written."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from enum import Enum
from typing import IO, Any, NamedTuple, Protocol, TypedDict, Union

import flovyn
import numpy as np
import pytest
from flovyn import AgentContext, TaskContext, agent, task


class Foo:
    """Nobody knows what it is made of."""


class Says(Protocol):
    def say(self) -> str: ...


@dataclasses.dataclass
class Node:
    foo: Foo
    next: Node | None = None


class Held(TypedDict):
    lock: threading.Lock


class Pair(NamedTuple):
    a: int
    b: Foo


class Odd(Enum):
    A = object()


REFUSED: list[tuple[Any, str]] = [
    (Foo, r"a Foo \(test_values_declared.Foo\), which cannot be made again .*dataclass.*serializer="),
    (set[Foo], r"at \$\[\] a Foo"),
    (dict[str, list[Foo]], r"at \$\[\]\[\] a Foo"),
    (tuple[int, Foo], r"at \$\[1\] a Foo"),
    (Pair, r"at \$\[b\] a Foo"),
    (Node, r"at \$\.foo a Foo"),
    (Union[Foo, threading.Event], "a Foo"),  # noqa: UP007 - both ways to write one
    (Held, r"at \$\.lock a .*lock.* is of one process"),
    (asyncio.Queue[int], "a Queue .*is of one process: make it where it is used"),
    (Callable[[int], int], "a Callable .*is a function, which is no value"),
    (Iterator[int], "an? Iterator .*is used up.*declare a list"),
    (Generator[int, None, None], "Generator .*declare a list"),
    (AsyncIterator[int], "AsyncIterator .*declare a list"),
    (IO[str], "IO .*is an open file.*path"),
    (io.BytesIO, "BytesIO .*is an open file"),
    (type[int], "a type .*cannot be made again"),
    (complex, "a complex "),
    (memoryview, "declare bytes"),
    (np.ndarray[Any, Any], "ndarray .*tolist"),
    (dict[Foo, int], r"at \$\{\} a Foo"),
    (dict[tuple[int, int], int], r"at \$\{\} a tuple .*list of pairs"),
    (Odd, r"a Odd .*values .*no form in JSON"),
]
IDS = [str(case[0]) for case in REFUSED]


@pytest.mark.parametrize(("hint", "why"), REFUSED, ids=IDS)
def test_what_can_never_be_kept_is_refused(hint: Any, why: str) -> None:
    def takes(ctx: Any, x: int, *, given: Any) -> None: ...
    def gives(ctx: Any) -> Any: ...

    takes.__annotations__ |= {"given": hint}
    gives.__annotations__ |= {"return": hint}
    for declare, what in ((task, "task"), (agent, "agent")):
        with pytest.raises(flovyn.InvalidArgument, match=rf"^the parameter 'given' of {what} 'takes' holds .*{why}"):
            declare(takes)
        with pytest.raises(flovyn.InvalidArgument, match=rf"^the result of {what} 'gives' holds .*{why}"):
            declare(gives)
    with pytest.raises(flovyn.InvalidArgument, match=rf"^the signal 'go' of agent 'f' holds .*{why}"):

        @agent(signals={"go": hint})
        async def f(ctx: AgentContext[None]) -> None: ...

    task(serializer=(lambda value: value, lambda json: json))(takes)


def test_a_state_that_can_never_be_kept_is_refused() -> None:
    with pytest.raises(flovyn.InvalidArgument, match=r"^the state of agent 'f' holds at \$\.foo a Foo"):

        @agent(state=Node)
        async def f(ctx: AgentContext[Node]) -> None: ...


@dataclasses.dataclass
class Client:
    retry: bool
    lock: threading.Lock | None = None


@pytest.mark.parametrize(
    "hint",
    [Foo | None, Client, Says, Mapping[str, Any], int | Foo, list[Foo | str], object, Any, "Later", "list[Later]"],
    ids=str,
)
def test_what_may_be_kept_is_not_refused(hint: Any) -> None:
    def takes(ctx: TaskContext, given: Any) -> Any: ...

    takes.__annotations__ |= {"given": hint, "return": hint}
    assert task(takes).kind == "takes"
