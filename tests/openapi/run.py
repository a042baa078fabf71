"""Owns the proof that the server has a valid OpenAPI document and keeps it.

The document is held against the specification, then the server against the document, by Schemathesis over a server
of its own. No answer may be a 5xx, and status, headers and body of every answer are as the document says. Streams of
events and turns are left out: they go on (server/tests/sse.rs and server/tests/turns.rs have them). Run it with the
Python that has `flovyn` and requirements.txt.

Usage: run.py [EXAMPLES]      so many generated requests per route and phase (15)
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import flovyn
from openapi_spec_validator import OpenAPIV31SpecValidator

from serving import serving

HERE = Path(__file__).resolve().parent
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)


@flovyn.task
async def look_up(word: str) -> dict[str, str]:
    return {"word": word}


@dataclass
class Turns:
    """What the agent carries over a checkpoint."""

    count: int = 0


@flovyn.agent(state=Turns)
async def talker(ctx: flovyn.AgentContext[Turns], question: str) -> str:
    if ctx.state.count == 0:
        ctx.append_entry("user", question)
        ctx.append_entry("assistant", await look_up(question))
        await ctx.checkpoint(Turns(1))
    await ctx.wait_for_signal("go")
    return question


async def _furnish(url: str) -> dict[str, list[str]]:
    """Leave a run that has ended, one that waits and one that nobody serves; return what parts of paths may name."""
    async with flovyn.connect(url) as client, client.worker(agents=[talker], tasks=[look_up]):
        ended = await client.start(talker, "why", id="ended")
        await ended.signal("go", {})
        await ended.result()
        waiting = await client.start(talker, "when", id="waiting")
        while await waiting.status() != "WAITING":
            await asyncio.sleep(0.02)
        entries, tasks = await ended.messages(), await ended.tasks()
    return {
        "org": ["default"],
        "id": ["ended", "waiting", str(ended.id)],
        "seq": ["1", "2"],
        "entryId": [str(entry.id) for entry in entries],
        "taskId": [str(task.id) for task in tasks],
    }


def _validate(http: str) -> bool:
    """Tell what of the document is not as the specification of OpenAPI asks."""
    with urllib.request.urlopen(f"{http}/openapi.json") as answer:
        document = json.load(answer)
    errors = list(OpenAPIV31SpecValidator(document).iter_errors())
    for error in errors:
        print(f"openapi.json is not valid at /{'/'.join(map(str, error.absolute_path))}: {error.message}", flush=True)
    return not errors


def main(examples: str = "15") -> int:
    """Return the exit status of Schemathesis, or 1 where the document is not valid."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        if not _validate(server.http):
            return 1
        os.environ["FLOVYN_TOKEN"] = server.token
        known = asyncio.run(_furnish(server.grpc))
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.http}/openapi.json"]
        command += ["--header", f"Authorization: Bearer {server.token}", "--checks", ",".join(CHECKS)]
        command += ["--exclude-path-regex", "/stream|/turns$|/ai-sdk$|/ag-ui$", "--phases", "examples,coverage,fuzzing"]
        command += ["--max-examples", examples, "--generation-deterministic", "--request-timeout", "10"]
        environment = os.environ | {
            "OPENAPI_KNOWN": json.dumps(known),
            "SCHEMATHESIS_HOOKS": "hooks",
            "PYTHONPATH": str(HERE),
        }
        return subprocess.run(command, env=environment, cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
