"""Raw payloads that need not be in memory."""

from __future__ import annotations

import os
from pathlib import Path


class Blob:
    """Raw bytes as a whole value: an input, an output, a signal. Inside JSON they are refused.

    ``Blob.from_path`` names a file that is read while it is stored, so that a large value is never in memory at once.
    Whoever receives it gets ``bytes``.
    """

    __slots__ = ("data", "path")

    def __init__(self, data: bytes) -> None:
        self.data: bytes | None = data
        self.path: str | None = None

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Blob:
        """Name a file; it must stay as it is until the value is durable."""
        blob = cls.__new__(cls)
        blob.data = None
        blob.path = str(Path(path).absolute())
        return blob

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self.data) if self.data is not None else os.path.getsize(self.path or "")

    def __repr__(self) -> str:
        return f"Blob.from_path({self.path!r})" if self.path else f"Blob(<{self.size} bytes>)"
