"""Owns the script of W7, the same for every engine: a model that reads the whole conversation, and a tool.

Standard library alone: the peers' programs import it too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import pairwise

from harness.content import ANSWER_BYTES, EXCHANGE_BYTES, TOOL_BYTES, USER_BYTES, prose
from harness.measure import directory, growth, percentile, rss_mb, settled_bytes


class Script:
    """A scripted model and its tool, which note when each turn began and whether the conversation was whole."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self._began: list[float] = []
        self._wrong = 0
        self._empty = 0

    def begin(self) -> str:
        """Note what the engine stored before any run, and return what the user asks for."""
        self._empty = settled_bytes(directory())
        return prose(USER_BYTES, 0)

    def answer(self, contents: Iterable[str]) -> str:
        """Begin a turn: read all that was said and return the model's words, which go with one call of the tool."""
        turn = len(self._began)
        self._began.append(time.perf_counter())
        self._wrong += sum(map(len, contents)) != USER_BYTES + turn * EXCHANGE_BYTES
        return prose(ANSWER_BYTES, 2 * turn + 1)

    def result(self) -> str:
        """Return what the tool of the present turn gives."""
        return prose(TOOL_BYTES, 2 * len(self._began))

    def ended(self) -> dict[str, float]:
        """End the last turn and return the figures: times of the turns, bytes stored, turns that were wrong."""
        marks = [*self._began, time.perf_counter()]
        times = [end - begin for begin, end in pairwise(marks)]
        stored = settled_bytes(directory()) - self._empty
        return {
            "turn_p50_ms": percentile(times, 0.5) * 1e3,
            **growth(times),
            "stored_mb": stored / 2**20,
            "stored_ratio": stored / (USER_BYTES + self.turns * EXCHANGE_BYTES),
            "rss_peak_mb": rss_mb(peak=True),
            "wrong": self._wrong + abs(len(times) - self.turns),
        }
