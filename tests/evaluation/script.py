"""What the scripted model answers: it mends a bug, and makes the mistakes on the way that models and their servers make."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from flovyn.testing import cut, malformed, status, tool_call, turn
from flovyn.testing.scripted import Fault, Turn
from tasks import Bug

HALF, NO_UTF8 = "\ue000", "\ue001"
"""What the scripted server writes as half of a surrogate pair, and as a byte that is no UTF-8."""


@dataclass(frozen=True)
class Plan:
    """The answers to one task, in order."""

    turns: list[Turn]
    answer: str
    """What the last one says."""
    paid_beside: int
    """Answers beside these that a provider would charge: those without anything in them."""


def _raw(name: str, arguments: str) -> Turn:
    return Turn({"toolCalls": [{"name": name, "rawArguments": arguments}]})


def _odd(given: Turn, oddity: str) -> Turn:
    return replace(given, script={**given.script, "oddities": [oddity]})


def _two(bug: Bug, **more: Any) -> Turn:
    return Turn(
        {
            "toolCalls": [
                {"name": "read", "arguments": {"path": path}, **more}
                for path in (bug.module, "check.py")
            ]
        }
    )


MISTAKES: dict[str, Callable[[Bug], Turn]] = {
    "a tool that is not there": lambda bug: tool_call(
        "str_replace_editor", {"command": "view", "path": bug.module}
    ),
    "arguments that are null": lambda _: _raw("find", "null"),
    "arguments that are cut": lambda bug: _raw("read", '{"path": "' + bug.module),
    "arguments that are a list": lambda bug: _raw("read", f'["{bug.module}"]'),
    "an argument too few": lambda bug: tool_call(
        "edit", {"path": bug.module, "old_string": bug.wrong}
    ),
    "an argument of another type": lambda _: tool_call("read", {"path": 5}),
    "a text that is not there": lambda bug: tool_call(
        "edit",
        {
            "path": bug.module,
            "old_string": "def nothing():",
            "new_string": "def something():",
        },
    ),
    "a file that is not there": lambda _: tool_call("read", {"path": "src/lib.py"}),
    "a command that fails": lambda _: tool_call(
        "bash", {"command": "pytest-that-nobody-installed"}
    ),
    "one id for two calls": lambda bug: _two(bug, id="call_1"),
    "one number for two calls": lambda bug: _odd(_two(bug), "oneIndex"),
    "text in a list": lambda bug: _odd(
        replace(
            tool_call("read", {"path": bug.module}),
            script={
                **tool_call("read", {"path": bug.module}).script,
                "text": "I look again.",
            },
        ),
        "contentList",
    ),
    "no stream": lambda bug: _odd(
        tool_call("read", {"path": bug.module}), "unstreamed"
    ),
    "half a character": lambda bug: Turn(
        {**tool_call("read", {"path": bug.module}).script, "text": f"Look {HALF}."}
    ),
    "a byte that is no UTF-8": lambda bug: Turn(
        {**tool_call("read", {"path": bug.module}).script, "text": f"Look {NO_UTF8}."}
    ),
    "a reason that does not fit": lambda bug: Turn(
        {**tool_call("read", {"path": bug.module}).script, "stop": "end"}
    ),
}
"""What a model does wrong before it does it right; each is an answer more."""

FAULTS: list[Fault | None] = [
    None,
    cut(),
    status(529),
    malformed(after_events=1),
    None,
    Fault({"empty": None}),
    None,
]
"""What goes wrong with one of its answers."""


def plan(bug: Bug, number: int) -> Plan:
    """Plan the answers to a task, the same for the same number."""
    chance = random.Random(number)
    answer = f"Mended {bug.name}: it said {bug.wrong.strip()!r}."
    check = tool_call("bash", {"command": "python3 -B check.py"})
    turns = [
        tool_call("read", {"path": bug.module}),
        check,
        tool_call(
            "edit",
            {"path": bug.module, "old_string": bug.wrong, "new_string": bug.right},
        ),
        check,
        turn(answer),
    ]
    names = list(MISTAKES)
    for mistake in (names[number % len(names)], chance.choice(names)):
        turns.insert(chance.randrange(len(turns)), MISTAKES[mistake](bug))
    fault = FAULTS[number % len(FAULTS)]
    if fault is not None:
        place = chance.randrange(len(turns))
        turns[place] = turns[place].failing(fault)
    is_empty = fault is not None and "empty" in fault.script
    return Plan(turns, answer, 1 if is_empty else 0)
