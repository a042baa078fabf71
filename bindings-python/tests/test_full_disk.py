"""A full disk is said while it lasts: by ``result(timeout=)``, and once in the log; and a close hides nothing.

The disk is made full by a limit on the size of files (``RLIMIT_FSIZE``), which needs no rights and can be lifted again.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import flovyn
import pytest
from flovyn import AgentContext, agent

PROGRAM = """
import asyncio, os, resource, sys
import flovyn
from flovyn import AgentContext, agent, task
from flovyn.errors import Timeout

@task
async def page(n: int) -> str:
    return os.urandom(20_000).hex()

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
        limit(resource.RLIM_INFINITY)
        print("result:", await handle.result(timeout=60), flush=True)
        # What was refused last may be tried again for a while.
        await asyncio.sleep(6)

async def runs() -> None:
    limit(600_000)
    try:
        await flovyn.run_async(writer, 40, id="run", url=sys.argv[1], timeout=3)
    except Timeout as error:
        print("late:", error, flush=True)

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
@pytest.mark.parametrize("way", ["goes_on", "runs", "fails", "returns"])
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
    elif way == "runs":
        assert "the store has taken no writes since" in done.stdout.splitlines()[0], done
    elif way == "fails":
        assert "RuntimeError: what went wrong" in done.stderr.splitlines()[-1], done.stderr
    else:
        assert done.stdout.splitlines() == ["outcome: what was found"], done


@agent
async def waits(ctx: AgentContext) -> None:
    await ctx.wait_for_signal("never")


@pytest.mark.parametrize("blocking", [False, True])
def test_what_a_block_has_raised_survives_a_close_that_fails(tmp_path: Path, blocking: bool) -> None:
    files = tmp_path / "files"
    files.mkdir()
    url = f"sqlite:{files / 'agents.db'}"

    def goes_wrong() -> None:
        shutil.rmtree(files)
        raise RuntimeError("what went wrong")

    async def block() -> None:
        async with flovyn.connect(url) as client, client.worker([waits]):
            await client.start(waits, id="w")
            goes_wrong()

    def block_sync() -> None:
        with flovyn.connect_sync(url) as client, client.worker([waits]):
            client.start(waits, id="w")
            goes_wrong()

    with pytest.raises(RuntimeError, match="what went wrong") as raised:
        block_sync() if blocking else asyncio.run(block())
    if sys.version_info >= (3, 11):
        assert "closing failed, too" in raised.value.__notes__[0]
