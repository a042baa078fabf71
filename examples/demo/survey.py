"""The agent of the demo: surveys a source tree, file by file, and writes a report when a person agrees.

Every file is listed, read and analysed in durable steps; what was learned goes into the conversation; each batch of files
ends with a checkpoint. Kill this process anywhere and run it again: it goes on where it was.

Usage: survey.py DATABASE TREE JOURNAL
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import flovyn
from flovyn import AgentContext, agent, task

#: What ran, written by the steps themselves: the demo counts these lines to show that nothing ran twice.
SIDE_LOG = Path(os.environ.get("SURVEY_LOG", "survey.log"))
BATCH = 8
KEYWORD = re.compile(r"\b(?:fn|def|class|struct|enum|trait|impl|async|await)\b")


@dataclass
class Survey:
    """What a checkpoint saves: constant in size, however many files there are."""

    files: list[str] = field(default_factory=list)
    done: int = 0
    lines: int = 0
    words: int = 0
    approved: bool = False


@dataclass
class Finding:
    """What is known of one file."""

    path: str
    lines: int
    words: int
    definitions: int


def ran(step: str) -> None:
    """Note that a step really ran, in one write that a kill cannot tear."""
    with SIDE_LOG.open("a") as log:
        log.write(f"{os.getpid()} {step}\n")


@task
def list_files(root: str) -> list[str]:
    """List the source files of a tree."""
    ran("list")
    endings = {".rs", ".py", ".md", ".toml"}
    skip = {"target", "node_modules", ".venv", ".git", ".work", "dist"}
    paths = (path for path in Path(root).rglob("*") if path.suffix in endings and not skip & set(path.parts))
    return sorted(str(path.relative_to(root)) for path in paths)


@task
def read_file(root: str, path: str) -> str:
    """Read one file."""
    ran(f"read {path}")
    return (Path(root) / path).read_text(errors="replace")


@task
async def analyse(path: str, text: str) -> Finding:
    """Count what a reader would: lines, words, definitions. Takes a moment, as a model would."""
    await asyncio.sleep(0.002)
    ran(f"analyse {path}")
    return Finding(path, text.count("\n"), len(text.split()), len(KEYWORD.findall(text)))


@task
def write_report(target: str, text: str) -> str:
    """Write the report."""
    ran("report")
    Path(target).write_text(text)
    return target


@agent(state=Survey)
async def surveyor(ctx: AgentContext[Survey], input: dict[str, str]) -> dict[str, object]:
    """Survey a tree and report, one checkpoint per batch of files."""
    state, root = ctx.state, input["root"]
    if not state.files:
        ctx.append_entry("user", f"Survey {Path(root).name} and report.")
        state.files = await list_files(root)
        await ctx.checkpoint(state)
    while state.done < len(state.files):
        for path in state.files[state.done : state.done + BATCH]:
            finding = await analyse(path, await read_file(root, path))
            ctx.append_entry("assistant", {"file": path, "lines": finding.lines, "definitions": finding.definitions})
            state.lines += finding.lines
            state.words += finding.words
            state.done += 1
            ctx.stream_data({"done": state.done, "of": len(state.files), "file": path})
        await ctx.checkpoint(state)
    if not state.approved:
        go = await ctx.wait_for_signal("go-ahead")
        ctx.append_entry("user", go)
        state.approved = True
        await ctx.checkpoint(state)
    summary = {"files": len(state.files), "lines": state.lines, "words": state.words}
    report = await write_report(input["report"], "# Survey\n\n" + json.dumps(summary, indent=2) + "\n")
    ctx.append_entry("assistant", {"report": report, **summary})
    return summary


async def main(database: str, root: str, report: str) -> None:
    """Start the survey, or go on with it, showing each file as it is done."""
    url = f"sqlite:{database}"
    tasks = [list_files, read_file, analyse, write_report]
    async with flovyn.connect(url) as client, client.worker(agents=[surveyor], tasks=tasks):
        handle = await client.start(surveyor, {"root": root, "report": report}, id="survey")
        async for event in handle.stream():
            if event.type == "data":
                print(f"{time.time():.6f} done {event.data['done']}/{event.data['of']} {event.data['file']}", flush=True)
            elif event.type == "lifecycle":
                print(f"{time.time():.6f} {event.name}", flush=True)
        print(f"{time.time():.6f} result {json.dumps(await handle.result())}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
