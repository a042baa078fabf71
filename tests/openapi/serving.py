"""Owns a developer's server of its own: in a folder, on free ports, ended with the block that asked for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Serving:
    """Where a server listens, and the token that it knows."""

    grpc: str
    http: str
    token: str


@contextmanager
def serving(folder: Path) -> Iterator[Serving]:
    """Serve a database in a folder until the block ends."""
    token = folder / "token"
    command = [Path(sys.executable).with_name("flovyn"), "dev", "--json", "--db", f"sqlite:{folder / 'runs.db'}"]
    command += ["--http-port", "0", "--grpc-port", "0", "--token-file", token]
    environment = os.environ | {"FLOVYN_HOME": str(folder)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        told = json.loads(server.stdout.readline() if server.stdout else "{}")
        yield Serving(told["grpc"], told["http"], token.read_text().strip())
    finally:
        server.terminate()
        server.wait()
