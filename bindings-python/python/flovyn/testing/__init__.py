"""Tools for testing agents: crashes at every commit, a virtual clock, recorded cassettes.

``check(agent, input)`` proves that an agent survives: it runs it undisturbed, then with forced re-entry, then with a
crash at every commit, and compares. ``harness`` serves agents in memory on a clock that the test moves. ``fake_llm``
serves a scripted model.
"""

from __future__ import annotations

from .cassette import Cassette, record, replay
from .check import Difference, Report, check, check_async
from .harness import Harness, harness
from .scripted import FakeLlm, Fault, ModelCall, Turn, cut, fake_llm, malformed, stall, status, tool_call, turn

__all__ = [
    "Cassette",
    "Difference",
    "FakeLlm",
    "Fault",
    "Harness",
    "ModelCall",
    "Report",
    "Turn",
    "check",
    "check_async",
    "cut",
    "fake_llm",
    "harness",
    "malformed",
    "record",
    "replay",
    "stall",
    "status",
    "tool_call",
    "turn",
]
