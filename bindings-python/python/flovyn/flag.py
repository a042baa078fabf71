"""A truth that may be read with or without a call."""

from __future__ import annotations

from typing import final


@final
class Flag:
    """A bool that is callable too: ``if ctx.is_suspending`` and ``if ctx.is_suspending()`` mean the same."""

    __slots__ = ("_value",)

    def __init__(self, value: bool) -> None:
        self._value = value

    def __bool__(self) -> bool:
        return self._value

    def __call__(self) -> bool:
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (bool, Flag)) and bool(other) is self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return repr(self._value)
