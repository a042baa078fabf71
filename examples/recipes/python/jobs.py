"""Jobs of a queue in forked processes, as Celery's prefork pool has them: each starts a durable run and waits for it.

FLOVYN_URL=sqlite:agents.db python worker.py &
FLOVYN_URL=sqlite:agents.db python jobs.py TOPIC…

A job that is delivered twice, or again after its process died, finds the same run by its id: nothing of it is done twice.
Each process opens its client on its first job, and none before it forks. In Celery the body of a task is that of `job`,
with `id=self.request.id`.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys

import flovyn
from agents import researcher


@functools.cache
def client() -> flovyn.SyncClient:
    return flovyn.connect_sync()


def job(topic: str) -> str:
    """Do one job in whatever process the pool gives it to."""
    handle = client().start(researcher, topic, id=f"job-{topic}")
    handle.signal("approval", True, idempotency_key="approval")
    return handle.result(timeout=60)


def main(topics: list[str]) -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for answer in pool.map(job, [*topics, *topics]):
            print(answer)
    with client():
        print(len(list(client().runs())), "runs")


if __name__ == "__main__":
    main(sys.argv[1:])
