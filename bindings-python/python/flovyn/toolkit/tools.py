"""Host tools and MCP tools as durable steps of any agent: what changed something is never done twice.

``outcome = await tools.read("notes.md")``. Each works in the directory of the worker's ``Toolkit``; the worker serves
those that its agents' code names. Tools by a computed name, and those of MCP servers, are called with ``tools.call``
and belong into ``Toolkit(tools=…)``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..declared import listed
from ..errors import OutsideAgent
from ..step import Step
from .native import NativeTask

_READ = NativeTask("tool.read", "read")
_WRITE = NativeTask("tool.write", "write")
_EDIT = NativeTask("tool.edit", "edit")
_BASH = NativeTask("tool.bash", "bash")
_GREP = NativeTask("tool.grep", "grep")
_FIND = NativeTask("tool.find", "find")
_RUN_SANDBOX = NativeTask("tool.run-sandbox", "run-sandbox")
_STEPS = NativeTask("tool.todo", "todo")
_FETCH = NativeTask("tool.fetch", "fetch")


@dataclass(frozen=True)
class TodoStep:
    """A step of the list that ``todo`` writes."""

    content: str
    """What is done in it."""
    status: Literal["pending", "in_progress", "done"] = "pending"

    def describe(self) -> dict[str, Any]:
        """Return the step as the tool reads it."""
        return {"content": self.content, "status": self.status}


@dataclass(frozen=True)
class ToolOutcome:
    """What a tool gave. Failures that a model can act on are outcomes too."""

    text: str
    is_error: bool
    details: Any
    """What programs see beside the text, such as a diff or an exit code."""
    content: Sequence[dict[str, Any]]
    """All that a model is shown: text and images."""

    @classmethod
    def of(cls, found: Any) -> ToolOutcome:
        """Make it from what is stored."""
        if isinstance(found, str):
            return cls("Interrupted by a signal.", True, {"error": "interrupted"}, ({"type": "text", "text": found},))
        parts: list[dict[str, Any]] = found["content"]
        text = "".join(part["text"] for part in parts if part["type"] == "text")
        return cls(text, bool(found.get("isError")), found.get("details"), parts)


def call(
    name: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    working_directory: str | os.PathLike[str] | None = None,
    key: str | None = None,
) -> Step[ToolOutcome]:
    """Call a tool by its name, such as ``mcp__server__tool``; the worker's ``Toolkit(tools=…)`` has to name it."""
    return _call(NativeTask(f"tool.{name}", name), dict(arguments or {}), working_directory, key)


def read(path: str, *, offset: int | None = None, limit: int | None = None) -> Step[ToolOutcome]:
    """Read lines of a file, or an image."""
    return _call(_READ, {"path": path, "offset": offset, "limit": limit})


def write(path: str, content: str) -> Step[ToolOutcome]:
    """Write a whole file; the folders before it are made."""
    return _call(_WRITE, {"path": path, "content": content})


def edit(path: str, old_string: str, new_string: str, *, replace_all: bool = False) -> Step[ToolOutcome]:
    """Replace a text in a file."""
    given = {"path": path, "old_string": old_string, "new_string": new_string, "replace_all": replace_all or None}
    return _call(_EDIT, given)


def bash(command: str, *, timeout: float | None = None) -> Step[ToolOutcome]:
    """Run a command in the sandbox, for at most ``timeout`` seconds. One that was lost with its process is reported."""
    return _call(_BASH, {"command": command, "timeout": timeout})


def grep(
    pattern: str,
    *,
    path: str | None = None,
    glob: str | None = None,
    type: str | None = None,
    ignore_case: bool = False,
    literal: bool = False,
) -> Step[ToolOutcome]:
    """Search files for a regular expression."""
    given = {"pattern": pattern, "path": path, "glob": glob, "type": type}
    return _call(_GREP, {**given, "ignore_case": ignore_case or None, "literal": literal or None})


def find(pattern: str, *, path: str | None = None) -> Step[ToolOutcome]:
    """Find files by a glob."""
    return _call(_FIND, {"pattern": pattern, "path": path})


def run_sandbox(language: Literal["python", "typescript"], code: str) -> Step[ToolOutcome]:
    """Run a program where nothing of the machine can be reached."""
    return _call(_RUN_SANDBOX, {"language": language, "code": code})


def todo(steps: Sequence[TodoStep | str]) -> Step[ToolOutcome]:
    """Write the list of steps, in place of the one before; a text is a step that was not begun.

    The list is also ``details["todos"]`` of the outcome.
    """
    todos = [TodoStep(step) if isinstance(step, str) else step for step in listed("steps", steps)]
    return _call(_STEPS, {"todos": [step.describe() for step in todos]})


def fetch(url: str, *, raw: bool = False) -> Step[ToolOutcome]:
    """Fetch a web page as text, or an image; with ``raw`` the HTML of a page as it is.

    Public addresses alone are asked, unless the worker's ``Toolkit(fetch_private_hosts=…)`` names the host.
    """
    return _call(_FETCH, {"url": url, "raw": raw or None})


def _call(
    task: NativeTask,
    arguments: Mapping[str, Any],
    working_directory: str | os.PathLike[str] | None = None,
    key: str | None = None,
) -> Step[ToolOutcome]:
    given: dict[str, Any] = {"arguments": {name: value for name, value in arguments.items() if value is not None}}
    if working_directory is not None:
        given["workingDirectory"] = os.fspath(working_directory)
    scheduled = task.schedule(given, key=key, rebuild=ToolOutcome.of)
    if scheduled is None:
        raise OutsideAgent(f"the tool {task.tool!r} runs as a durable step; call it inside an agent")
    return scheduled
