"""Owns children that must not outlive the process that started them (Linux, util-linux)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def ending_with_us(command: Sequence[str | Path], told: str = "KILL") -> list[str | Path]:
    """Return the command as a child that is told by this signal when its parent ends."""
    return ["setpriv", "--pdeathsig", told, "--", *command]
