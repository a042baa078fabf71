"""What the suites share: a backend URL per test, and child processes that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCALE = int(os.environ.get("SCALE", "1"))


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh backend: in this process, or one file."""
    if request.param == "memory":
        return f"memory:{tmp_path}"
    return f"sqlite:{tmp_path / 'agents.db'}"


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """A fresh file that several processes may share."""
    return f"sqlite:{tmp_path / 'agents.db'}"


@pytest.fixture
def child(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start a Python child process from source text."""

    def start(source: str, *arguments: str) -> subprocess.Popen[str]:
        script = tmp_path / "child.py"
        script.write_text(source)
        return subprocess.Popen(
            [sys.executable, str(script), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return start
