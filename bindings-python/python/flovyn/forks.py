"""What a forked child may do with what its parent has opened: leave it alone, or be told.

The engine's threads, its locks and its connections stay with the parent: who waits for them in the child does for ever.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from .errors import ForkedProcess


class Origin:
    """The process in which something was opened."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def is_elsewhere(self) -> bool:
        """Whether this process is a fork of that one."""
        return os.getpid() != self._process

    def check(self, what: str) -> None:
        """Refuse the use of something in a fork of the process that opened it."""
        if self.is_elsewhere:
            raise forked(what, self._process)


def forked(what: str, opener: int) -> ForkedProcess:
    """Say that something was opened before the fork."""
    return ForkedProcess(
        f"{what} was opened in process {opener} and used in {os.getpid()}, a fork of it; open the backend in each "
        "process on its first use and none before a fork (handles by client.handle(id)), or use the start method spawn"
    )


def _finish_imports() -> None:
    """Wait for modules of this package that other threads import: in the child nobody finishes them."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{__package__}.") and getattr(module.__spec__, "_initializing", False):
            import_module(name)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_finish_imports)
