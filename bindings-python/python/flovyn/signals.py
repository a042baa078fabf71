"""What an agent's signals are: their types by name, and what writes and reads their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import _native
from .blob import Blob
from .errors import InvalidArgument
from .serde import Own, Rebuild, checked, codec_of, rebuilder


class Signals:
    """The signals of an agent: what their sender stores, and what is made of it where they are waited for."""

    __slots__ = ("own", "types")

    def __init__(self, types: Mapping[str, Any], own: Own | None) -> None:
        self.types: Mapping[str, Any] = types
        self.own = own

    def reads(self, name: str, of: Any = None) -> Rebuild | None:
        """Return what makes a signal's value of what is stored, as the type that is given or declared; none where
        that is the value already."""
        of = of if of is not None else self.types.get(name)
        rebuild = None if of is None else rebuilder(of)
        if self.own is None:
            return rebuild
        load = self.own.load
        return load if rebuild is None else lambda value: rebuild(load(value))

    def written(self, name: str, payload: Any) -> Any:
        """Return what is stored for a signal's value; refuse one that its agent could not read as the declared type."""
        of = self.types.get(name)
        if self.own is not None:
            value = checked(self.own.dump(payload))
        else:
            value = checked(payload) if of is None else codec_of(of).check(payload)
        reads = self.reads(name) if of is not None else None
        if reads is not None and value is not None and not isinstance(value, (bytes, bytearray, Blob)):
            try:
                reads(_native.decode_json(_native.encode_json(value)))
            except Exception as error:
                wanted = getattr(of, "__qualname__", str(of))
                raise InvalidArgument(f"the signal {name!r} does not fit {wanted}: {error}") from error
        return value


PLAIN = Signals({}, None)
"""Those of an agent of which nothing is known."""
