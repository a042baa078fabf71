"""What a watcher of a run is told: previews, entries, and the turns of its life, each with an id to resume after."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, ClassVar
from uuid import UUID


@dataclass(frozen=True)
class Token:
    """A piece of text that is being made; void when its op is retracted, replaced by the entry or result."""

    id: str
    text: str
    op: str = ""
    attempt: int = 0
    type: ClassVar[str] = "token"


@dataclass(frozen=True)
class Data:
    """Structured data that is being made; ``name`` is ``data``, ``error`` or ``progress``."""

    id: str
    data: Any
    name: str = "data"
    op: str = ""
    attempt: int = 0
    type: ClassVar[str] = "data"


@dataclass(frozen=True)
class Entry:
    """An entry of the conversation is durable; what was streamed for its op is replaced by it."""

    id: str
    entry_id: UUID
    parent_id: UUID | None
    role: str
    entry_type: str
    content: Any
    turn_id: str | None
    at: datetime
    op: str = ""
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    metadata: dict[str, Any] | None = None
    type: ClassVar[str] = "entry"


@dataclass(frozen=True)
class Retract:
    """Everything streamed for this op so far is void."""

    id: str
    op: str
    type: ClassVar[str] = "retract"


@dataclass(frozen=True)
class Lifecycle:
    """A turn of the run's life or of one of its tasks: ``name`` is ``created``, ``waiting``, ``task_started``, …"""

    id: str
    name: str
    at: datetime
    segment: int
    sequence: int | None
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    type: ClassVar[str] = "lifecycle"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing follows it."""
        return self.name in ("completed", "failed", "cancelled")


@dataclass(frozen=True)
class Usage:
    """The cost of a model call is durable."""

    id: str
    at: datetime
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    type: ClassVar[str] = "usage"


@dataclass(frozen=True)
class Gap:
    """Previews before this place are gone; durable events are not."""

    id: str
    type: ClassVar[str] = "gap"


Event = Token | Data | Entry | Retract | Lifecycle | Usage | Gap


def event_of(parts: tuple[Any, ...]) -> Event:
    """Make an event from what the engine gives."""
    what, id = parts[0], parts[1]
    if what == "durable":
        return _durable(id, parts[2])
    if what == "token":
        return Token(id, parts[2], parts[3], parts[4])
    if what == "retract":
        return Retract(id, parts[2])
    if what == "gap":
        return Gap(id)
    return Data(id, parts[2], what, parts[3], parts[4])


def _durable(id: str, facts: dict[str, Any]) -> Event:
    at = datetime.fromtimestamp(facts["at"], timezone.utc)
    data: dict[str, Any] = facts["data"] or {}
    if facts["kind"] == "entry":
        op = f"{facts['segment']}-{facts['sequence']}"
        parent = data.get("parent")
        return Entry(
            id,
            entry_id=UUID(data["entry"]),
            parent_id=UUID(parent) if parent else None,
            role=data["role"],
            entry_type=data["entry_type"],
            content=data.get("content"),
            turn_id=data.get("turn_id"),
            at=at,
            op=op,
            data=data,
            metadata=data.get("metadata"),
        )
    if facts["kind"] == "usage":
        return Usage(id, at, data)
    if facts["kind"] == "retract":
        return Retract(id, f"{facts['segment']}-{facts['sequence']}")
    return Lifecycle(id, facts["kind"], at, facts["segment"], facts["sequence"], data)
