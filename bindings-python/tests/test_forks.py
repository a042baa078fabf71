"""Forked children with what their parent has opened: prefork servers, multiprocessing, ``os.fork``.

What would hang is ended by ``faulthandler`` in the child, whose exit is then not 0.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import served

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no fork")

HEAD = """
import asyncio, faulthandler, functools, multiprocessing, os, sys, flovyn
from flovyn import agent

@agent
async def hello(ctx, name: str) -> str:
    return f"hello {name}"

@agent
async def waits(ctx) -> str:
    return await ctx.wait_for_signal("go")

def in_child(work):
    # Its thread would be waited for in the child, where it is not.
    faulthandler.cancel_dump_traceback_later()
    pid = os.fork()
    if pid == 0:
        faulthandler.dump_traceback_later(10, exit=True)
        work()
        sys.stdout.flush()
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    print("child ended with", os.waitstatus_to_exitcode(status), flush=True)
"""


def outcome(process: subprocess.Popen[str]) -> list[str]:
    """Return what a process has printed; it must end well and complain of nothing."""
    output, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (0, ""), output
    return output.splitlines()


def test_a_client_of_a_server_opens_anew_in_the_child(
    child: Callable[..., subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOVYN_HOME", str(tmp_path / "home"))
    source = """
client = flovyn.connect_sync(sys.argv[1])
worker = client.worker(agents=[hello]).start()
before = client.start(hello, "parent", id="parent")
print(before.result(20))

def use():
    print(client.start(hello, "child", id="child").result(20), client.url == sys.argv[1])

def leave():
    worker.close()
    client.close()

def use_the_parents():
    for call in (before.status, worker.start):
        try:
            print(call())
        except flovyn.ForkedProcess as error:
            print("client.handle(id)" in str(error), str(os.getppid()) in str(error))

def serve():
    with client, client.worker(agents=[waits]):
        handle = client.start(waits, id="waits")
        handle.signal("go", "gone")
        print(handle.result(20))

for work in (use, leave, use_the_parents, serve, lambda: in_child(use)):
    in_child(work)
process = multiprocessing.get_context("fork").Process(target=use)
process.start()
process.join()
print("child ended with", process.exitcode, flush=True)
print(client.start(hello, "parent again").result(20))
client.close()
"""
    ended = "child ended with 0"
    with served(tmp_path) as told:
        assert outcome(child(HEAD + source, told["grpc"])) == [
            "hello parent",
            *("hello child True", ended),
            ended,
            *("True True", "True True", ended),
            *("gone", ended),
            *("hello child True", ended, ended),
            *("hello child True", ended),
            "hello parent again",
        ]


def test_a_file_is_the_parents(child: Callable[..., subprocess.Popen[str]], url: str) -> None:
    source = """
client = flovyn.connect_sync(sys.argv[1])

def use():
    try:
        client.start(hello, "child")
    except flovyn.ForkedProcess as error:
        print(error.code, "on its first use" in str(error))
    client.close()

in_child(use)
with client, client.worker(agents=[hello]):
    in_child(use)
    print(client.start(hello, "parent").result(20))
"""
    told = ["ForkedProcess True", "child ended with 0"]
    assert outcome(child(HEAD + source, url)) == [*told, *told, "hello parent"]


def test_a_client_of_each_process_made_on_its_first_use(
    child: Callable[..., subprocess.Popen[str]], file_url: str
) -> None:
    source = """
client = functools.cache(lambda: flovyn.connect_sync(sys.argv[1]))

def use():
    with client().worker(agents=[hello]):
        print(client().start(hello, "child", id="child").result(20))

for _ in range(3):
    in_child(use)
"""
    assert outcome(child(HEAD + source, file_url)) == ["hello child", "child ended with 0"] * 3


def test_nothing_of_a_loops_client_hangs_in_the_child(
    child: Callable[..., subprocess.Popen[str]], file_url: str
) -> None:
    source = """
async def told(call):
    try:
        return await call()
    except flovyn.ForkedProcess:
        return "told"

async def begin():
    client = await flovyn.connect(sys.argv[1])
    worker = await client.worker(agents=[waits]).start()
    return client, worker, await client.start(waits, id="waits")

loop = asyncio.new_event_loop()
client, worker, handle = loop.run_until_complete(begin())

async def block():
    async with client:
        pass

calls = [handle.status, handle.result, lambda: handle.signal("go"), handle.stream().__anext__]
calls += [handle.sse().__anext__, handle.messages, lambda: client.handle("waits"), client.runs().__anext__]
calls += [client.worker().start, worker.close, client.close, block]

def use():
    print(*[asyncio.run(told(call)) for call in calls])

async def end():
    await handle.signal("go", "gone")
    print(await handle.result(20))
    await client.close()

in_child(use)
loop.run_until_complete(end())
"""
    first = " ".join(["told"] * 9 + ["None"] * 3)
    assert outcome(child(HEAD + source, file_url)) == [first, "child ended with 0", "gone"]


def test_children_open_the_file_their_parent_is_at_work_on(
    child: Callable[..., subprocess.Popen[str]], file_url: str
) -> None:
    source = """
import itertools, threading

client = flovyn.connect_sync(sys.argv[1])
ended = threading.Event()

def works(name):
    for n in itertools.count():
        if ended.is_set():
            return
        client.start(hello, f"{name} {n}").result(20)

def use():
    with flovyn.connect_sync(sys.argv[1]) as own, own.worker(agents=[hello]):
        print(own.start(hello, "child").result(20))

with client, client.worker(agents=[hello]):
    # What is done for the first time takes locks of Python's and PyO3's, which a child would wait for.
    print(client.start(hello, "parent").result(20))
    threads = [threading.Thread(target=works, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for _ in range(24):
        in_child(use)
    ended.set()
    for thread in threads:
        thread.join()
"""
    assert outcome(child(HEAD + source, file_url)) == ["hello parent"] + ["hello child", "child ended with 0"] * 24
