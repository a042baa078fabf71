"""One entry of a conversation as readers see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from uuid import UUID


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
        return cls(
            id=UUID(id),
            parent_id=UUID(parent) if parent else None,
            role=role,
            entry_type=entry_type,
            content=content,
            turn_id=turn_id,
            metadata=metadata,
            created_at=datetime.fromtimestamp(seconds, timezone.utc),
        )
