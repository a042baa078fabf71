"""Owns Restate as it runs here: its server in a new directory, every setting its default, and a service in Python.

It must run where there is nothing but loopback (`harness.sides.alone`): the server looks for updates when it starts,
telemetry off or not. Found in version 1.7.12: two log appends with fsync per step; durable before the next step runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from harness.measure import cpu_of, directory, rss_mb
from harness.processes import ending_with_us

INGRESS, ADMIN, NODE, SERVICE = 28080, 29070, 25122, 29080
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Restate:
    """The server and the service, both up."""

    server: int
    service: int

    def client(self) -> httpx.AsyncClient:
        """Return a client of the ingress."""
        limits = httpx.Limits(max_connections=600, max_keepalive_connections=600)
        return httpx.AsyncClient(base_url=f"http://127.0.0.1:{INGRESS}", timeout=120, limits=limits)

    def cpu_s(self) -> float:
        """Return the CPU seconds of the service."""
        return cpu_of(self.service)

    def figures(self) -> dict[str, float]:
        """Return what both have used: the server's CPU and peak memory."""
        return {"server_cpu_s": cpu_of(self.server), "server_peak_mb": rss_mb(peak=True, of=self.server)}


def _check_alone() -> None:
    interfaces = Path("/proc/net/dev").read_text().count(":")
    if interfaces != 1:
        raise SystemExit("run this in a network namespace that has only loopback: unshare -n")


def _until(condition: object, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not start")
        time.sleep(0.05)


def _healthy(url: str) -> bool:
    try:
        return httpx.get(url, timeout=1).status_code == 200
    except httpx.HTTPError:
        return False


def _listens(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/", timeout=1)
    except httpx.ConnectError:
        return False
    except httpx.HTTPError:
        pass
    return True


@contextmanager
def restate() -> Iterator[Restate]:
    """Start the server and the service, make them known to each other, and end them."""
    _check_alone()
    here = directory()
    modules = Path(sys.prefix) / "node_modules" / "@restatedev"
    program = next(modules.glob("restate-server-*/bin/restate-server"))
    environment = os.environ | {
        "RESTATE_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
        "RESTATE_LOG_FILTER": "error",
        "RESTATE_INGRESS__BIND_PORT": str(INGRESS),
        "RESTATE_ADMIN__BIND_PORT": str(ADMIN),
        "RESTATE_BIND_PORT": str(NODE),
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_ADVERTISED_HOST": "127.0.0.1",
        "RESTATE_LISTEN_MODE": "tcp",
    }
    with (here / "server.log").open("wb") as log, (here / "service.log").open("wb") as told:
        server = subprocess.Popen(
            ending_with_us([program, "--no-logo", "--base-dir", here / "restate", "--node-name", "n1"]),
            env=environment,
            stdout=log,
            stderr=log,
        )
        service = subprocess.Popen(
            ending_with_us([sys.executable, Path(__file__).with_name("service.py"), str(SERVICE)]),
            stdout=told,
            stderr=told,
        )
        try:
            _until(lambda: _healthy(f"http://127.0.0.1:{ADMIN}/health"), "restate-server")
            _until(lambda: _healthy(f"http://127.0.0.1:{INGRESS}/restate/health"), "the ingress")
            _until(lambda: _listens(SERVICE), "the service")
            deployment = {"uri": f"http://127.0.0.1:{SERVICE}"}
            made = httpx.post(f"http://127.0.0.1:{ADMIN}/deployments", json=deployment, timeout=30)
            if made.status_code not in (200, 201):
                raise SystemExit(f"the service was refused: {made.text[:400]}")
            yield Restate(server.pid, service.pid)
        finally:
            for process in (service, server):
                process.kill()
                process.wait()
