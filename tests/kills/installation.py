"""Owns the processes of an installation, which can be killed: servers over one PostgreSQL, workers, machines."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scenarios"))

from backends import Postgres, ending_with_us
from harness.postgres import free_port

from plan import MACHINES

HERE = Path(__file__).resolve().parent
SERVERS, WORKERS = 3, 4
#: Of each kind, how likely it is that one is killed.
CHANCES = {"server": 4, "worker": 8, "daemon": 4}
PATIENCE_S = 30.0
#: The length of a line of the notes.
NOTE_BYTES = 512

#: What the scripted model of the machines does: one thing, and then it says that it is done.
SCRIPT = """
[[turns]]
when = { turn = 1, lastUserContains = "append" }
toolCalls = [{ name = "bash", arguments = { command = "echo '{{lastUser}}' >> log; sleep 0.1" } }]
[[turns]]
when = { turn = 1, lastUserContains = "write" }
toolCalls = [{ name = "write", arguments = { path = "{{lastUser}}", content = "{{lastUser}} {{pad:20000}}" } }]
[otherwise]
text = "done {{lastUser}}"
"""


@dataclass
class Member:
    """A process with its place, which is started again when it was killed."""

    kind: str
    server: int
    """The number of the server that it is or is connected to."""
    command: list[str | Path]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, without waiting until it serves."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ending_with_us(self.command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=os.environ | self.environment,
                cwd=self.log.parent,
            )

    def kill(self) -> str | None:
        """Kill it as a crash does, or tell that it had ended by itself, which nobody has asked for."""
        assert self.process is not None
        ended = self.process.poll()
        self.process.kill()
        self.process.wait()
        return None if ended is None else f"a {self.kind} ended by itself with {ended}: {self.last_words()}"

    def last_words(self) -> str:
        """Return the end of what it has logged."""
        return self.log.read_text(errors="replace")[-2000:]


class Installation:
    """An installation in a folder."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder, self._program = folder, program
        (folder / "effects").mkdir()
        (folder / "notes").touch()
        folder.chmod(0o755)  # PostgreSQL runs as another user
        self.kills: Counter[str] = Counter()
        self._beside: list[Any] = []
        self._ended: list[str] = []
        self.members: list[Member] = []
        try:
            self._begin()
        except BaseException:
            self.end()
            raise

    def _begin(self) -> None:
        postgres = Postgres(self.folder)
        self._beside.append(postgres)
        db = postgres.url.replace("postgresql:", "postgres:")
        self._flovyn("migrate", db)
        key = json.loads(self._flovyn("keys", "create", db, "--name", "kills", "--scopes", "admin", "--json"))
        self._given = {"FLOVYN_TOKEN": key["token"], "FLOVYN_HOME": str(self.folder / "home")}
        os.environ |= self._given
        nats = self._nats()
        # Fixed, so that those who were connected find it again.
        ports = [free_port() for _ in range(SERVERS)]
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        for number, port in enumerate(ports):
            config = self.folder / f"server-{number}.toml"
            config.write_text(f'db = "{db}"\ngrpc = "127.0.0.1:{port}"\nhttp = "127.0.0.1:0"\n{nats}')
            self._add("server", number, number, [self._program, "server", "--json", "--config", config])
        for url in self.urls:
            _wait_for(url)
        for number, name in enumerate(MACHINES):
            self._pair(name, number)
        for number in range(WORKERS):
            url = self.urls[number % SERVERS]
            self._add("worker", number, number % SERVERS, [sys.executable, HERE / "agents.py", url, self.folder])

    def _nats(self) -> str:
        """Start NATS where it is installed; return what servers have to know of it."""
        program = shutil.which("nats-server", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            return ""
        port = free_port()
        with (self.folder / "log-nats").open("wb") as log:
            started = [program, "-a", "127.0.0.1", "-p", str(port)]
            self._beside.append(subprocess.Popen(ending_with_us(started), stdout=log, stderr=log))
        _wait_for(f"http://127.0.0.1:{port}")
        return f'nats = "nats://127.0.0.1:{port}"\n'

    def _pair(self, name: str, server: int) -> None:
        """Let a machine in, and start its daemon."""
        url = self.urls[server]
        home, work = self.folder / name / "home", self.work(name)
        home.mkdir(parents=True)
        work.mkdir()
        (home / "daemon.toml").write_text('approve = "all"\n')
        script = self.folder / "script.toml"
        script.write_text(SCRIPT)
        environment = {"FLOVYN_HOME": str(home)}
        asked = [self._program, "daemon", "pair", "--json", "--server", url, "--name", name]
        with subprocess.Popen(asked, env=os.environ | environment, stdout=subprocess.PIPE, text=True) as asking:
            assert asking.stdout is not None
            code = json.loads(asking.stdout.readline())["code"]
            self._flovyn("machines", "approve", url, code, "--owner", "ann")
        serving = [self._program, "daemon", "--json", "--workspace", work, f"--fake={script}"]
        self._add("daemon", name, server, serving, environment)

    def work(self, machine: str) -> Path:
        """Return the workspace of a machine."""
        return self.folder / machine / "work"

    def noted(self) -> int:
        """Return how many lines agents and tasks have noted so far."""
        return (self.folder / "notes").stat().st_size // NOTE_BYTES

    def _add(
        self, kind: str, name: object, server: int, command: list[str | Path], more: dict[str, str] | None = None
    ) -> None:
        member = Member(kind, server, command, more or {}, self.folder / f"log-{kind}-{name}")
        member.start()
        self.members.append(member)

    def _flovyn(self, *words: str) -> str:
        done = subprocess.run([self._program, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"`flovyn {words[0]}` ended with {done.returncode}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def kill_one(self, chance: random.Random, members: list[Member]) -> Member:
        """Kill one of these, whose kind is drawn first."""
        kinds = {kind: often for kind, often in CHANCES.items() if any(one.kind == kind for one in members)}
        kind = chance.choices(list(kinds), list(kinds.values()))[0]
        victim = chance.choice([one for one in members if one.kind == kind])
        fault = victim.kill()
        if fault is not None:
            self._ended.append(fault)
        with (self.folder / "kills").open("a") as kills:
            kills.write(f"{time.time():.3f} {victim.log.name.removeprefix('log-')} of server {victim.server}\n")
        self.kills[kind] += 1
        return victim

    def faults(self) -> list[str]:
        """Return who has ended though nobody has killed them, and who has panicked."""
        ended = [one for one in self.members if one.process is None or one.process.poll() is not None]
        faults = [*self._ended, *(f"a {one.kind} has ended by itself: {one.last_words()}" for one in ended)]
        for one in self.members:
            if "panicked" in one.log.read_text(errors="replace"):
                faults.append(f"a {one.kind} panicked: {one.last_words()}")
        return faults

    def end(self) -> None:
        """End everything that was started."""
        for member in self.members:
            if member.process is not None:
                member.process.kill()
                member.process.wait()
        for one in reversed(self._beside):
            if isinstance(one, Postgres):
                one.stop()
            else:
                one.kill()
                one.wait()


def _wait_for(url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with suppress(OSError), socket.create_connection((host, int(port)), 1):
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"nobody listens at {url}")
        time.sleep(0.02)
