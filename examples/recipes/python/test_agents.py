"""pytest: an agent crashed at every commit, and one with a clock to move; nothing is written, nothing waits.

pytest test_agents.py
"""

from __future__ import annotations

import asyncio

from agents import look_up, researcher
from flovyn.testing import check, harness


def test_the_researcher_is_the_same_in_every_process() -> None:
    check(researcher, "otters", signals=[("approval", True)])


def test_it_waits_for_a_person() -> None:
    async def pages(topic: str) -> str:
        return f"no pages about {topic}"

    async def story() -> None:
        async with harness([researcher], [look_up], fakes={look_up: pages}) as h:
            handle = await h.start(researcher, "otters")
            await h.advance(3600)
            assert await handle.status() == "WAITING"
            await handle.signal("approval", True)
            assert await handle.result() == "no pages about otters"

    asyncio.run(story())
