"""A process that serves agents and does nothing else; as many as wanted may share a backend.

FLOVYN_URL=sqlite:agents.db python worker.py

SIGTERM and Ctrl-C give its runs back at once, and others go on with them.
"""

from __future__ import annotations

import asyncio

import flovyn
from agents import look_up, researcher


async def main() -> None:
    async with flovyn.connect() as client:
        await client.worker(agents=[researcher], tasks=[look_up]).run()


if __name__ == "__main__":
    asyncio.run(main())
