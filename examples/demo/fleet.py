"""The second half of the demo: the same agent behind a server, on two workers, one of which is killed.

`flovyn dev` serves a database; two processes work for it; a plain HTTP client starts the run, watches it live over
server-sent events and sends the go-ahead. It knows neither the worker that dies nor the one that goes on.

Usage: fleet.py URL works for a server until it is killed.
"""

from __future__ import annotations

import asyncio
import collections
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import flovyn
import survey

HERE = Path(__file__).resolve().parent
AGENTS, TASKS = [survey.surveyor], [survey.list_files, survey.read_file, survey.analyse, survey.write_report]


async def work(url: str) -> None:
    """Serve the survey until killed."""
    async with flovyn.connect(url) as client:
        await client.worker(agents=AGENTS, tasks=TASKS).run()


class Rest:
    """A client that knows HTTP and nothing of Flovyn."""

    def __init__(self, http: str, token: str) -> None:
        self._base = f"{http}/api/orgs/default/agent-executions"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, path: str, body: object = None) -> Any:
        """Send a body, or look; return the JSON of the answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, self._headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def events(self, run: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the name and body of every event of a run, until its last."""
        request = urllib.request.Request(f"{self._base}/{run}/stream", headers=self._headers)
        with urllib.request.urlopen(request, timeout=60) as stream:
            name = ""
            for line in map(bytes.decode, stream):
                field, _, value = line.rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    yield name, json.loads(value)


def start(command: list[str], processes: ExitStack, **environment: str) -> subprocess.Popen[str]:
    """Start a process that does not outlive the demo."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)

    def end() -> None:
        process.terminate()
        process.wait()

    processes.callback(end)
    return process


def serve(folder: Path, processes: ExitStack) -> tuple[dict[str, Any], float]:
    """Start a server; return where it listens and how long it took."""
    began = time.monotonic()
    command = [sys.executable, "-m", "flovyn", "dev", "--db", f"sqlite:{folder / 'fleet.db'}", "--json"]
    server = start([*command, "--grpc-port", "0", "--http-port", "0"], processes, FLOVYN_HOME=str(folder))
    assert server.stdout is not None
    text = ""
    while not text.rstrip().endswith("}"):
        line = server.stdout.readline()
        if not line:
            raise SystemExit("the server did not start")
        text += line
    return json.loads(text), time.monotonic() - began


def last_runner(log: Path) -> int:
    """Return the process that ran the last step."""
    return int(log.read_text().splitlines()[-1].split()[0])


def show(folder: Path, repository: Path, say: Callable[[str], None]) -> None:
    """Run the survey on two workers, kill the one that has it, and check the outcome."""
    log = folder / "fleet.log"
    log.touch()
    with ExitStack() as processes:
        told, seconds = serve(folder, processes)
        say(f"    the server is ready after {seconds * 1000:.0f} ms: {told['grpc']} for workers, {told['http']} for browsers")
        worker = [sys.executable, str(HERE / "fleet.py"), told["grpc"]]
        workers = [start(worker, processes, FLOVYN_HOME=str(folder), SURVEY_LOG=str(log)) for _ in range(2)]
        rest = Rest(told["http"], Path(told["tokenFiles"][0]).read_text().strip())
        given = {"root": str(repository / "core" / "src"), "report": str(folder / "fleet.md")}
        rest.ask("", {"kind": "surveyor", "input": given, "id": "survey"})
        killed, resumed, before, holder = 0.0, 0.0, 0, 0
        for name, body in rest.events("survey"):
            if name == "data":
                done, of = body["data"]["done"], body["data"]["of"]
                if not killed and done >= of // 2:
                    holder = last_runner(log)
                    victim = next(worker for worker in workers if worker.pid == holder)
                    victim.send_signal(signal.SIGKILL)
                    killed, before = time.monotonic(), len(log.read_text().splitlines())
                    say(f"    kill -9 of the worker that has the run, after {done} of {of} files; the watcher stays")
                elif killed and not resumed and last_runner(log) != holder:
                    resumed = time.monotonic()
                    say(f"    the other worker goes on; its first file comes {resumed - killed:.1f} s after the kill")
            elif name == "agent.waiting":
                say("    the agent asks for a go-ahead; it is sent by POST /signal")
                rest.ask("/survey/signal", {"signalName": "go-ahead", "signalValue": "yes", "idempotencyKey": "go-1"})
        run = rest.ask("/survey")
    steps = collections.Counter(line.split(" ", 1)[1] for line in log.read_text().splitlines())
    again = sum(times - 1 for times in steps.values())
    say(f"    {run['status']}: {len(steps)} steps, {before} before the kill, in flight at the kill and again: {again}")
    if run["status"] != "COMPLETED" or run["output"]["files"] * 2 + 2 != len(steps) or again > 1 or not resumed:
        raise SystemExit(f"the run lost or repeated work: {run}")


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
