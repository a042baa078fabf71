"""The runs below the one that a check is of: what is looked at while they go on, and compared when they have ended."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import _native
from ..client import Client
from ..handle import Facts, Handle
from ..hub import Hub

_TIMING = ("read", "abandon")
"""Ops that depend on when something came, not only on what the code does."""
_OF_ITSELF = ("COMPLETED", "FAILED")
"""How a run ends by its own code: how far one has come that is stopped depends on when it was."""


@dataclass(frozen=True)
class Member:
    """A run below the root, and what it left."""

    name: str
    """Its kind and its input."""
    left: str | None
    """Its end, conversation and ops, where it ended of itself."""


async def all_runs(client: Client) -> list[Facts]:
    """Return the runs of a check's world: the root and all below it."""
    return [run async for run in client.runs()]


async def members(client: Client, root: Handle[Any]) -> list[Member]:
    """Return what the runs below the root left."""
    return [await _member(client, run) for run in await all_runs(client) if str(run.id) != str(root.id)]


async def _member(client: Client, run: Facts) -> Member:
    handle = await client.handle(run.id)
    name = f"{run.kind}({text(await handle.input())})"
    if run.status not in _OF_ITSELF:
        return Member(name, None)
    end = text(await handle.output()) if run.status == "COMPLETED" else str(run.failure)
    return Member(name, f"{end}, {await entries(handle)}, {sorted(await ops(client, handle))}")


def difference(wanted: list[Member], found: list[Member]) -> str | None:
    """Say how two families differ: in what was started, or in what runs left that ended of themselves both times."""
    births, seen = Counter(one.name for one in wanted), Counter(one.name for one in found)
    for name in (births - seen) + (seen - births):
        return f"the child {name} was started {seen[name]} times, but undisturbed {births[name]} times"
    ends, others = _by_name(wanted), _by_name(found)
    for name, left in ends.items():
        if None in left or None in others[name]:
            continue
        for one, other in zip(sorted(map(str, left)), sorted(map(str, others[name])), strict=True):
            if one != other:
                return f"the child {name} left {other}, but undisturbed {one}"
    return None


def _by_name(family: Iterable[Member]) -> dict[str, list[str | None]]:
    left: dict[str, list[str | None]] = defaultdict(list)
    for member in family:
        left[member.name].append(member.left)
    return left


def text(value: Any) -> str:
    """Return a value in the form in which it is stored."""
    return repr(_native.decode_json(_native.encode_json(value)) if not isinstance(value, bytes) else value)


async def entries(handle: Handle[Any]) -> list[tuple[str, str, Any]]:
    """Return the conversation of a run."""
    return [(entry.role, entry.entry_type, entry.content) for entry in await handle.messages()]


async def ops(client: Client, handle: Handle[Any]) -> list[str]:
    """Return what the code of a run has called."""
    recorded: Iterable[Mapping[str, Any]] = await Hub.current().call(client.native.journal, str(handle.id))
    return [f"{op['segment']}: {op['label']}" for op in recorded if op["kind"] not in _TIMING]
