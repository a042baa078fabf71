"""Owns the four kinds of backend the scenarios run on: fresh ones, ended with the block that asked for them."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches"))

from harness.postgres import Postgres, programs
from harness.processes import ending_with_us

KINDS = ("memory", "sqlite", "postgres", "server")
PSQL = str((programs() or Path("/usr/bin")) / "psql")

_number = itertools.count(1)


@dataclass
class Backend:
    """One backend: where programs reach it, and the database that holds what they leave, if there is one."""

    url: str
    database: str = ""
    environment: dict[str, str] = field(default_factory=dict)


@contextmanager
def fresh(kind: str, folder: Path, postgres: Postgres) -> Iterator[Backend]:
    """Give an empty backend of a kind."""
    file = f"sqlite:{folder / f'runs-{next(_number)}.db'}"
    if kind == "memory":
        yield Backend("memory:")
    elif kind == "sqlite":
        yield Backend(file, file)
    elif kind == "postgres":
        schema = f"runs_{next(_number)}"
        url = postgres.url.replace("postgresql:", "postgres:") + f"?options=-csearch_path%3D{schema}"
        subprocess.run([PSQL, "-X", "-q", "-d", url, "-c", f"CREATE SCHEMA {schema}"], check=True)
        yield Backend(url, url)
    else:
        yield from _served(file, folder)


def _served(file: str, folder: Path) -> Iterator[Backend]:
    home = folder / f"home-{next(_number)}"
    command = [Path(sys.executable).with_name("flovyn"), "dev", "--json", "--db", file]
    command += ["--http-port", "0", "--grpc-port", "0"]
    environment = {"FLOVYN_HOME": str(home)}
    server = subprocess.Popen(ending_with_us(command), stdout=subprocess.PIPE, text=True, env=os.environ | environment)
    try:
        line = server.stdout.readline() if server.stdout else ""
        yield Backend(json.loads(line)["grpc"], file, environment)
    finally:
        server.terminate()
        server.wait()
        if server.stdout:
            server.stdout.close()
