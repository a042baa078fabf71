"""Owns the PostgreSQL of one sample: made on the medium, reached over loopback, durable, ended with the sample.

Its floor is one row of 200 bytes per commit over one connection (`pgbench`), fsync and synchronous_commit on; the
grouped floor is the same from 32 connections, whose commits share fsyncs.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from floor import Floor
from harness.measure import cpu_of
from harness.processes import ending_with_us

PATIENCE_S = 60.0
USER = "bench"
OWNER = "owner"
INSERT = "INSERT INTO floor(body) VALUES(repeat('x', 200));\n"
CONNECTIONS = 32
SETTINGS = (
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=300",
    "shared_buffers=256MB",
    "max_wal_size=4GB",
)


@cache
def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, or None where it is not installed."""
    linked = shutil.which("initdb")
    if linked:
        return Path(linked).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return found[-1].parent if found else None


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _unprivileged() -> dict[str, object]:
    """Return the user to run the server as: it refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise RuntimeError("PostgreSQL refuses to run as root, and there is no user nobody")


class Postgres:
    """A running server with one empty database."""

    def __init__(self, parent: Path) -> None:
        found = programs()
        if found is None:
            raise RuntimeError("PostgreSQL is not installed: apt-get install postgresql")
        self._programs, self._port = found, free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-", dir=parent.resolve()))
        self._user = _unprivileged()
        if self._user:
            os.chown(self._folder, int(str(self._user["user"])), int(str(self._user["group"])))
        for ancestor in (self._folder, parent):
            ancestor.chmod(0o755)
        data = self._folder / "data"
        made = ("initdb", "-U", USER, "--auth=trust", "--no-sync", "--no-instructions", "-E", "UTF8", "--locale=C")
        self._run(*made, "-D", data, **self._user)
        options = [part for setting in SETTINGS for part in ("-c", setting)]
        with (self._folder / "log").open("w") as log:
            self._server = subprocess.Popen(
                ending_with_us([found / "postgres", "-D", data, "-p", str(self._port), *options], "INT"),
                stdout=log,
                stderr=log,
                cwd=self._folder,
                **self._user,
            )
        self._wait()
        # As in production: one who is held by row-level security.
        self._run("createuser", *self._reached(), "--createdb", OWNER)
        self._run("createdb", *self._reached(), "--owner", OWNER, OWNER)
        self._run("createdb", *self._reached(), USER)
        self._sql("CREATE TABLE floor(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text)")

    @property
    def url(self) -> str:
        """The URL of the database, as every driver reads it."""
        return f"postgresql://{OWNER}@127.0.0.1:{self._port}/{OWNER}"

    def cpu_s(self) -> float:
        """Return the CPU seconds of the server: its processes and those that have ended."""
        total = cpu_of(self._server.pid)
        for child in Path(f"/proc/{self._server.pid}/task/{self._server.pid}/children").read_text().split():
            with suppress(OSError):
                total += cpu_of(int(child))
        return total

    def floor(self, commits: int) -> Floor:
        """Measure one row of 200 bytes per commit from one connection."""
        with tempfile.TemporaryDirectory() as folder:
            self._bench(Path(folder), 1, commits + 1, "--log", f"--log-prefix={folder}/commits")
            lines = [line for log in Path(folder).glob("commits.*") for line in log.read_text().splitlines()]
        # Where its answer is there when it has sent a commit, pgbench's own column says that it took no time.
        ends = [int(seconds) * 1_000_000 + int(micros) for *_, seconds, micros in map(str.split, lines)]
        times = [(end - before) / 1e6 for before, end in itertools.pairwise(ends)]
        return Floor(times, len(times), 0)

    def grouped_per_s(self, commits: int = 100) -> float:
        """Measure the rows per second of 32 connections, one row per commit."""
        with tempfile.TemporaryDirectory() as folder:
            told = self._bench(Path(folder), CONNECTIONS, commits)
        line = next(line for line in told.splitlines() if line.startswith("tps = "))
        return float(line.split()[2])

    def _bench(self, folder: Path, clients: int, commits: int, *more: str) -> str:
        script = folder / "insert.sql"
        script.write_text(INSERT)
        counts = ("-c", str(clients), "-j", "2" if clients > 1 else "1", "-t", str(commits))
        return self._run("pgbench", "-n", "-M", "prepared", *counts, "-f", script, *more, *self._reached(), USER)

    def _sql(self, statement: str) -> None:
        self._run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", *self._reached(), "-d", USER, "-c", statement)

    def _reached(self) -> tuple[str, ...]:
        return ("-h", "127.0.0.1", "-p", str(self._port), "-U", USER)

    def _run(self, program: str, *arguments: str | Path, **how: object) -> str:
        command = [str(self._programs / program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self._folder, check=False, **how)  # type: ignore[call-overload]
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr.strip()[-600:]}")
        return str(done.stdout)

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        asked = [str(self._programs / "pg_isready"), "-q", *self._reached()]
        while subprocess.run(asked, check=False).returncode:
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(self._folder / 'log').read_text()[-600:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server, whoever is connected, and remove its files."""
        self._server.send_signal(signal.SIGINT)
        try:
            self._server.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
