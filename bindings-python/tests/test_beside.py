"""The file of a database in the hands of another copy of SQLite in the same process: Python's own."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import flovyn
import pytest
from beside import RUNS, count, double, doubling


@pytest.mark.parametrize("way", ["connect", "read_only", "backup", "bytes"])
def test_what_is_acknowledged_beside_another_copy_of_sqlite_is_there(tmp_path: Path, way: str) -> None:
    file = tmp_path / "agents.db"
    program = [sys.executable, str(Path(__file__).parent / "beside.py"), str(file), way]
    process = subprocess.run(program, capture_output=True, text=True)
    assert process.returncode == -signal.SIGKILL, process.stderr
    acknowledged = dict(line.split() for line in process.stdout.splitlines())
    assert len(acknowledged) == RUNS, process.stderr
    with flovyn.connect_sync(f"sqlite:{file}") as client:
        for id, result in acknowledged.items():
            assert client.handle(id).result(timeout=30) == int(result)


async def test_a_backup_is_whole_and_anybodys_to_read(tmp_path: Path) -> None:
    file, copy = tmp_path / "agents.db", tmp_path / "copy.db"
    async with flovyn.connect(f"sqlite:{file}") as client, client.worker([doubling], [double]):
        run = await client.start(doubling, 20)
        assert await run.result() == 42
        assert await client.backup(copy) == copy.stat().st_size
        with pytest.raises(flovyn.InvalidArgument, match="there is a file already"):
            await client.backup(copy)
        reader = sqlite3.connect(copy)
        assert count(reader) == 1
        reader.close()
        assert await (await client.start(doubling, 3)).result() == 8
    assert not copy.with_name("copy.db-wal").exists()
    async with flovyn.connect(f"sqlite:{copy}") as client:
        assert await (await client.handle(run.id)).result() == 42


def test_a_backup_is_made_without_a_loop(tmp_path: Path) -> None:
    with flovyn.connect_sync(f"sqlite:{tmp_path / 'agents.db'}") as client:
        assert client.backup(str(tmp_path / "copy.db")) > 0
    with (
        flovyn.connect_sync("memory:") as client,
        pytest.raises(flovyn.InvalidArgument, match="pg_dump"),
    ):
        client.backup(tmp_path / "other.db")
    assert not (tmp_path / "other.db").exists()
