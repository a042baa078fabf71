"""Agents of others, by a scripted program that speaks their protocols."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, External
from flovyn.child_events import Completed, Signal
from flovyn.toolkit import RunOutcome

FAKE = str(Path(__file__).parents[2] / "toolkit" / "tests" / "external" / "fake_agent.py")


def fake(driver: str, folder: Path) -> External:
    env = {"FAKE_DIR": str(folder), "CLAUDE_CONFIG_DIR": str(folder)}
    given: dict[str, Any] = {"working_dir": folder, "approvals": "allow", "env": env}
    command = [sys.executable, FAKE, driver]
    match driver:
        case "pi":
            return External.pi(command=command, model="fake/m", **given)
        case "claude":
            return External.claude(command=command, **given)
        case _:
            return External.acp(command=command, **given)


@pytest.mark.parametrize("driver", ["acp", "claude", "pi"])
def test_an_agent_of_others_runs_like_any(driver: str, tmp_path: Path) -> None:
    outcome = flovyn.run(fake(driver, tmp_path), "say Hello; tool read; say Done", url="memory:")
    assert isinstance(outcome, RunOutcome)
    assert (outcome.text, outcome.stop_reason, outcome.turns) == ("Done", "end", 1)


def test_family_15_it_is_a_child_that_tells_its_turns(tmp_path: Path) -> None:
    @flovyn.agent
    async def lead(ctx: AgentContext, task: str) -> list[str]:
        child = ctx.spawn_agent(fake("acp", tmp_path), task)
        heard: list[str] = []
        while True:
            match await ctx.wait_for_child_event(child):
                case Signal("turn", payload):
                    heard.append(payload["text"])
                case Completed(output):
                    return [*heard, output.text]
                case other:
                    raise AssertionError(other)

    assert flovyn.run(lead, "say Hello", url="memory:") == ["Hello", "Hello"]


def test_one_that_is_not_there_says_where_it_was_looked_for(tmp_path: Path) -> None:
    missing = External.custom(command=["no-such-agent"], working_dir=tmp_path)
    with pytest.raises(flovyn.FlovynError, match=r"no-such-agent.*PATH"):
        flovyn.run(missing, "Hello", url="memory:")
    with pytest.raises(flovyn.InvalidArgument, match="command"):
        External.acp(command=[], working_dir=tmp_path)
