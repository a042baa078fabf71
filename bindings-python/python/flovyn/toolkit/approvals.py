"""Which calls need a person, and how a person answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..events import Entry, Event
from ..handle import Handle
from ..message import Message

Decision = Literal["allow", "ask", "deny"]
"""What happens to a call: it runs, a person is asked, it never runs. The later is the stricter."""


@dataclass(frozen=True)
class Rule:
    """A rule for some calls. Of the rules that hold for a call the strictest decides."""

    tool: str
    """The tools, by name or by a pattern such as ``mcp__github__*``."""
    decision: Decision
    command: str | None = None
    """For ``bash``: the words that a command begins with, such as ``git status``. What allows a line has to allow each
    command of it."""
    path: str | None = None
    """For tools with a path: a pattern such as ``src/**``."""
    exact: str | None = None
    """For ``bash``: the whole text of a line, or of one command in it."""


@dataclass(frozen=True)
class ApprovalPolicy:
    """Rules, and what happens where none of them holds, by the effect of the tool."""

    rules: Sequence[Rule] = ()
    read: Decision = "allow"
    write: Decision = "ask"
    exec: Decision = "ask"

    def describe(self) -> dict[str, Any]:
        """Return the policy as the agent reads it."""
        rules = [{name: value for name, value in vars(rule).items() if value is not None} for rule in self.rules]
        return {"rules": rules, "otherwise": {"read": self.read, "write": self.write, "exec": self.exec}}


@dataclass(frozen=True)
class ApprovalRequest:
    """A call that waits for a person. The answer is good for this call and for no other."""

    id: str
    name: str
    """The tool."""
    arguments: Mapping[str, Any]
    effect: str
    """What the call does to the world: ``read``, ``write`` or ``exec``."""
    hash: str

    @classmethod
    def of(cls, told: Event | Message) -> ApprovalRequest | None:
        """Return the request that an event or an entry of a conversation tells of, if it tells of one."""
        if not isinstance(told, (Entry, Message)) or told.entry_type != "approval_request":
            return None
        content: Mapping[str, Any] = told.content
        return cls(content["id"], content["name"], content["arguments"], content["effect"], content["hash"])

    async def approve(
        self,
        run: Handle[Any],
        *,
        arguments: Mapping[str, Any] | None = None,
        scope: Literal["once", "run"] | None = None,
    ) -> None:
        """Let the call run; durable when this returns.

        ``arguments`` take the place of those that the model has written, which is told of them. With the scope ``run``
        later calls of the run that are alike are not asked about.
        """
        given = None if arguments is None else dict(arguments)
        await self._answer(run, approved=True, arguments=given, scope=scope)

    async def deny(self, run: Handle[Any], reason: str | None = None) -> None:
        """Refuse the call; the model is told, with the reason. Durable when this returns."""
        await self._answer(run, approved=False, reason=reason)

    async def _answer(self, run: Handle[Any], **answer: Any) -> None:
        given = {"id": self.id, "hash": self.hash} | {
            name: value for name, value in answer.items() if value is not None
        }
        await run.signal("approval", given, idempotency_key=f"approval {self.id} {self.hash}")
