"""Owns how DBOS is opened: SQLite system database, every other setting its default.

Found in version 3.4.0: rollback journal with synchronous=FULL, 4 fsyncs per step; durable before the next step runs.
"""

from __future__ import annotations

from dbos import DBOS, DBOSConfig

from harness.measure import directory


def launch() -> None:
    """Open the database and start DBOS, which recovers pending workflows by itself."""
    url = f"sqlite:///{directory() / 'dbos.db'}"
    DBOS(config=DBOSConfig(name="bench", system_database_url=url, log_level="ERROR", application_version="1"))
    DBOS.launch()
