"""Owns what stands beside a measured program: PostgreSQL and our servers, started for one sample and ended with it.

The program is told by its environment: `BENCH_URL` where our runs are kept, `BENCH_URLS` one URL per replica,
`BENCH_HTTP` the REST address of the first, `FLOVYN_TOKEN`, `BENCH_SERVERS` the servers' process ids, `BENCH_PG`
PostgreSQL itself, `BENCH_STORED` the folder of the SQLite files where there is none.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.measure import cpu_of, rss_mb
from harness.postgres import Postgres
from harness.processes import ending_with_us

# A crowd of programs that share one key is what is measured, not what a key may ask for.
UNLIMITED = "[limits]\ncreate = 0\nsignal = 0\npoll = 0\nstreams = 0\n"


@dataclass(frozen=True)
class Stack:
    """What a cell needs: PostgreSQL or not, and how many of our servers over it (over SQLite without it)."""

    postgres: bool = True
    servers: int = 0
    program: str = ""

    @property
    def shown(self) -> str:
        """How the report names it."""
        database = "PostgreSQL" if self.postgres else "SQLite"
        if not self.servers:
            return database
        return f"server on {database}" if self.servers == 1 else f"{self.servers} servers on {database}"

    @contextmanager
    def up(self, parent: Path) -> Iterator[Running]:
        """Start it under `parent`, which lies on the medium being measured, and end it."""
        running = Running(self, parent)
        try:
            running.start()
            yield running
        finally:
            running.stop()


class Running:
    """A stack that is up."""

    def __init__(self, stack: Stack, parent: Path) -> None:
        self._stack, self._parent = stack, parent
        self._servers: list[subprocess.Popen[str]] = []
        self._cpu = (0.0, 0.0)
        self.database: Postgres | None = None
        self.environment: dict[str, str] = {}

    def start(self) -> None:
        """Start PostgreSQL, then the servers."""
        folder = Path(tempfile.mkdtemp(prefix="stack-", dir=self._parent))
        url = f"sqlite:{folder / 'flovyn.db'}"
        if self._stack.postgres:
            self.database = Postgres(folder)
            url = self.database.url.replace("postgresql:", "postgres:")
            self.environment["BENCH_PG"] = self.database.url
        else:
            self.environment["BENCH_STORED"] = str(folder)
        self.environment["BENCH_URL"] = url
        if self._stack.servers:
            self._serve(url, folder)
        self._cpu = self._spent()

    def _serve(self, url: str, folder: Path) -> None:
        self._flovyn("migrate", url)
        key = json.loads(self._flovyn("keys", "create", url, "--name", "bench", "--json"))
        told = [self._server(url, folder, number) for number in range(self._stack.servers)]
        self.environment |= {
            "FLOVYN_TOKEN": key["token"],
            "BENCH_URL": told[0]["grpc"],
            "BENCH_URLS": " ".join(one["grpc"] for one in told),
            "BENCH_HTTP": told[0]["http"],
            "BENCH_SERVERS": " ".join(str(server.pid) for server in self._servers),
        }

    def _flovyn(self, *words: str) -> str:
        done = subprocess.run([self._stack.program, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"`flovyn {words[0]}` ended with {done.returncode}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def _server(self, url: str, folder: Path, number: int) -> dict[str, str]:
        config = folder / f"server-{number}.toml"
        config.write_text(f'db = "{url}"\ngrpc = "127.0.0.1:0"\nhttp = "127.0.0.1:0"\n{UNLIMITED}')
        with (folder / f"server-{number}.log").open("w") as log:
            server = subprocess.Popen(
                ending_with_us([self._stack.program, "server", "--json", "--config", config]),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._servers.append(server)
        line = server.stdout.readline() if server.stdout else ""
        if not line:
            raise RuntimeError(f"`flovyn server` did not start: {Path(log.name).read_text()[-600:]}")
        return dict(json.loads(line))

    def _spent(self) -> tuple[float, float]:
        return sum(cpu_of(server.pid) for server in self._servers), self.database.cpu_s() if self.database else 0.0

    def figures(self) -> dict[str, float]:
        """Return what the servers and PostgreSQL have used since the start: CPU seconds and peak memory."""
        servers, database = self._spent()
        used = {"db_cpu_s": database - self._cpu[1]} if self.database else {}
        if self._servers:
            used["server_cpu_s"] = servers - self._cpu[0]
            used["server_peak_mb"] = sum(rss_mb(peak=True, of=server.pid) for server in self._servers)
        return used

    def stop(self) -> None:
        """End everything; nothing is asked to be tidy."""
        for server in self._servers:
            server.kill()
            server.wait()
            if server.stdout:
                server.stdout.close()
        if self.database:
            self.database.stop()
