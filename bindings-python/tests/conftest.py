"""What the suites share: a backend URL per test, and child processes that can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path

import pytest

SCALE = int(os.environ.get("SCALE", "1"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let reports be sent from process to process: what a test has printed or logged may be no text for UTF-8."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


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
        # A shell without job control starts what runs in its background with Ctrl-C ignored, and children inherit that.
        hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        command = [sys.executable, str(script), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hears)

    return start


@contextlib.contextmanager
def served(folder: Path, environment: dict[str, str] | None = None, *, port: int = 0) -> Iterator[dict[str, str]]:
    """Serve runs by ``flovyn dev`` in a process of its own; gives what it tells. ``FLOVYN_HOME`` has the token."""
    command = [sys.executable, "-m", "flovyn", "dev", "--db", f"sqlite:{folder / 'runs.db'}"]
    command += ["--grpc-port", str(port), "--http-port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    text = ""
    while not text.rstrip().endswith("}"):
        line = process.stdout.readline()
        assert line, f"the server ended with {process.wait()}"
        text += line
    told = json.loads(text)
    yield told
    process.terminate()
    assert process.wait(10) == 0
    assert not any(Path(file).exists() for file in told["tokenFiles"]), "the token outlives its server"


@pytest.fixture(params=["memory", "sqlite", "server"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A fresh backend: in this process, one file, or a server's."""
    if request.param == "server":
        monkeypatch.setenv("FLOVYN_HOME", str(tmp_path / "home"))
        with served(tmp_path) as told:
            yield told["grpc"]
    else:
        yield f"memory:{tmp_path}" if request.param == "memory" else f"sqlite:{tmp_path / 'agents.db'}"
