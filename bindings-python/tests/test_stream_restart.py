"""A stream of a process that is worker and reader stays exact when the process is killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

SERVES_AND_SHOWS = """
import asyncio, json, os, signal, sys
import flovyn
from flovyn import AgentContext, TaskContext, agent, task

url, after = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None


@task
async def say(ctx: TaskContext) -> str:
    for word in ("half ", "of it") if after is None else ("the whole ", "of it"):
        ctx.stream_token(word)
    if after is None:
        await asyncio.sleep(3600)
    return "the whole of it"


@agent
async def speaker(ctx: AgentContext) -> str:
    ctx.stream_token("now: ")
    said = await say()
    ctx.append_entry("assistant", said)
    return said


async def main() -> None:
    async with flovyn.connect(url) as client, client.worker(agents=[speaker], tasks=[say]):
        handle = await client.start(speaker, id="one")
        async for event in handle.stream(after=after):
            op, text = getattr(event, "op", None), getattr(event, "text", "")
            print(json.dumps({"id": event.id, "type": event.type, "op": op, "text": text}), flush=True)
            if after is None and text == "of it":
                os.kill(os.getpid(), signal.SIGKILL)


asyncio.run(main())
"""


def _life(script: Path, *args: str) -> tuple[int, list[dict[str, str]]]:
    command = [sys.executable, str(script), *args]
    life = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ))
    return life.returncode, [json.loads(line) for line in life.stdout.splitlines()]


def test_rule_17_what_a_killed_process_has_shown_is_not_shown_twice(tmp_path: Path) -> None:
    script = tmp_path / "serves_and_shows.py"
    script.write_text(SERVES_AND_SHOWS)
    url = f"sqlite:{tmp_path / 'agents.db'}"
    code, first = _life(script, url)
    assert code == -signal.SIGKILL
    code, second = _life(script, url, first[-1]["id"])
    assert code == 0
    shown: dict[str, str] = {}
    for event in (*first, *second):
        match event["type"]:
            case "token":
                shown[event["op"]] = shown.get(event["op"], "") + event["text"]
            case "retract":
                shown.pop(event["op"], None)
            case "gap":
                shown.clear()
            case _:
                pass
    # The agent's own words belong to the op that it called last, or calls first.
    assert list(shown.values()) == ["now: the whole of it"]
