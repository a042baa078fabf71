"""A full disk is said while it lasts: by ``result(timeout=)``, and once in the log; and a close hides nothing.

The disk is made full by a limit on the size of files (``RLIMIT_FSIZE``), which needs no rights and can be lifted again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, resource, sys
import flovyn
from flovyn import AgentContext, agent, task
from flovyn.errors import Timeout

@task
async def page(n: int) -> str:
    return f"{n:07}" * 5_000

@agent
async def writer(ctx: AgentContext, count: int) -> int:
    for n in range(count):
        await page(n)
    return count

def limit(size: int) -> None:
    # Python ignores SIGXFSZ: a write past the limit is an error, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def goes_on() -> None:
    async with flovyn.connect(sys.argv[1]) as client, client.worker([writer]):
        limit(600_000)
        handle = await client.start(writer, 40, id="run")
        try:
            await handle.result(timeout=3)
        except Timeout as error:
            print("late:", error, flush=True)
        await asyncio.sleep(1)
        limit(resource.RLIM_INFINITY)
        print("result:", await handle.result(timeout=60), flush=True)

async def fails() -> None:
    async with flovyn.connect(sys.argv[1]) as client, client.worker([writer]):
        limit(600_000)
        handle = await client.start(writer, 40, id="run")
        try:
            await handle.result(timeout=3)
        except Timeout:
            raise RuntimeError("what went wrong") from None

async def returns() -> str:
    async with flovyn.connect(sys.argv[1]) as client, client.worker([writer]):
        limit(600_000)
        handle = await client.start(writer, 40, id="run")
        try:
            await handle.result(timeout=3)
        except Timeout:
            return "what was found"
        return "nothing"

print("outcome:", asyncio.run(globals()[sys.argv[2]]()))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit on the size of files")
@pytest.mark.parametrize("way", ["goes_on", "fails", "returns"])
def test_a_full_disk_is_said_while_it_lasts(file_url: str, tmp_path: Path, way: str) -> None:
    script = tmp_path / "full.py"
    script.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(script), file_url, way], capture_output=True, text=True, timeout=120)
    said = [line for line in done.stderr.splitlines() if line.startswith("flovyn: ")]
    assert said, done
    assert "takes no writes" in said[0], said
    if way == "goes_on":
        late, result, _ = done.stdout.splitlines()
        assert "has not ended" in late, done
        assert "the store has taken no writes since" in late, late
        assert result == "result: 40", done
        # Once when it began, once when it was over, and not at each attempt.
        assert len(said) == 2, done.stderr
        assert "takes writes again" in said[1], said
    elif way == "fails":
        assert "RuntimeError: what went wrong" in done.stderr.splitlines()[-1], done.stderr
    else:
        assert done.stdout.splitlines() == ["outcome: what was found"], done
