"""The pytest plugin: fixtures for agents under test. Imports Flovyn only when a fixture is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .harness import Harness


@pytest.fixture
def flovyn_url(tmp_path: Path) -> str:
    """The URL of a fresh SQLite file."""
    return f"sqlite:{tmp_path / 'flovyn.db'}"


@pytest.fixture
def flovyn_harness() -> Callable[..., Harness]:
    """Make a harness: ``async with flovyn_harness([agent]) as h``."""
    from .harness import harness

    return harness


@pytest.fixture
def flovyn_check() -> Callable[..., Any]:
    """Check an agent by forced re-entry and crashes: ``flovyn_check(agent, input)``."""
    from .check import check

    return check
