"""Patterns of families: agents that are tools of an agent, and agents that a conversation is handed off to."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, External, InvalidArgument
from flovyn.testing import fake_llm, tool_call, turn
from flovyn.toolkit import (
    PlanInput,
    RunOutcome,
    delegate,
    escalate,
    plan_and_execute,
    react_agent,
    supervisor,
    tool,
)

VICTIM = Path(__file__).parent / "patterns_victim.py"
EXTERNAL = str(Path(__file__).parents[2] / "toolkit" / "tests" / "external" / "fake_agent.py")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FLOVYN_HOME", str(tmp_path / "home"))
    yield


@flovyn.task
def look(at: str) -> str:
    """Look at something."""
    return f"{at} are there"


@flovyn.agent
async def doubler(ctx: AgentContext[Any], number: int) -> int:
    """Double a number.

    Args:
        number: Which one.
    """
    if number < 0:
        raise ValueError("no such number")
    return number * 2


@flovyn.agent(description="Says the time.")
async def clock(ctx: AgentContext[Any]) -> str:
    return "noon"


def asked(fake: Any) -> list[str]:
    """Return what the parent's model was told of its calls."""
    found: list[str] = []
    for message in fake.calls[-1].body["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else []:
            if part["type"] == "tool_result":
                content = part["content"]
                found += [content] if isinstance(content, str) else [one["text"] for one in content]
    return found


def test_agents_of_both_kinds_are_delegates(url: str) -> None:
    turns = [
        tool_call("look", {"at": "otters"}).when(last_user_contains="Look at otters", has_tool_result=False),
        turn("Otters are there.").when(last_user_contains="Look at otters"),
        tool_call("scout", {"task": "Look at otters."})
        .and_call("twice", {"number": 21})
        .and_call("doubler", {"number": -1})
        .and_call("clock", {}),
        turn("Done."),
    ]
    with fake_llm(turns) as fake:
        scout = react_agent("scout", description="Looks at animals.", tools=[tool(look, effect="read")])
        lead = react_agent(
            "lead",
            model=fake.model,
            tools=[clock],
            delegates=[scout, delegate(doubler, name="twice", budget=1_000), doubler],
        )
        outcome = flovyn.run(lead, "What is there?", id="lead", url=url)
        assert outcome.text == "Done."
        results = asked(fake)
    assert results[0] == "Otters are there."
    assert results[1] == "42"
    assert results[2].startswith("The agent doubler has failed: ValueError: no such number")
    assert results[3] == "noon"


@pytest.mark.parametrize("driver", ["acp", "claude", "pi"])
def test_an_agent_of_others_is_a_delegate(url: str, tmp_path: Path, driver: str) -> None:
    env = {"FAKE_DIR": str(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path)}
    given: dict[str, Any] = {"working_dir": tmp_path, "approvals": "allow", "env": env}
    program = {"command": [sys.executable, EXTERNAL, driver]}
    turns = [
        tool_call("coder", {"task": "say Hello; tool read; say Two files are changed."}),
        tool_call("coder", {"task": "fail no otters"}),
        turn("Done."),
    ]
    with fake_llm(turns) as fake:
        coder = getattr(External, driver)(**program, **given)
        with pytest.raises(InvalidArgument, match="has no description"):
            react_agent("lead", delegates=[coder])
        lead = react_agent(
            "lead", model=fake.model, delegates=[delegate(coder, name="coder", description="Changes code.")]
        )
        assert flovyn.run(lead, "Change it.", id="lead", url=url).text == "Done."
        results = asked(fake)
        assert results[0] == "Two files are changed."
        assert results[1].startswith("The agent coder has failed: ") and "no otters" in results[1]
        [shown] = [one for one in fake.calls[0].body["tools"] if one["name"] == "coder"]
        assert shown["description"].startswith("Changes code.")
        assert list(shown["input_schema"]["properties"]) == ["task"]
    prompts = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    said = [line["text"] for line in prompts if line["event"] == "prompt"]
    assert said == ["say Hello; tool read; say Two files are changed.", "fail no otters"]


def test_the_schema_of_a_delegate_is_that_of_its_input() -> None:
    described = react_agent("lead", delegates=[doubler, clock]).describe()["agents"][0]["delegates"]
    properties = {"number": {"type": "integer", "description": "Which one."}}
    assert described[0]["description"] == "Double a number."
    assert described[0]["argument"] == "number"
    assert described[0]["parameters"]["properties"] == properties
    assert described[1]["parameters"]["properties"] == {}


def test_a_conversation_is_handed_off(url: str) -> None:
    turns = [
        tool_call("transfer_to_billing", {"reason": "an invoice"}).and_call("look", {"at": "invoices"}),
        tool_call("transfer_to_doubler", {"number": 4}),
    ]
    with fake_llm(turns) as fake:
        billing = react_agent(
            "billing", description="Corrects invoices.", system_prompt="You correct invoices.", handoffs=[doubler]
        )
        desk = react_agent("desk", model=fake.model, tools=[tool(look, effect="read")], handoffs=[billing])
        # A run ends as its successor does, whatever that returns.
        ended: Any = flovyn.run(desk, "My invoice is wrong.", id="desk", url=url)
        assert ended == 8
        body = fake.calls[1].body
        assert "You correct invoices." in str(body["system"])
        assert [one["name"] for one in body["tools"]] == ["transfer_to_doubler"]
        assert asked(fake) == ["Asked billing to go on with the conversation.", "invoices are there"]


def test_a_handed_off_run_has_one_outcome(url: str) -> None:
    turns = [tool_call("transfer_to_billing", {}), turn("Corrected.")]
    with fake_llm(turns) as fake:
        billing = react_agent("billing", description="Corrects invoices.")
        desk = react_agent("desk", model=fake.model, handoffs=[billing])
        outcome = flovyn.run(desk, "My invoice is wrong.", id="desk", url=url)
        assert isinstance(outcome, RunOutcome)
        assert outcome.text == "Corrected."


@pytest.mark.parametrize("marker", ["look at otters", "close"])
def test_a_new_process_serves_the_family_of_one_that_is_gone(file_url: str, tmp_path: Path, marker: str) -> None:
    turns = [
        tool_call("look", {"at": "otters"}).when(last_user_contains="Look at otters", has_tool_result=False),
        turn("Otters are there.").when(last_user_contains="Look at otters"),
        tool_call("scout", {"task": "Look at otters."}),
        tool_call("transfer_to_closer", {"how": "Well"}),
    ]
    log = tmp_path / "log"
    with fake_llm(turns) as fake:
        command = [sys.executable, str(VICTIM), file_url, fake.url, str(log)]
        killed = subprocess.run([*command, marker], capture_output=True, text=True, timeout=60)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        done = subprocess.run([*command, ""], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "Well, after 2 answers"
        assert fake.paid == 4
    assert log.read_text().split("\n") == ["look at otters", "close", ""]


def test_what_is_no_delegate_is_refused_in_words() -> None:
    @flovyn.agent
    async def silent(ctx: AgentContext[Any]) -> None: ...

    with pytest.raises(InvalidArgument, match=r"the agent 'silent' has no description"):
        react_agent("lead", delegates=[silent])
    with pytest.raises(InvalidArgument, match=r"handoffs takes agents, and what delegate\(…\) gave, not 'billing'"):
        react_agent("lead", handoffs=["billing"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgument, match=r"the agent 'doubler' is named 'two words' as a tool"):
        delegate(doubler, name="two words")
    with pytest.raises(InvalidArgument, match=r"the agent 'doubler' is no task: a call of it starts a child"):
        tool(doubler)  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_a_plan_is_made_and_done(url: str) -> None:
    plan = {
        "tasks": [
            {"id": "sea", "worker": "scout", "arguments": {"task": "Look at otters."}, "dependsOn": []},
            {"id": "many", "worker": "doubler", "arguments": {"number": 4}, "dependsOn": ["sea"]},
        ]
    }
    turns = [
        tool_call("final_answer", plan).when(last_user_contains="Split this task"),
        turn("Four.").when(last_user_contains="Look at otters"),
        tool_call("final_answer", {"answer": "Eight.", "satisfied": True}).when(
            last_user_contains="Other agents have done"
        ),
    ]
    with fake_llm(turns) as fake:
        scout = react_agent("scout", model=fake.model, description="Looks at animals.")
        study = plan_and_execute("study", planner=fake.model, workers=[scout, doubler])
        outcome = flovyn.run(study, PlanInput("Twice the otters?", criteria=["a number"]), id="study", url=url)
        assert (outcome.text, outcome.satisfied, outcome.replans) == ("Eight.", True, 0)
        assert [(task.id, task.worker, task.result) for task in outcome.tasks] == [
            ("sea", "scout", "Four."),
            ("many", "doubler", "8"),
        ]
    with pytest.raises(InvalidArgument, match=r"the agent 'study' has no workers"):
        plan_and_execute("study", planner="fake/m", workers=[])


def test_a_supervisor_ends_with_an_answer(url: str) -> None:
    turns = [tool_call("doubler", {"number": 1}).times(2), turn("Two.")]
    with fake_llm(turns) as fake:
        lead = supervisor("lead", model=fake.model, agents=[doubler], rounds=1)
        assert flovyn.run(lead, "Twice one?", id="lead", url=url).text == "Two."
        results = asked(fake)
        assert results[0] == "2"
        assert results[1].startswith("Not given out")


@flovyn.agent(description="Asks before it acts.")
async def careful(ctx: AgentContext[Any], what: str) -> str:
    return f"{what}: {await escalate(ctx, f'May I delete {what}?')}"


def test_a_question_goes_up_to_the_model_that_gave_the_work(url: str) -> None:
    turns = [
        tool_call("careful", {"what": "logs"}, id="delete"),
        tool_call("answer_agent", {"id": "1.delete", "answer": "yes"}),
        turn("Done."),
    ]
    with fake_llm(turns) as fake:
        lead = react_agent("lead", model=fake.model, delegates=[careful])
        assert flovyn.run(lead, "Delete the logs.", id="lead", url=url).text == "Done."
        results = asked(fake)
        assert results[0].startswith("The agent careful asks: May I delete logs?")
        assert results[1] == "logs: yes"


async def test_a_question_of_a_root_is_asked_of_a_person(url: str) -> None:
    async with await flovyn.connect(url) as client, client.worker(agents=[careful]):
        run = await client.start(careful, "logs")
        while True:
            requests = [entry.content for entry in await run.messages() if entry.entry_type == "input_request"]
            if requests:
                break
            await asyncio.sleep(0.01)
        assert requests[0]["questions"]["answer"]["message"] == "May I delete logs?"
        for said in ({"id": "another", "hash": "x"}, "nothing"):
            await run.signal("input", said)
        answer = {"action": "accept", "content": {"answer": "no"}}
        reply = {"id": requests[0]["id"], "hash": requests[0]["hash"], "responses": {"answer": answer}}
        await run.signal("input", reply)
        assert await run.result() == "logs: no"
