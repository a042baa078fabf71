"""Why an agent ended otherwise: what its own code called that gives another value in every process.

The agent is run once more while every call is looked at. That is slow, and done only once something has gone wrong.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import sys
import threading
import uuid
from collections.abc import Generator
from types import CodeType, FrameType
from typing import Any

from ..debug import is_library
from ..scope import current

_CLOCK = "ctx.current_time()"
_CHANCE = "ctx.random()"
_UUID = "ctx.random_uuid()"

_IN_C: dict[tuple[str, str], str] = {
    **{("time", name): _CLOCK for name in ("time", "time_ns", "monotonic", "perf_counter")},
    **{("time", name): _CLOCK for name in ("monotonic_ns", "perf_counter_ns", "process_time", "process_time_ns")},
    **{("datetime", name): _CLOCK for name in ("now", "utcnow", "today")},
    ("posix", "urandom"): _UUID,
    ("nt", "urandom"): _UUID,
    ("posix", "getpid"): "what a task returns",
    ("nt", "getpid"): "what a task returns",
}
"""Functions that are written in C, by module and name; and what to use instead."""

_MOST = 5


class Suspects:
    """The calls that were seen, each place once."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}
        self._written = _written()

    def __str__(self) -> str:
        if not self.seen:
            return (
                "no clock and no chance was asked in its own code: look for what outlives a run there, such as "
                "globals, caches, files and the environment; let a task return what is read of them"
            )
        shown = [f"{call}, so use {instead}" for call, instead in list(self.seen.items())[:_MOST]]
        return "its code calls what differs in every process: " + "; ".join(shown)

    def look(self, frame: FrameType, event: str, arg: Any) -> None:
        """Note a call, as ``sys.setprofile`` tells it."""
        if current.get() is None:
            return
        caller: FrameType | None = frame
        if event == "c_call":
            found = _of_c(arg)
        elif event == "call":
            found = self._written.get(frame.f_code)
            if found is not None and _is_seeded(frame.f_locals.get("self")):
                return
            caller = frame.f_back
        else:
            return
        if found is None or caller is None or is_library(caller.f_code.co_filename):
            return
        name, instead = found
        place = f"{os.path.basename(caller.f_code.co_filename)}:{caller.f_lineno}"
        self.seen.setdefault(f"{name}() at {place}", instead)


def _is_seeded(maker: Any) -> bool:
    """Whether numbers come of a generator of the code's own, which may well give the same again."""
    return isinstance(maker, random.Random) and maker is not getattr(random, "_inst", None)


def _of_c(function: Any) -> tuple[str, str] | None:
    name: str = getattr(function, "__name__", "")
    owner: Any = getattr(function, "__self__", None)
    if isinstance(owner, random.Random):
        is_meant = name in ("random", "getrandbits") and not _is_seeded(owner)
        return (f"random.{name}", _CHANCE) if is_meant else None
    made_of = owner if isinstance(owner, type) else type(owner)
    module: str = getattr(function, "__module__", None) or made_of.__module__
    instead = _IN_C.get((module, name))
    if instead is None:
        return None
    shown = {"posix": "os", "nt": "os"}.get(module, module)
    return f"{made_of.__name__ if module == 'datetime' else shown}.{name}", instead


def _written() -> dict[CodeType, tuple[str, str]]:
    """The functions that are written in Python, by their code."""
    found: dict[CodeType, tuple[str, str]] = {}
    shared = {name: _CHANCE for name in dir(random) if getattr(getattr(random, name), "__self__", None) is not None}
    named: list[tuple[Any, str, str]] = [(random, name, instead) for name, instead in shared.items()]
    named += [(uuid, name, _UUID) for name in ("uuid1", "uuid4")]
    named += [(secrets, name, _UUID) for name in ("token_bytes", "token_hex", "token_urlsafe", "choice", "randbelow")]
    for module, name, instead in named:
        function: Any = getattr(module, name)
        code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
        if isinstance(code, CodeType):
            found[code] = (f"{module.__name__}.{name}", instead)
    return found


@contextlib.contextmanager
def looked_for() -> Generator[Suspects, None, None]:
    """Look at what agents call, in this thread and those that are started meanwhile."""
    suspects = Suspects()
    before = sys.getprofile()
    sys.setprofile(suspects.look)
    threading.setprofile(suspects.look)
    try:
        yield suspects
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]
