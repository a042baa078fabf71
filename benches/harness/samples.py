"""Owns one measurement of one cell, its file format, and the medians over many."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

#: A disk sample counts only if the floor around it was steady: p99 at most this many times p50.
STEADY = 5.0


@dataclass(frozen=True)
class Sample:
    """The figures of one cell in one round, with the floor measured right before and right after it."""

    workload: str
    size: int
    form: str
    who: str
    medium: str
    round: int
    took_s: float
    floor_p50_us: float
    floor_p99_us: float
    figures: dict[str, float] = field(default_factory=dict)
    error: str = ""
    floor: str = "SQLite"

    @property
    def quiet(self) -> bool:
        """Whether the medium was steady; only a disk can fail to be."""
        return self.medium != "disk" or self.floor_p99_us <= STEADY * self.floor_p50_us

    @property
    def counts(self) -> bool:
        """Whether the figures go into the medians."""
        return self.quiet and not self.error


@dataclass(frozen=True)
class Spread:
    """Median, minimum and maximum of one figure over the samples that count."""

    middle: float
    low: float
    high: float
    n: int


class Samples:
    """All samples of a run, with look-up by cell."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self._all: list[Sample] = list(samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._all)

    def add(self, sample: Sample, path: Path) -> None:
        """Keep a sample and append it to the file of raw lines."""
        self._all.append(sample)
        with path.open("a") as lines:
            lines.write(json.dumps(asdict(sample)) + "\n")

    @classmethod
    def read(cls, path: Path) -> Samples:
        """Read back a file of raw lines."""
        return cls(Sample(**json.loads(line)) for line in path.read_text().splitlines())

    def of(self, workload: str, size: int, who: str, form: str, medium: str) -> list[Sample]:
        """Return every sample of one cell on one medium, counted or not."""
        wanted = (workload, size, who, form, medium)
        return [s for s in self._all if (s.workload, s.size, s.who, s.form, s.medium) == wanted]

    def sizes(self, workload: str, who: str, form: str = "") -> list[int]:
        """Return the sizes at which a participant's variant was measured."""
        return sorted({s.size for s in self._all if (s.workload, s.who, s.form) == (workload, who, form)})

    @staticmethod
    def spread(samples: Iterable[Sample], figure: str) -> Spread | None:
        """Return the spread of one figure, or None where nobody measured it."""
        values = [s.figures[figure] for s in samples if s.counts and figure in s.figures]
        return Spread(median(values), min(values), max(values), len(values)) if values else None
