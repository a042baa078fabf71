"""The programs of examples/recipes in Python, each started as its first lines say and talked to over loopback."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError

import pytest

RECIPES = Path(__file__).parents[2] / "examples" / "recipes" / "python"
PATIENCE_S = 30.0


class Answer(NamedTuple):
    """What a server said."""

    status: int
    body: Any


@contextlib.contextmanager
def running(url: str, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a recipe; it must end well when it is told to."""
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=RECIPES,
        env=os.environ | {"FLOVYN_URL": url, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
        assert process.poll() is None, process.communicate()[0]
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode in (0, -signal.SIGTERM), said
        assert "Traceback" not in said, said
    finally:
        process.kill()
        process.communicate()


def free_port() -> str:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def asked(method: str, url: str) -> Answer:
    """Ask once; waits for a server that does not listen yet."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=PATIENCE_S) as answer:
                text = answer.read().decode()
                return Answer(answer.status, json.loads(text) if text else None)
        except HTTPError as error:
            return Answer(error.code, json.loads(error.read()))
        except URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def events(url: str, after: str | None = None, until: str | None = None) -> list[dict[str, str]]:
    """Read server-sent events to their end, or to the first whose data has some text."""
    request = urllib.request.Request(url, headers={} if after is None else {"Last-Event-ID": after})
    found: list[dict[str, str]] = []
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        for raw in answer:
            line = raw.decode().rstrip("\n")
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                found.append(fields)
                if until is not None and until in fields["data"]:
                    break
                fields = {}
    return found


def talk(base: str) -> list[Answer]:
    """Start a run, read of it, answer it and read on from there; returns what was answered on the way."""
    said = [asked("POST", f"{base}/runs/otters?topic=otters"), asked("POST", f"{base}/runs/otters?topic=otters")]
    before = events(f"{base}/runs/otters/events", until="three pages")
    said.append(asked("POST", f"{base}/runs/otters/approval?yes=true"))
    after = events(f"{base}/runs/otters/events", after=before[-1]["id"])
    assert not any("three pages" in event["data"] for event in after)
    assert "COMPLETED" in after[-1]["data"] or "completed" in after[-1]["event"], after[-1]
    shown = asked("GET", f"{base}/runs/otters")
    assert (shown.status, shown.body["output"]) == (200, "three pages about otters")
    assert asked("GET", f"{base}/runs/nobody").status == 404
    return said


def test_fastapi(file_url: str) -> None:
    port = free_port()
    command = ["-m", "uvicorn", "fastapi_app:app", "--port", port, "--timeout-graceful-shutdown", "5"]
    with running(file_url, *command):
        said = talk(f"http://127.0.0.1:{port}")
        assert [answer.status for answer in said] == [202, 202, 204]
        assert asked("POST", f"http://127.0.0.1:{port}/runs/otters?topic=seals").status == 409


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.parametrize("app", ["flask_app", "django_app"])
def test_an_app_below_a_server_that_forks(file_url: str, app: str) -> None:
    port = free_port()
    command = ["-m", "gunicorn", "--preload", "--workers", "2", "--bind", f"127.0.0.1:{port}", f"{app}:app"]
    with running(file_url, "worker.py"), running(file_url, *command) as parent:
        said = talk(f"http://127.0.0.1:{port}")
        assert [answer.status for answer in said] == [202, 202, 204]
        assert said[0].body["process"] != parent.pid


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_jobs(file_url: str) -> None:
    with running(file_url, "worker.py"):
        done = subprocess.run(
            [sys.executable, "jobs.py", "otters", "seals"],
            cwd=RECIPES,
            env=os.environ | {"FLOVYN_URL": file_url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    expected = ["three pages about otters", "three pages about seals"] * 2 + ["2 runs"]
    assert (done.returncode, done.stderr, done.stdout.splitlines()) == (0, "", expected)


def test_a_notebook_whose_cells_run_twice(file_url: str) -> None:
    shell = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.autoawait = True
cells = open("notebook.py", encoding="utf-8").read().split("# %%")[1:]
for cells_again in (cells, [cell.replace("len(text.split())", "100 + len(text.split())") for cell in cells]):
    for cell in cells_again:
        shell.run_cell("#" + cell).raise_error()
"""
    done = subprocess.run(
        [sys.executable, "-c", shell],
        cwd=RECIPES,
        env=os.environ | {"FLOVYN_URL": file_url, "IPYTHONDIR": str(Path(file_url.removeprefix("sqlite:")).parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, ["5", "3", "5", "103"]), done.stderr


def test_pytest(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_agents.py"]
    done = subprocess.run(command, cwd=RECIPES, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr
