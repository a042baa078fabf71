"""Raw values that need not be in memory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import _native


class Blob:
    """Raw bytes as a whole value: an input, an output, a signal. Inside a value up to 16 MiB are text (base64).

    ``Blob.from_path`` names a file that is read piece by piece while it is stored. Whoever receives a blob gets one
    whose bytes stay in the store until ``read`` or ``save`` asks for them; passed on, they are not read at all. Where
    an agent's input or a step's result is annotated as ``bytes`` they are read at once.
    """

    __slots__ = ("data", "path", "source")

    def __init__(self, data: bytes) -> None:
        self.data: bytes | None = bytes(data)
        self.path: str | None = None
        self.source: _native.Source | None = None

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Blob:
        """Name a file; it must stay as it is until the value is durable."""
        blob = cls.__new__(cls)
        blob.data = None
        blob.path = str(Path(path).absolute())
        blob.source = None
        return blob

    @property
    def size(self) -> int:
        """The number of bytes."""
        if self.source is not None:
            return self.source.size
        return len(self.data) if self.data is not None else os.path.getsize(self.path or "")

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """Read the bytes from ``offset`` on, at most ``length`` of them. Blocks for the time it takes."""
        if offset < 0 or (length is not None and length < 0):
            raise ValueError(f"offset and length count from 0, but read({offset}, {length}) was called")
        if self.source is not None:
            return self.source.read(offset, length)
        if self.data is not None:
            return self.data[offset:] if length is None else self.data[offset : offset + length]
        with open(self.path or "", "rb") as file:
            file.seek(offset)
            return file.read(-1 if length is None else length)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bytes into a file, a piece at a time. Blocks for the time it takes."""
        if self.source is not None:
            self.source.save(str(path))
        elif self.data is not None:
            Path(path).write_bytes(self.data)
        else:
            shutil.copyfile(self.path or "", path)

    def __bytes__(self) -> bytes:
        return self.read()

    def __eq__(self, other: object) -> bool:
        """Whether the other blob has the same bytes."""
        return isinstance(other, Blob) and self.size == other.size and self.read() == other.read()

    def __hash__(self) -> int:
        return hash(self.size)

    def __repr__(self) -> str:
        return f"Blob.from_path({self.path!r})" if self.path else f"Blob(<{self.size} bytes>)"


def received(what: bytes | _native.Source) -> Blob:
    """Make the blob of a stored value: small ones have their bytes, others where to read them."""
    if isinstance(what, bytes):
        return Blob(what)
    blob = Blob.__new__(Blob)
    blob.data = None
    blob.path = None
    blob.source = what
    return blob


def as_bytes(value: object) -> object:
    """Read a blob where ``bytes`` are wanted; everything else stays as it is."""
    return value.read() if isinstance(value, Blob) else value


def as_blob(value: object) -> object:
    """Make a blob of bytes where one is wanted; everything else stays as it is."""
    return Blob(value) if isinstance(value, bytes) else value
