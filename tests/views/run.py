"""Owns the proof that a run has the same names and values wherever it is shown, and that docs/names.md says which.

A run with tasks, entries, a checkpoint and a failure lives on a server. REST, server-sent events, the command line's
`--json`, Python and TypeScript show it, and each is held to the tables of docs/names.md. Needs both packages built.

Usage: run.py
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import flovyn

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
BIN = Path(sys.executable).parent
MOMENTS = ("At", "leaseExpires", "at")


@flovyn.task(retries=1)
async def look_up(ctx: flovyn.TaskContext, word: str) -> str:
    ctx.report_progress(0.5, "half of it")
    return word


@flovyn.task(retries=0, side_effects="at_most_once")
async def fail(word: str) -> str:
    raise LookupError(word)


@dataclass
class Turns:
    """What the agent carries over a checkpoint."""

    my_count: int = 0


@flovyn.agent(state=Turns)
async def talker(ctx: flovyn.AgentContext[Turns], question: str) -> str:
    if ctx.state.my_count == 0:
        ctx.append_entry("user", question, metadata={"my_key": 1})
        ctx.append_entry("assistant", await look_up(question))
        ctx.record_usage("fake/one", 10, 3, cost_usd=0.00007)
        await ctx.checkpoint(Turns(1), metadata={"my_reason": "done"})
    await ctx.wait_for_signal("go")
    return await fail(question)


class Names:
    """What docs/names.md says of one noun."""

    def __init__(self, noun: str, text: str) -> None:
        section = re.split(
            r"^## ", text.split(f"\n## {noun}\n", 1)[1], maxsplit=1, flags=re.MULTILINE
        )[0]
        self.fields = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
        self.notes = {}
        for note in re.split(r"^\* ", section, flags=re.MULTILINE)[1:]:
            head, _, rest = note.partition(":")
            # What is in brackets explains a name.
            rest = re.sub(
                r"\([^)]*\)",
                "",
                re.sub(r"\([^()]*\([^()]*\)[^()]*\)", "", rest.split("\n\n")[0]),
            )
            self.notes[head] = set(re.findall(r"`(\w+)`", rest))

    def at(self, face: str) -> tuple[set[str], set[str]]:
        """Return what this face has to show, and what it may show."""
        own = {note: names for note, names in self.notes.items() if face in note}
        without = {
            name for note, names in own.items() if "without" in note for name in names
        }
        besides = {
            name
            for note, names in own.items()
            if "without" not in note
            for name in names
        }
        return self.fields - without, self.fields - without | besides


def camel(name: str) -> str:
    """Return a name as JSON has it."""
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def plain(value: Any, name: str = "") -> Any:
    """Return a value in the form of REST: names and moments of Python become those of JSON."""
    if isinstance(value, dict):
        if name in ("metadata", "data", "content"):
            return value
        if name == "usage":
            return {model: plain(cost) for model, cost in value.items()}
        return {camel(field): plain(item, field) for field, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and camel(name).endswith(MOMENTS):
        return (
            datetime.fromtimestamp(value, flovyn.events.timezone.utc).isoformat(
                timespec="milliseconds"
            )[:-6]
            + "Z"
        )
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")[:-6] + "Z"
    return str(value) if type(value).__name__ == "UUID" else value


class Faces:
    """What every face shows of one noun, each as a list of things."""

    def __init__(self, noun: str, names: Names) -> None:
        self.noun, self.names, self.wrong = noun, names, list[str]()
        self.first: tuple[str, list[dict[str, Any]]] | None = None

    def show(self, face: str, things: list[dict[str, Any]]) -> None:
        """Hold what a face shows to the names, and to what the first one has shown."""
        must, may = self.names.at(face)
        if not things:
            self.wrong.append(f"{self.noun}: {face} shows none")
        for place, thing in enumerate(things):
            missing, unknown = must - thing.keys(), thing.keys() - may
            if missing or unknown:
                self.wrong.append(
                    f"{self.noun}: {face} lacks {sorted(missing)} and has {sorted(unknown)} beside"
                )
            if self.first is None or place >= len(self.first[1]):
                continue
            other = self.first[1][place]
            for name in sorted(must & thing.keys() & other.keys()):
                if thing[name] != other[name]:
                    self.wrong.append(
                        f"{self.noun} {place}, {name}: {thing[name]!r} of {face}, {other[name]!r} of {self.first[0]}"
                    )
        if self.first is None:
            self.first = (face, things)
        elif len(things) != len(self.first[1]):
            self.wrong.append(
                f"{self.noun}: {len(things)} of {face}, {len(self.first[1])} of {self.first[0]}"
            )


def json_of(*command: str) -> Any:
    """Run a command and return the JSON that it prints."""
    return json.loads(
        subprocess.run(
            command, stdout=subprocess.PIPE, check=True, cwd=REPOSITORY, text=True
        ).stdout
    )


def message(shown: Any) -> dict[str, Any]:
    """Return a message of Python's as it is shown."""
    return plain(
        {
            name: getattr(shown, name)
            for name in (
                "id",
                "parent_id",
                "role",
                "entry_type",
                "content",
                "turn_id",
                "metadata",
                "created_at",
            )
        }
    )


