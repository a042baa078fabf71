"""One entry of a conversation as readers see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any
from uuid import UUID

#: A conversation that is read each turn names the same entries again, and making a UUID takes longer than all the rest.
_uuid = lru_cache(maxsize=8192)(UUID)


@dataclass(frozen=True)
class Message:
    """One entry of the conversation."""

    id: UUID
    parent_id: UUID | None
    role: str
    entry_type: str
    content: Any
    turn_id: str | None
    metadata: Any
    created_at: datetime

    @classmethod
    def of(cls, parts: tuple[Any, ...]) -> Message:
        """Make it from what the engine gives."""
        id, parent, role, entry_type, content, turn_id, metadata, seconds = parts
        written = datetime.fromtimestamp(seconds, timezone.utc)
        return cls(_uuid(id), parent and _uuid(parent), role, entry_type, content, turn_id, metadata, written)


class Messages(list[Message]):
    """A conversation at one moment."""

    position: str
    """Where it ends: ``handle.stream(after=position)`` goes on behind it, with nothing twice and nothing left out."""

    def __init__(self, messages: Iterable[Message], position: str) -> None:
        super().__init__(messages)
        self.position = position
