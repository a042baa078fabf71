"""Large values: handed back as they were given, read where they are, and in memory once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, agent, task

MIB = 1 << 20

GIVEN: list[Any] = [
    b"\x00raw" * 50_000,
    "plain text " * 20_000,
    'said "so",\nand \\ more ' * 20_000,
    "\u00e9\U0001f600" * 50_000,
    {"text": "inside\n" * 20_000, "n": [1, 2.5, None]},
]


@task
async def give(which: int) -> Any:
    return GIVEN[which]


@pytest.mark.parametrize("which", range(len(GIVEN)))
async def test_a_large_output_is_the_same_now_and_after_a_restart(file_url: str, which: int) -> None:
    seen: list[Any] = []

    @agent(name="taker")
    async def looking(ctx: AgentContext, which: int) -> Any:
        seen.append(await give(which))
        await ctx.wait_for_signal("again")
        return seen[-1]

    for life in range(2):
        async with flovyn.connect(file_url) as client, client.worker(agents=[looking], tasks=[give]):
            handle = await client.start(looking, which, id="run")
            if life == 1:
                await handle.signal("again", {})
                assert await handle.result(timeout=30) == GIVEN[which]
            else:
                while await handle.status() != "WAITING":
                    pass
    assert len(seen) == 2
    assert seen[0] == seen[1] == GIVEN[which]
    assert type(seen[0]) is type(seen[1]) is type(GIVEN[which])


@task
async def load(path: str) -> flovyn.Blob:
    return flovyn.Blob.from_path(path)


@task
async def measure(given: flovyn.Blob) -> int:
    return given.size


@pytest.mark.parametrize("size", [10, 3 * MIB + 7])
async def test_a_blob_is_read_where_it_is(url: str, tmp_path: Path, size: int) -> None:
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    (tmp_path / "in.bin").write_bytes(data)

    @agent
    async def blobs(ctx: AgentContext, given: flovyn.Blob) -> Any:
        loaded = await load(str(tmp_path / "in.bin"))
        assert isinstance(loaded, flovyn.Blob) and loaded.size == given.size == size
        assert loaded.read() == bytes(given) == data
        assert loaded.read(size // 3, 5) == data[size // 3 : size // 3 + 5]
        assert loaded.read(size - 2) == data[-2:] and loaded.read(size) == b"" == loaded.read(size + 9)
        loaded.save(tmp_path / "out.bin")
        assert (tmp_path / "out.bin").read_bytes() == data
        with pytest.raises(ValueError, match="count from 0"):
            loaded.read(-1)
        assert await measure(loaded) == size
        return loaded

    result = await flovyn.run_async(blobs, flovyn.Blob.from_path(tmp_path / "in.bin"), url=url)
    assert isinstance(result, flovyn.Blob) and result.size == size


MEASURED = """
import asyncio, sys
from pathlib import Path
import flovyn

form, size, url, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
NOISE = bytes(range(256)) * 4096


def status(line):
    text = Path("/proc/self/status").read_text()
    return int(text.split(line)[1].split()[0]) // 1024


@flovyn.task
async def make() -> object:
    return VALUE


@flovyn.agent
async def large(ctx: flovyn.AgentContext) -> int:
    value = await make()
    await ctx.wait_for_signal("again")
    return value.size if isinstance(value, flovyn.Blob) else len(value)


async def main():
    async with flovyn.connect(url) as client, client.worker(agents=[large], tasks=[make]):
        Path("/proc/self/clear_refs").write_text("5")
        before = status("VmRSS:")
        handle = await client.start(large, id="run")
        if VALUE is None:
            await handle.signal("again", {})
            assert await handle.result() == size
        else:
            while await handle.status() != "WAITING":
                await asyncio.sleep(0.01)
        print("grown", status("VmHWM:") - before)


VALUE = None
if not (folder / "made").exists():
    (folder / "made").touch()
    if form == "bytes":
        VALUE = NOISE * (size >> 20)
    elif form == "text":
        VALUE = "0123456789abcdef" * (size // 16)
    else:
        with open(folder / "value.bin", "wb") as file:
            for _ in range(size >> 20):
                file.write(NOISE)
        VALUE = flovyn.Blob.from_path(folder / "value.bin")
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read where Linux tells it")
@pytest.mark.parametrize("mebibytes", [40, 120])
@pytest.mark.parametrize("form", ["bytes", "text", "file"])
def test_a_large_value_is_in_memory_once(
    child: Callable[..., subprocess.Popen[str]], file_url: str, tmp_path: Path, form: str, mebibytes: int
) -> None:
    def grown() -> int:
        ended = child(MEASURED, form, str(mebibytes * MIB), file_url, str(tmp_path))
        out, err = ended.communicate()
        assert ended.returncode == 0, err
        return int(out.split("grown")[1])

    # The user's value is there already; the engine needs pieces of it.
    assert grown() < 32
    # Read back: the value itself, for text its JSON form beside it, for a file nothing.
    whole = {"bytes": 1, "text": 2, "file": 0}[form]
    assert grown() < whole * mebibytes + 32
