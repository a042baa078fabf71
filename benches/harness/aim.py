"""Owns one aim, and how figures are read off the samples for it."""

from __future__ import annotations

from dataclasses import dataclass

from harness.plan import RAM
from harness.samples import Samples


@dataclass(frozen=True)
class Aim:
    """One promise for one of our sides. `at_most` tells whether the limit is a ceiling or a floor."""

    text: str
    who: str
    medium: str
    limit: float
    unit: str
    measured: float | None
    at_most: bool = True

    @property
    def met(self) -> bool | None:
        """Whether the promise is kept; None when it was not measured."""
        if self.measured is None:
            return None
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit


def times(ours: float | None, theirs: float | None) -> float | None:
    """Return how many times theirs ours is, where both were measured."""
    return ours / theirs if ours and theirs else None


class Reader:
    """Reads one side's medians off the samples."""

    def __init__(self, samples: Samples, who: str) -> None:
        self._samples, self._who = samples, who

    def median(self, workload: str, size: int, figure: str, medium: str = RAM, form: str = "") -> float | None:
        """Return the median of one figure of one cell."""
        spread = Samples.spread(self._samples.of(workload, size, self._who, form, medium), figure)
        return None if spread is None else spread.middle

    def worst(self, workload: str, size: int, figure: str, medium: str, form: str = "") -> float | None:
        """Return the largest value of what must never happen: of every sample, steady disk or not."""
        cell = self._samples.of(workload, size, self._who, form, medium)
        values = [s.figures[figure] for s in cell if figure in s.figures]
        return max(values) if values else None

    def growth(self, workload: str, sizes: tuple[int, ...], figure: str) -> float | None:
        """Return how many times larger a figure is at the most turns than at the fewest."""
        low, high = self.median(workload, min(sizes), figure), self.median(workload, max(sizes), figure)
        return high / low if low and high else None
