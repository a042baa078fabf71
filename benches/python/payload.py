"""Owns the agent of W4: one step with a large output, then a wait, so that a later process reads it back.

The output is incompressible: `text` (a JSON string), `bytes` (a raw payload) or `file` (`flovyn.Blob.from_path`,
which never has to be in memory as a whole).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path

import flovyn

from harness.content import noise_bytes, noise_text
from harness.measure import directory

#: The output the step returns; set by `prepare` before the agent starts.
output: list[object] = []
marks: dict[str, float] = {}
received = asyncio.Event()


def prepare(mebibytes: int, form: str) -> None:
    """Make the output and keep its digest beside the database for the process that reads it back."""
    size = mebibytes << 20
    value: str | bytes = noise_text(size - 2) if form == "text" else noise_bytes(size)  # 2: the JSON quotes
    (directory() / "digest").write_text(_digest(value))
    if form == "file":
        path = directory() / "output.bin"
        path.write_bytes(bytes(value, "ascii") if isinstance(value, str) else value)
        output.append(flovyn.Blob.from_path(path))
    else:
        output.append(value)


def _digest(value: object) -> str:
    if isinstance(value, str):
        return hashlib.blake2b(value.encode()).hexdigest()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return hashlib.blake2b(value).hexdigest()
    raise TypeError(f"unexpected payload {type(value)}")


def intact(value: object) -> bool:
    """Return whether `value` is what `prepare` made, in this process or an earlier one."""
    if isinstance(value, flovyn.Blob):
        return value.size == (directory() / "output.bin").stat().st_size
    return _digest(value) == Path(directory() / "digest").read_text()


@flovyn.task
async def large() -> object:
    marks["returned"] = time.perf_counter()
    return output[0]


@flovyn.agent
async def payload(ctx: flovyn.AgentContext) -> bool:
    start = time.perf_counter()
    value = await large()
    marks["step"] = time.perf_counter() - start
    received.set()
    await ctx.wait_for_signal("again")
    return intact(value)
