"""What a watcher of a run is told: previews, entries, and the turns of its life, each with an id to resume after."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, ClassVar, Literal
from uuid import UUID


@dataclass(frozen=True, kw_only=True)
class Told:
    """What every event has and can be asked.

    ``run`` is the id of the run that it is of, and ``depth`` how many runs are above that one: of a run below the one
    that is watched, in a stream with children; of any other stream ``depth`` is None.
    """

    run: UUID | None = None
    depth: int | None = None

    def replaces(self, preview: Token | Data) -> bool:
        """Whether it takes the place of a preview that was told before it, or voids it: then show it no longer."""
        return False


@dataclass(frozen=True)
class Token(Told):
    """A piece of text that is being made, until an event that ``replaces`` it."""

    id: str
    text: str
    op: str = ""
    attempt: int = 0
    type: ClassVar[Literal["token"]] = "token"


@dataclass(frozen=True)
class Data(Told):
    """Structured data that is being made; ``name`` is ``data``, ``error`` or ``progress``."""

    id: str
    data: Any
    name: str = "data"
    op: str = ""
    attempt: int = 0
    type: ClassVar[Literal["data"]] = "data"


@dataclass(frozen=True)
class Entry(Told):
    """An entry of the conversation is durable; it replaces what the agent itself has streamed so far."""

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
    type: ClassVar[Literal["entry"]] = "entry"

    def replaces(self, preview: Token | Data) -> bool:
        return preview.attempt == 0 and preview.run == self.run


@dataclass(frozen=True)
class Retract(Told):
    """Everything streamed for this op so far is void."""

    id: str
    op: str
    type: ClassVar[Literal["retract"]] = "retract"

    def replaces(self, preview: Token | Data) -> bool:
        return preview.op == self.op


@dataclass(frozen=True)
class Lifecycle(Told):
    """A turn of the run's life or of one of its tasks: ``name`` is ``created``, ``waiting``, ``task_started``, …

    ``op`` names the task that it is about, as ``handle.tasks()`` does. ``completed`` has the run's ``result``.
    """

    id: str
    name: str
    at: datetime
    segment: int
    sequence: int | None
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    op: str = ""
    result: Any = None
    type: ClassVar[Literal["lifecycle"]] = "lifecycle"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing follows it."""
        return self.name in ("completed", "failed", "cancelled")

    def replaces(self, preview: Token | Data) -> bool:
        return (self.is_terminal and preview.run == self.run) or (self.name in _ENDS and preview.op == self.op)


@dataclass(frozen=True)
class Usage(Told):
    """The cost of a model call is durable."""

    id: str
    at: datetime
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    type: ClassVar[Literal["usage"]] = "usage"


@dataclass(frozen=True)
class Gap(Told):
    """Previews of its run before this place are gone; durable events are not."""

    id: str
    type: ClassVar[Literal["gap"]] = "gap"

    def replaces(self, preview: Token | Data) -> bool:
        return preview.run == self.run


Event = Token | Data | Entry | Retract | Lifecycle | Usage | Gap


_ENDS = ("task_completed", "task_failed", "task_cancelled")


def event_of(parts: tuple[Any, ...]) -> Event:
    """Make an event of what the engine gives."""
    what, id, bytes, depth, *rest = parts
    run = UUID(bytes=bytes)
    if what == "durable":
        return _durable(id, run, depth, rest[0])
    if what == "token":
        return Token(id, *rest, run=run, depth=depth)
    if what == "retract":
        return Retract(id, *rest, run=run, depth=depth)
    if what == "gap":
        return Gap(id, run=run, depth=depth)
    data, op, attempt = rest
    return Data(id, data, what, op, attempt, run=run, depth=depth)


def _durable(id: str, run: UUID, depth: int | None, facts: dict[str, Any]) -> Event:
    at = datetime.fromtimestamp(facts["at"], timezone.utc)
    data: dict[str, Any] = facts["data"] or {}
    op: str = facts["op"] or ""
    if facts["kind"] == "entry":
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
            run=run,
            depth=depth,
        )
    if facts["kind"] == "usage":
        return Usage(id, at, data, run=run, depth=depth)
    if facts["kind"] == "retract":
        return Retract(id, op, run=run, depth=depth)
    return Lifecycle(id, facts["kind"], at, facts["segment"], facts["sequence"], data, op, run=run, depth=depth)
