"""Answers that have a form: of the built-in agent, of model calls as steps, and of model calls outside of an agent."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, TypedDict

import flovyn
import pydantic
import pytest
from flovyn import AgentFailed, InvalidArgument
from flovyn.testing import check, fake_llm, tool_call, turn
from flovyn.toolkit import InvalidOutput, Provider, RunInput, Toolkit, llm, react_agent

PATIENCE_S = 30.0


class Otter(pydantic.BaseModel):
    """An otter."""

    name: str
    age: int = pydantic.Field(ge=1)
    friends: list[str] = []

    @pydantic.field_validator("name")
    @classmethod
    def is_a_name(cls, name: str) -> str:
        if not name[0].isupper():
            raise ValueError("a name begins with a capital letter")
        return name


@dataclass
class Plan:
    steps: list[str]
    note: str | None = None
    tags: list[str] = field(default_factory=list[str])


class Place(TypedDict):
    sea: str
    depth: float


RIGHT = {"name": "Lutra", "age": 3, "friends": ["Enhydra"]}
LUTRA = Otter(name="Lutra", age=3, friends=["Enhydra"])


def says(form: str, value: Any) -> Any:
    """Return the turn by which a model gives this answer."""
    return turn(json.dumps(value)) if form == "native" else tool_call("final_answer", value)


def providers(fake: Any) -> dict[str, Provider]:
    """Return one provider for each wire, which forces answers into a form, and one that cannot."""
    return {
        "native": Provider(api="anthropic-messages", base_url=fake.url, structured=True),
        "chat": Provider(api="openai-chat", base_url=fake.openai_url, structured=True),
        "responses": Provider(api="openai-responses", base_url=fake.openai_url, structured=True),
        "tool": Provider(api="openai-chat", base_url=fake.openai_url),
    }


@pytest.mark.parametrize("provider", ["native", "chat", "responses", "tool"])
def test_an_agent_answers_with_a_model(url: str, provider: str) -> None:
    form = "tool" if provider == "tool" else "native"
    with fake_llm([says(form, {"name": "Lutra", "age": 0}), says(form, RIGHT)]) as fake:
        assistant = react_agent("otters", model=f"{provider}/m", output=Otter, providers=providers(fake))
        outcome = flovyn.run(assistant, "Which otter?", id="otter", url=url, timeout=PATIENCE_S)
        assert outcome.output == LUTRA
        assert outcome.output.age == 3
        assert (outcome.stop_reason, outcome.turns, fake.paid) == ("end", 2, 2)


@pytest.mark.parametrize(
    ("output", "given", "expected"),
    [
        (Plan, {"steps": ["dive"], "note": None}, Plan(["dive"])),
        (Plan, {"steps": [], "note": "none", "tags": ["a"]}, Plan([], "none", ["a"])),
        (Place, {"sea": "Bering", "depth": 2.5}, {"sea": "Bering", "depth": 2.5}),
        (list[int], {"value": [1, 2]}, [1, 2]),
        (dict[str, int], {"value": {"a": 1}}, {"a": 1}),
        ({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, {"n": 1}, {"n": 1}),
    ],
)
@pytest.mark.parametrize("form", ["native", "tool"])
def test_types_of_all_kinds_are_answers(form: str, output: Any, given: Any, expected: Any) -> None:
    # Objects with any keys are nothing that a provider enforces.
    form = "tool" if output == dict[str, int] else form
    if output == dict[str, int]:
        given = given["value"]
    with fake_llm([says(form, given)]) as fake:
        assistant = react_agent("any", model=f"{form}/m", providers=providers(fake))
        plain = flovyn.run(assistant, RunInput("Go.", output=output), url="memory:", timeout=PATIENCE_S)
        typed = react_agent("typed", model=f"{form}/m", providers=providers(fake), output=output)
        assert flovyn.run(typed, "Go.", url="memory:", timeout=PATIENCE_S).output == expected
        # The agent knows no type, so a run that says one ends with JSON.
        assert isinstance(plain.output, (dict, list))


def test_a_run_without_an_answer_of_the_form_fails(url: str) -> None:
    with fake_llm(otherwise=turn("An otter.")) as fake:
        assistant = react_agent("otters", model=fake.model, output=Otter, output_retries=1)
        with pytest.raises(AgentFailed, match="asked 2 times") as failed:
            flovyn.run(assistant, "Which otter?", url=url, timeout=PATIENCE_S)
        assert (failed.value.type, fake.paid) == ("invalid_output", 2)


@flovyn.agent
async def asker(ctx: flovyn.AgentContext, model: str) -> list[str]:
    first, second = await asyncio.gather(
        llm.generate("Which?", model=model, output=Otter),
        llm.generate("And who else?", model=model, output=Otter),
    )
    return [first.output.name, second.output.name]


@flovyn.agent
def blocking_asker(ctx: flovyn.SyncAgentContext, model: str) -> list[str]:
    reply = llm.generate("Which?", model=model, output=Otter).result()
    return [reply.output.name]


TURNS = [
    tool_call("final_answer", {"name": "Lutra", "age": 0}),
    # The schema says nothing of capital letters: the model's own validator does.
    tool_call("final_answer", {"name": "lutra", "age": 3}),
    tool_call("final_answer", RIGHT),
]


def test_steps_ask_again_and_each_answer_is_paid_once() -> None:
    with fake_llm(TURNS) as fake:
        report = check(asker, fake.model)
        assert report.result == ["Lutra", "Lutra"]
        bodies = [str(call.body["messages"]) for call in fake.calls]
        assert any("capital letter" in body for body in bodies)
        assert any("minimum" in body or "less than" in body for body in bodies)


def test_a_blocking_agent_asks_again(url: str) -> None:
    with fake_llm(TURNS) as fake:
        assert flovyn.run(blocking_asker, fake.model, url=url, timeout=PATIENCE_S) == ["Lutra"]
        assert fake.paid == 3


def test_a_step_that_is_asked_in_vain_raises(url: str) -> None:
    @flovyn.agent
    async def vain(ctx: flovyn.AgentContext, model: str) -> str:
        step = llm.generate("Which?", model=model, output=Otter, output_retries=0)
        with pytest.raises(InvalidOutput, match="asked 1 times"):
            await step
        with pytest.raises(InvalidOutput):
            await step
        return "told"

    with fake_llm(otherwise=turn("An otter.")) as fake:
        assert flovyn.run(vain, fake.model, url=url, timeout=PATIENCE_S) == "told"
        assert fake.paid == 1


async def test_outside_an_agent_answers_have_forms_too() -> None:
    with fake_llm(TURNS) as fake:
        reply = await llm.generate("Which?", model=fake.model, output=Otter)
        assert (reply.output, reply.tool_calls, fake.paid) == (LUTRA, (), 3)
    with fake_llm([turn(json.dumps({"steps": ["dive"], "note": None}))]) as fake:
        kit = Toolkit(providers=providers(fake))
        plain = await llm.generate("Plan.", model="chat/m", output=Plan, toolkit=kit)
        assert plain.output == Plan(["dive"])
        assert fake.calls[0].body["response_format"]["json_schema"]["strict"] is True


def test_a_form_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no JSON Schema"):
        react_agent("x", model="fake/m", output=object.__new__)  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(InvalidArgument, match="output_retries"):
        react_agent("x", model="fake/m", output=Otter, output_retries=-1)
