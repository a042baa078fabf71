"""A process that serves the built-in agent until it is killed, or kills itself at a marked moment.

toolkit_victim.py URL MODEL_URL LOG MARKER: its tool takes notes in LOG; it dies as it begins the one of MARKER.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import flovyn
from flovyn.toolkit import Provider, react_agent, tool

URL, MODEL_URL, LOG, MARKER = sys.argv[1:5]


@flovyn.task
def note(text: str) -> str:
    """Take a note."""
    if MARKER == f"{text} started":
        os.kill(os.getpid(), signal.SIGKILL)
    with Path(LOG).open("a") as log:
        log.write(f"{text}\n")
    return f"noted {text}"


assistant = react_agent(
    "note-taker",
    model="mine/m",
    tools=[tool(note, effect="read")],
    providers={"mine": Provider("anthropic-messages", MODEL_URL)},
)

if __name__ == "__main__":
    outcome = flovyn.run(assistant, "Take two notes.", id="notes", url=URL, timeout=50)
    print(outcome.text, outcome.turns)