async def live(url: str) -> tuple[str, dict[str, Any]]:
    """Let a run live and fail; return its id, and what Python shows of it."""
    async with flovyn.connect(url) as client:
        async with client.worker(agents=[talker], tasks=[look_up, fail]):
            run = await client.start(
                talker, "why", id="talk", metadata={"my_team": "a"}, priority=2
            )
            await run.signal("go", {})
            try:
                await run.result(timeout=30)
            except flovyn.AgentFailed:
                pass
            else:
                raise AssertionError("the run was to fail")
        events = [event async for event in run.stream()]
        shown = {
            "run": plain(await run.describe()),
            "tasks": plain(await run.tasks()),
            "entries": [message(entry) for entry in await run.entries()],
            "checkpoints": plain(await run.checkpoints()),
            "events": [plain(vars(event)) | {"type": event.type} for event in events],
        }
        return str(run.id), shown


def check(http: str, grpc: str, token: str) -> list[str]:
    """Return what is not shown as it has to be."""
    run, python = asyncio.run(live(grpc))

    def get(path: str, accept: str = "application/json") -> Any:
        request = urllib.request.Request(
            f"{http}/api/orgs/default/agent-executions/{run}{path}"
        )
        request.add_header("Authorization", f"Bearer {token}")
        request.add_header("Accept", accept)
        with urllib.request.urlopen(request) as answer:
            body = answer.read().decode()
            return json.loads(body) if accept.endswith("json") else body

    command = json_of(
        str(BIN / "flovyn"), "runs", "show", grpc, run, "--events", "1000", "--json"
    )
    typescript = json_of("node", str(HERE / "faces.mjs"), grpc, run)
    entries = json_of(str(BIN / "flovyn"), "runs", "entries", grpc, run, "--json")[
        "items"
    ]
    text = (REPOSITORY / "docs" / "names.md").read_text()
    wrong: list[str] = []
    for noun, rest, key in (
        ("A run", [get("")], "run"),
        ("A task", get("/tasks")["tasks"], "tasks"),
        ("An entry", get("/entries")["items"], "entries"),
        ("A checkpoint", get("/checkpoints")["checkpoints"], "checkpoints"),
    ):
        faces = Faces(noun, Names(noun, text))
        faces.show("REST", rest)
        faces.show(
            "--json", {"run": [command], "entries": entries}.get(key) or command[key]
        )
        faces.show("Python", [python[key]] if key == "run" else python[key])
        faces.show("TypeScript", [typescript[key]] if key == "run" else typescript[key])
        wrong += faces.wrong
    failure = Names("A failure", text).fields
    for face, shown in (
        ("REST", get("")),
        ("--json", command),
        ("Python", python["run"]),
        ("TypeScript", typescript["run"]),
    ):
        if shown["failure"].keys() != failure:
            wrong.append(
                f"a failure of {face} has {sorted(shown['failure'])}, and docs/names.md {sorted(failure)}"
            )
        costs = shown["usage"]["fake/one"].keys()
        if costs != Names("Usage", text).fields:
            wrong.append(f"usage of {face} has {sorted(costs)}")
    wrong += check_sent(
        get("/stream/consolidated", "text/event-stream"), command["events"]
    )
    return wrong + check_events(
        command["events"],
        python["events"],
        typescript["events"],
        Names("An event", text),
    )


