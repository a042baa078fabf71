"""This process as a machine of a server: let in, killed, started again, revoked."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import flovyn
import pytest
from conftest import served
from flovyn.toolkit import tools

WORK = Path(os.environ.get("FLOVYN_TEST_WORK", "."))


@flovyn.task
async def write_line(line: str) -> int:
    with (WORK / "lines").open("a") as file:
        file.write(f"{line}\n")
    return len(line)


@flovyn.agent
async def writer(ctx: flovyn.AgentContext, line: str) -> int:
    first = await write_line(line)
    return first + await write_line(await ctx.wait_for_signal("more", str))


@flovyn.agent
async def reader(ctx: flovyn.AgentContext, path: str) -> str:
    return (await tools.read(path)).text


class Server(NamedTuple):
    grpc: str
    http: str
    token: str

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        headers = {"authorization": f"Bearer {token or self.token}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.http}{path}", data, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    def pair(self, name: str) -> str:
        """Let a machine in; gives its key."""
        pairing = self.ask("POST", "/machines/pairings", {"name": name, "host": "a host"})
        self.ask("POST", f"/api/orgs/default/machines/pairings/{pairing['code']}/approve", {"owner": "ann"})
        key: str = self.ask("GET", "/machines/pairings", token=pairing["secret"])["token"]
        return key


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("FLOVYN_HOME", str(tmp_path / "home"))
    with served(tmp_path) as told:
        yield Server(told["grpc"], told["http"], Path(told["tokenFiles"][0]).read_text().strip())


def daemon_process(url: str, key: str, work: Path) -> subprocess.Popen[str]:
    code = (
        "import asyncio, sys, flovyn, test_daemon as t\n"
        "async def main():\n"
        "    daemon = flovyn.daemon(sys.argv[1], auth_token=sys.argv[2], workspaces=[t.WORK], agents=[t.writer])\n"
        "    async with daemon:\n"
        "        print('serves', daemon.name, flush=True)\n"
        "        await daemon.run()\n"
        "try:\n"
        "    asyncio.run(main())\n"
        "except flovyn.Unauthenticated as refused:\n"
        "    print('refused:', refused, flush=True)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "FLOVYN_TEST_WORK": str(work)}
    return subprocess.Popen([sys.executable, "-c", code, url, key], env=environment, text=True, stdout=subprocess.PIPE)


def pair_by_command(server: Server, home: Path) -> None:
    command = [sys.executable, "-m", "flovyn", "daemon", "pair", "--json", "--server", server.grpc, "--name", "desk"]
    pairing = subprocess.Popen(command, env=os.environ | {"FLOVYN_HOME": str(home)}, text=True, stdout=subprocess.PIPE)
    code = json.loads(line_of(pairing))["code"]
    server.ask("POST", f"/api/orgs/default/machines/pairings/{code}/approve", {"owner": "ann"})
    assert pairing.wait(20) == 0


def real(path: Path) -> str:
    return os.path.realpath(path)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip()


async def test_a_machine_goes_on_after_a_kill_and_ends_when_it_is_revoked(server: Server, tmp_path: Path) -> None:
    key, work = server.pair("laptop"), tmp_path / "work"
    work.mkdir()
    first = daemon_process(server.grpc, key, work)
    second: subprocess.Popen[str] | None = None
    try:
        assert await asyncio.to_thread(line_of, first) == "serves laptop"
        async with flovyn.connect(server.grpc) as client:
            handle = await client.start(writer, "otter", mode=flovyn.Local("laptop"))
            while await handle.status() != "WAITING":
                await asyncio.sleep(0.02)
            first.send_signal(signal.SIGKILL)
            first.wait()
            await handle.signal("more", "heron")
            second = daemon_process(server.grpc, key, work)
            assert await asyncio.to_thread(line_of, second) == "serves laptop"
            assert await handle.result(60) == 10
            assert (work / "lines").read_text() == "otter\nheron\n"
            facts = (await handle.describe()).machine
            assert facts["name"] == "laptop" and facts["live"] and facts["seen_at"] is not None
        [machine] = server.ask("GET", "/api/orgs/default/machines")["items"]
        assert machine["offers"]["kinds"] == ["writer"]
        assert machine["offers"]["workspaces"] == [real(work)]
        server.ask("DELETE", "/api/orgs/default/machines/laptop")
        refused = await asyncio.to_thread(line_of, second)
        assert "does not let the machine 'laptop' in any more" in refused.replace('"', "'")
        assert second.wait(20) == 0
    finally:
        for process in (first, second):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


async def test_a_daemon_that_closes_gives_back_what_it_holds(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "WORK", tmp_path)
    key = server.pair("laptop")
    daemon = flovyn.daemon(server.grpc, auth_token=key, workspaces=[tmp_path], agents=[writer])
    assert [str(path) for path in daemon.workspaces] == [real(tmp_path)]
    assert (daemon.name, daemon.is_open) == (None, False)
    async with flovyn.connect(server.grpc) as client:
        async with daemon:
            assert (daemon.name, daemon.is_open) == ("laptop", True)
            handle = await client.start(writer, "otter", mode=flovyn.Local())
            while await handle.status() != "WAITING":
                await asyncio.sleep(0.02)
        assert not daemon.is_open
        assert [run async for run in client.runs(status="RUNNING")] == []
        # Opened again it goes on.
        running = asyncio.create_task(daemon.run())
        await handle.signal("more", "heron")
        assert await handle.result(30) == 10
        await daemon.close()
        await asyncio.wait_for(running, 20)


async def test_tools_work_in_the_workspaces(server: Server, tmp_path: Path) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    for folder in (work, other):
        folder.mkdir()
        (folder / "notes.txt").write_text(f"of {folder.name}\n")
    key = server.pair("laptop")
    machine = flovyn.daemon(server.grpc, auth_token=key, workspaces=[work, other], agents=[reader])
    async with machine, flovyn.connect(server.grpc) as client:
        handle = await client.start(reader, "notes.txt", mode=flovyn.Local("laptop"))
        assert "of work" in await handle.result(30)


async def test_the_key_of_a_home_names_the_server(server: Server, tmp_path: Path) -> None:
    home = tmp_path / "machine"
    await asyncio.to_thread(pair_by_command, server, home)
    with pytest.raises(flovyn.InvalidArgument, match="paired as desk"):
        flovyn.daemon(home=home, name="laptop")
    with pytest.raises(flovyn.InvalidArgument, match="paired as desk with http"):
        flovyn.daemon("http://other:9090", home=home)
    with pytest.raises(flovyn.InvalidArgument, match="holds the daemon's own key"):
        flovyn.daemon(home=home, workspaces=[tmp_path])
    async with flovyn.daemon(home=home, agents=[writer]) as daemon:
        assert (daemon.name, daemon.server_url) == ("desk", server.grpc)


async def test_what_is_no_machine_is_refused_in_words(server: Server, tmp_path: Path) -> None:
    key = server.pair("laptop")
    with pytest.raises(flovyn.InvalidArgument, match=r"is not paired.*flovyn daemon pair"):
        flovyn.daemon(server.grpc)
    with pytest.raises(flovyn.InvalidArgument, match="no server"):
        flovyn.daemon(auth_token=key)
    with pytest.raises(flovyn.InvalidArgument, match="is no directory"):
        flovyn.daemon(server.grpc, auth_token=key, workspaces=[tmp_path / "absent"])
    with pytest.raises(flovyn.InvalidArgument, match="@agent"):
        flovyn.daemon(server.grpc, auth_token=key, agents=[write_line])  # type: ignore[list-item]
    with pytest.raises(flovyn.InvalidArgument, match="that of no machine"):
        await flovyn.daemon(server.grpc, auth_token=server.token).start()
    with pytest.raises(flovyn.InvalidArgument, match=r'"desktop".*machine "laptop"'):
        await flovyn.daemon(server.grpc, auth_token=key, name="desktop").start()
    with pytest.raises(flovyn.Unauthenticated, match="does not take the key"):
        await flovyn.daemon(server.grpc, auth_token="fk_guessed").start()
    with pytest.raises(flovyn.InvalidArgument, match="no Flovyn server"):
        await asyncio.wait_for(flovyn.daemon(server.http, auth_token=key).start(), 20)


async def test_nobody_answers_yet(caplog: pytest.LogCaptureFixture) -> None:
    daemon = flovyn.daemon("http://127.0.0.1:9", auth_token="fk_1", agents=[writer])
    with caplog.at_level(logging.WARNING, "flovyn"):
        running = asyncio.create_task(daemon.run())
        while "tried again in 2 s" not in caplog.text:
            await asyncio.sleep(0.02)
    assert "nobody answers" in caplog.text and not running.done()
    await daemon.close()
    await asyncio.wait_for(running, 5)
    starting = asyncio.create_task(daemon.start())
    await asyncio.sleep(0.1)
    await daemon.close()
    with pytest.raises(flovyn.InvalidArgument, match="was closed before"):
        await starting
