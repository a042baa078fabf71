"""S9 on Restate: what its server costs before any work, and what it and a service cost that have nothing to do.

Usage: idle.py SECONDS
"""

from __future__ import annotations

import sys
import time

from engine import restate
from harness.measure import cpu_of, emit, rss_mb

SETTLE_S = 1.0

if __name__ == "__main__":
    with restate() as up:
        time.sleep(SETTLE_S)
        start_mb = rss_mb(of=up.server)
        server, service, since = cpu_of(up.server), cpu_of(up.service), time.perf_counter()
        time.sleep(float(sys.argv[1]))
        wall = time.perf_counter() - since
        emit(
            server_start_mb=start_mb,
            server_idle_percent=(cpu_of(up.server) - server) / wall * 100,
            idle_cpu_percent=(cpu_of(up.service) - service) / wall * 100,
        )
