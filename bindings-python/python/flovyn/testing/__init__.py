"""Tools for testing agents: crashes at every commit, a virtual clock, recorded cassettes.

``check(agent, input)`` proves that an agent survives: it runs it undisturbed, then with forced re-entry, then with a
crash at every commit, and compares. ``harness`` serves agents in memory on a clock that the test moves.
"""

from __future__ import annotations

from .cassette import Cassette, record, replay
from .check import Difference, Report, check, check_async
from .harness import Harness, harness

__all__ = [
    "Cassette",
    "Difference",
    "Harness",
    "Report",
    "check",
    "check_async",
    "harness",
    "record",
    "replay",
]
