"""Where a run works: with any worker of its queue, or on a machine."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import InvalidArgument

_QUEUES = "machine/"


@dataclass(frozen=True)
class Remote:
    """Any worker that serves the kind on the run's queue: what holds where nothing is said."""


@dataclass(frozen=True)
class Local:
    """A machine: a computer that a server has let in by this name (``flovyn daemon``).

    Without a name it is the only machine there is; on a machine itself, that machine. Which there are a server knows:
    where none fits, the await raises ``NotFound`` with those that do. A machine that is off is waited for.
    """

    machine: str | None = None


Mode = Remote | Local


def queue_of(mode: object, queue: str | None, call: str) -> str | None:
    """Return the queue of a run that is to work so."""
    if mode is None or isinstance(mode, Remote):
        return queue
    if not isinstance(mode, Local):
        raise InvalidArgument(f"{call} takes Local(…) or Remote() as mode, not {mode!r}")
    if queue is not None:
        raise InvalidArgument(f"a machine has a queue of its own: give {call} a mode or a queue, not both")
    return f"{_QUEUES}{mode.machine or ''}"
