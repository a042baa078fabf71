"""Cassettes: what tasks gave once, played back in tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .. import _native
from ..errors import FlovynError, InvalidArgument, NonRetryable
from ..task import Task
from ..threads import called


class CassetteMiss(NonRetryable):
    """A task was called with an input that the cassette does not know, or there is no cassette."""


class Cassette:
    """Results of tasks by kind and input, in one JSON file."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._tracks: dict[str, list[Any]] = {}
        self._is_there = self._path.exists()
        if self._is_there:
            try:
                self._tracks = dict(_native.decode_json(self._path.read_bytes()))
            except (FlovynError, TypeError, ValueError) as error:
                raise InvalidArgument(f"{self._path} is no cassette: {error}; remove it and record it again") from error

    def record(self, tasks: Iterable[Task[..., Any]]) -> dict[str, Callable[..., Any]]:
        """Return stand-ins that call the tasks and keep what they gave; pass them as fakes."""
        self.save()
        return {task.kind: self._recorder(task) for task in tasks}

    def replay(self, tasks: Iterable[Task[..., Any]]) -> dict[str, Callable[..., Any]]:
        """Return stand-ins that give what was recorded for the same input; ``CassetteMiss`` for another.

        That there is no cassette is said here: an agent might take it for a failure of its task.
        """
        if not self._is_there:
            raise CassetteMiss(
                f"there is no cassette {self._path}; make it by a run with record({str(self._path)!r}, …)"
            )
        return {task.kind: self._player(task) for task in tasks}

    def save(self) -> None:
        """Write the cassette to its file."""
        self._path.write_bytes(_native.encode_json(self._tracks) + b"\n")

    def _recorder(self, task: Task[..., Any]) -> Callable[..., Any]:
        async def recorded(*args: Any, **kwargs: Any) -> Any:
            result = await called(task.fn, task.is_async, args, kwargs)
            track = self._tracks.setdefault(_key(task, args, kwargs), [])
            track.append(_native.decode_json(_native.encode_json(task.signature.returned(result))))
            self.save()
            return result

        return recorded

    def _player(self, task: Task[..., Any]) -> Callable[..., Any]:
        async def played(*args: Any, **kwargs: Any) -> Any:
            key = _key(task, args, kwargs)
            track = self._tracks.get(key)
            if not track:
                raise CassetteMiss(f"{self._path} has no result of {key}; record it again")
            own = task.signature.own
            return track[0] if own is None else own.load(track[0])

        return played


def _key(task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    given = args[1:] if task.signature.takes_context else args
    return f"{task.kind} {_native.encode_json(task.signature.wire(given, kwargs)).decode()}"


def record(path: str | Path, tasks: Iterable[Task[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return stand-ins that call the tasks and write what they gave to a cassette."""
    return Cassette(path).record(tasks)


def replay(path: str | Path, tasks: Iterable[Task[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return stand-ins that give what a cassette has recorded."""
    return Cassette(path).replay(tasks)
