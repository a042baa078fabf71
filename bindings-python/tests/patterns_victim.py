"""A process that serves a family of agents until it kills itself at a marked moment.

patterns_victim.py URL MODEL_URL LOG MARKER: the delegate's tool and the successor take notes in LOG; it dies where
MARKER says. The parent's code is not there to name them: it waits for the child, or is gone with its handoff.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import flovyn
from flovyn.toolkit import Provider, react_agent, tool

URL, MODEL_URL, LOG, MARKER = sys.argv[1:5]
PROVIDERS = {"mine": Provider("anthropic-messages", MODEL_URL)}


def mark(text: str) -> None:
    if text == MARKER:
        os.kill(os.getpid(), signal.SIGKILL)
    with Path(LOG).open("a") as log:
        log.write(f"{text}\n")


@flovyn.task
def look(at: str) -> str:
    """Look at something."""
    mark(f"look at {at}")
    return f"{at} are there"


@flovyn.agent(description="Sums up what was said.")
async def closer(ctx: flovyn.AgentContext[Any], how: str) -> str:
    mark("close")
    said = [one for one in await ctx.messages() if (one.role, one.entry_type) == ("assistant", "message")]
    return f"{how}, after {len(said)} answers"


scout = react_agent(
    "scout", description="Looks at animals.", tools=[tool(look, effect="read")], providers=PROVIDERS, model="mine/m"
)
lead = react_agent("lead", model="mine/m", delegates=[scout], handoffs=[closer], providers=PROVIDERS)

if __name__ == "__main__":
    print(flovyn.run(lead, "What is there?", id="family", url=URL, timeout=50))
