"""Stored states that the code reads after a deploy or a crash, and those that it cannot read."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, agent
from test_values_back import Aliased, Animal, Box, Cat, Counted, Dog, Job, Mode, Number, Owner, Square


def unreadable(hint: Any, stored: Any, migrate: Callable[[Any], Any] | None = None) -> str:
    from flovyn.agent import UnreadableState

    @agent(kind="k", state=hint, migrate=migrate)
    async def reader(ctx: AgentContext[Any]) -> None: ...

    with pytest.raises(UnreadableState) as found:
        reader.initial_state((stored,))
    assert found.value.code == "WrongStateType" and "resume" in str(found.value)
    return str(found.value)


def test_a_dropped_field_is_told() -> None:
    assert "at $.old an integer (5) was found, but Job has no field 'old'" in unreadable(Job, {"n": 1, "old": 5})
    assert "$.items[1].old" in unreadable(Box[Job], {"items": [{"n": 1}, {"n": 1, "old": 5}]})
    assert "$.old" in unreadable(Animal, {"name": "a", "old": 1})
    assert "$.pet.old" in unreadable(Owner, {"pet": {"name": "a", "old": 1}})
    assert "$.userID" in unreadable(Aliased, {"userID": 1})


def test_a_field_that_changed_its_type_is_told() -> None:
    assert "at $.items an integer (5) was found, but a list is wanted" in unreadable(Box[int], {"items": 5})
    assert "at $.value a string ('5') was found, but int is wanted" in unreadable(Number, {"value": "5"})
    assert "at $.items[0] a string ('x') was found, but a Mode ('fast', 'slow')" in unreadable(
        Box[Mode], {"items": ["x"]}
    )
    assert "'square'" in unreadable(Square, {"kind": "circle", "side": 1})
    assert "wants a field 'value'" in unreadable(Number, {})
    assert "a list was found" in unreadable(dict, [])
    assert "rebuilt from an object" in unreadable(Job, [1])
    told = unreadable(Box[Aliased], {"items": [{"inner": {"user_id": "x"}}]})
    assert "at $.items[0].inner.user_id a string ('x') was found, but Aliased says: Input should be a valid int" in told


def test_a_migration_that_raises_is_told() -> None:
    assert "migrate= raised KeyError: 'nn'" in unreadable(Job, {"n": 1}, lambda old: {"n": old["nn"]})


def test_a_class_that_refuses_what_is_stored_is_told() -> None:
    @dataclasses.dataclass
    class Small:
        n: int = 0

        def __post_init__(self) -> None:
            if self.n > 4:
                raise ValueError("five is not allowed any more")

    assert "raised ValueError: five is not allowed any more" in unreadable(Small, {"n": 5})


def test_a_new_field_with_a_default_and_a_migration_are_read() -> None:
    @agent(state=Cat, migrate=lambda old: {"name": old["called"]})
    async def renamed(ctx: AgentContext[Any]) -> None: ...

    assert renamed.initial_state(({"called": "tom"},)) == Cat("tom", 9)

    @agent(state=Cat, migrate=lambda old: Cat(old["called"]))
    async def made(ctx: AgentContext[Any]) -> None: ...

    assert made.initial_state(({"called": "tom"},)) == Cat("tom")


# ── across a real crash ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclasses.dataclass
class Zoo:
    pet: Cat | Dog | None = None
    box: Box[Job] = dataclasses.field(default_factory=lambda: Box([]))
    counted: Counted = dataclasses.field(default_factory=Counted)
    config: Aliased = dataclasses.field(default_factory=Aliased)


@agent(kind="zoo", state=Zoo)
async def keeper(ctx: AgentContext[Zoo], die: bool) -> str:
    if ctx.state.pet is None:
        await ctx.checkpoint(Zoo(Dog("rex", 3), Box([Job(1)]), Counted(5), Aliased(userId=7)))
        print(repr(ctx.state), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return repr(ctx.state)


def test_a_state_is_the_same_after_a_kill(tmp_path: pathlib.Path) -> None:
    url = f"sqlite:{tmp_path / 'db'}"
    first = subprocess.run([sys.executable, __file__, url], stdout=subprocess.PIPE, text=True, timeout=60)
    assert first.returncode == -signal.SIGKILL
    assert flovyn.run(keeper, True, id="r", url=url, timeout=60) == first.stdout.strip()


if __name__ == "__main__":
    flovyn.run(keeper, True, id="r", url=sys.argv[1])
