"""Owns how DBOS is opened: SQLite, or PostgreSQL where the runner started one; every other setting its default.

Found in version 3.4.0: rollback journal with synchronous=FULL, 4 fsyncs per step; on PostgreSQL 1, with about ten
statements. Durable before the next step runs.
"""

from __future__ import annotations

import os

from dbos import DBOS, DBOSConfig

from harness.measure import directory


def launch() -> None:
    """Open the database and start DBOS, which recovers pending workflows by itself."""
    url = os.environ.get("BENCH_PG") or f"sqlite:///{directory() / 'dbos.db'}"
    DBOS(config=DBOSConfig(name="bench", system_database_url=url, log_level="ERROR", application_version="1"))
    DBOS.launch()
