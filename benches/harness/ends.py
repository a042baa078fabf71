"""Owns what W9 looks at from outside: when the streams of a model and the process groups of commands are gone.

Usage: python -m harness.ends. A process of its own, so that what is measured does not delay its clock. It serves a
model that never ends an answer, and reads the pipes that it is given on its standard input, one path a line. A pipe is
gone when the last process that has it open is. Each line that it prints is a JSON list: the port of the model first,
then `opened` or `gone` with what and when.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harness.processes import ending_with_us

WORD_EVERY_S = 0.05
BEGIN = (
    '{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"slow","content":[],'
    '"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}}',
    '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
)
WORD = '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word "}}'


def _note(word: str, of: str) -> None:
    print(json.dumps([word, of, time.monotonic()]), flush=True)


def _event(data: str) -> bytes:
    event = f"event: {json.loads(data)['type']}\ndata: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


class _Stream(asyncio.Protocol):
    """A connection of somebody who asks the model: answered for as long as it is open."""

    def __init__(self) -> None:
        self._asked = b""
        self._talking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._asked += data
        head, end, body = self._asked.partition(b"\r\n\r\n")
        lengths = [
            int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        ]
        if end and self._talking is None and len(body) >= sum(lengths):
            self._talking = asyncio.create_task(self._talk())

    async def _talk(self) -> None:
        assert isinstance(self._transport, asyncio.WriteTransport)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        self._transport.write(head + b"".join(map(_event, BEGIN)))
        _note("opened", "stream")
        while True:
            self._transport.write(_event(WORD))
            await asyncio.sleep(WORD_EVERY_S)

    def connection_lost(self, error: Exception | None) -> None:
        if self._talking is not None:
            self._talking.cancel()
            _note("gone", "stream")


def _watch(path: str) -> None:
    """Read a pipe until nobody has it open for writing."""
    pipe, loop = os.open(path, os.O_RDONLY | os.O_NONBLOCK), asyncio.get_running_loop()

    def readable() -> None:
        if os.read(pipe, 100):
            _note("opened", "command")
            return
        _note("gone", "command")
        loop.remove_reader(pipe)
        os.close(pipe)

    loop.add_reader(pipe, readable)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Stream, "127.0.0.1", 0)
    print(json.dumps([server.sockets[0].getsockname()[1]]), flush=True)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        _watch(line.decode().strip())
        print(json.dumps(["watched"]), flush=True)


class Ends:
    """The watching process as whoever is measured has it."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process, self.url = process, url

    @classmethod
    @asynccontextmanager
    async def up(cls) -> AsyncIterator[Ends]:
        """Start it, and end it with the block."""
        command = ending_with_us([sys.executable, "-m", "harness.ends"])
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        try:
            assert process.stdout is not None
            (port,) = json.loads(await process.stdout.readline())
            yield cls(process, f"http://127.0.0.1:{port}")
        finally:
            process.kill()
            await process.wait()

    async def watch(self, path: str) -> None:
        """Make a pipe and have it watched."""
        os.mkfifo(path)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{path}\n".encode())
        await self._read("watched", 1)

    async def opened(self, count: int) -> float:
        """Wait until so many have been opened, and return when the last was."""
        return await self._read("opened", count)

    async def gone(self, count: int) -> float:
        """Wait until so many are gone, and return when the last one was."""
        return await self._read("gone", count)

    async def _read(self, word: str, count: int) -> float:
        assert self._process.stdout is not None
        last = 0.0
        while count:
            found, *rest = json.loads(await self._process.stdout.readline())
            if found != word:
                raise RuntimeError(f"waiting for {word}, {found} came: {rest}")
            last = max(last, rest[1] if rest else 0.0)
            count -= 1
        return last


if __name__ == "__main__":
    asyncio.run(_serve())