#: Fields of an event's data that server-sent events call by an older name.
SENT = {
    "task": "taskExecutionId",
    "entry": "entryId",
    "worker": "workerId",
    "parent": "parentId",
    "error_type": "type",
}


def sent(data: Any) -> Any:
    """Return the data of an event as server-sent events have it."""
    if not isinstance(data, dict):
        return data
    theirs = ("content", "metadata")
    return {
        SENT.get(name, camel(name)): item if name in theirs else sent(item)
        for name, item in data.items()
    }


def check_sent(stream: str, command: list[Any]) -> list[str]:
    """Return what server-sent events tell otherwise than the command line."""
    durable = {event["id"]: event for event in command}
    wrong: list[str] = []
    seen: list[str] = []
    for frame in stream.split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in frame.splitlines() if line)
        if fields.get("id") not in durable or fields["event"] in ("retract", "gap"):
            continue
        seen.append(fields["id"])
        view, body = durable[fields["id"]], json.loads(fields["data"])
        op = (
            None
            if view["op"] is None
            else view["op"].removeprefix(view["execution"] + "-")
        )
        must = {
            "agentExecutionId": view["execution"],
            "at": view["at"],
            "op": op,
            "seq": int(view["id"]),
        }
        must |= sent(view["data"])
        wrong += [
            f"event {fields['id']}, {name}: {body.get(name)!r} of SSE, not {value!r}"
            for name, value in must.items()
            if name not in body or body[name] != value
        ]
    return wrong + (
        []
        if seen == list(durable)
        else [f"SSE tells of {seen}, --json of {list(durable)}"]
    )


def check_events(
    command: list[Any], python: list[Any], typescript: list[Any], names: Names
) -> list[str]:
    """Return what is wrong with events: the command line shows views, the two languages objects made of them."""
    faces = Faces("An event", names)
    faces.show("--json", command)
    wrong = faces.wrong
    durable = {event["id"]: event for event in command}
    for face, events in (("Python", python), ("TypeScript", typescript)):
        found = [
            event
            for event in events
            if event["type"] in ("lifecycle", "entry", "usage")
        ]
        if [event["id"] for event in found] != list(durable):
            wrong.append(
                f"events of {face}: {[event['id'] for event in found]}, of --json {list(durable)}"
            )
            continue
        for event in found:
            view = durable[event["id"]]
            kind = event["name"] if event["type"] == "lifecycle" else event["type"]
            pairs = {"kind": (kind, view["kind"]), "at": (event["at"], view["at"])}
            if event["type"] == "lifecycle":
                pairs |= {
                    name: (event[name], view[name])
                    for name in ("segment", "sequence", "data")
                }
            if event["type"] != "usage":
                pairs["op"] = (event["op"] or None, view["op"])
            wrong += [
                f"event {event['id']}, {name}: {one!r} of {face}, {other!r} of --json"
                for name, (one, other) in pairs.items()
                if one != other
            ]
    return wrong


def main() -> int:
    """Return 1 and say why where something is shown by another name or value."""
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        command = [
            BIN / "flovyn",
            "dev",
            "--json",
            "--db",
            f"sqlite:{Path(folder) / 'runs.db'}",
        ]
        command += ["--http-port", "0", "--grpc-port", "0", "--token-file", token]
        os.environ["FLOVYN_HOME"] = folder
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            told = json.loads(server.stdout.readline() if server.stdout else "{}")
            os.environ["FLOVYN_TOKEN"] = token.read_text().strip()
            wrong = check(told["http"], told["grpc"], os.environ["FLOVYN_TOKEN"])
        finally:
            server.terminate()
            server.wait()
    for line in wrong:
        print(line)
    print(
        f"a run is shown alike in REST, --json, Python and TypeScript: {'no' if wrong else 'yes'}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
