"""The toolkit from Python: the built-in agent with functions as tools, model calls and tools as steps, killed hard."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import enum
import functools
import json
import random
import signal
import struct
import subprocess
import sys
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, TypedDict, cast

import flovyn
import pydantic
import pytest
from conftest import served
from flovyn import InvalidArgument, OutsideAgent
from flovyn.testing import check, cut, fake_llm, malformed, stall, status, tool_call, turn
from flovyn.toolkit import (
    ApprovalPolicy,
    ApprovalRequest,
    Budget,
    Compaction,
    ModelError,
    Provider,
    ResultLimits,
    Rule,
    RunInput,
    RunOutcome,
    TodoStep,
    Toolkit,
    llm,
    react_agent,
    tool,
    tools,
)
from flovyn.toolkit.schema import schema_of

VICTIM = Path(__file__).parent / "toolkit_victim.py"
PATIENCE_S = 30.0


@flovyn.task
async def search(query: str = "anything") -> str:
    """Search the web.

    Args:
        query: What to look for.
    """
    return f"three pages about {query}"


@flovyn.task
def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@flovyn.task(side_effects="at_most_once")
async def send(ctx: flovyn.TaskContext, to: str, text: str = "hello") -> None:
    """Send a mail."""
    SENT.append((to, text, str(ctx.task_id)))


SENT: list[tuple[str, str, str]] = []

# Tools that are said to change nothing, so that nobody is asked.
SEARCH, ADD = tool(search, effect="read"), tool(add, effect="read")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FLOVYN_HOME", str(tmp_path / "home"))
    SENT.clear()
    yield


def told(call: Any) -> list[str]:
    """Return what the model was told of its tool calls."""
    found: list[str] = []
    for message in call.body["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else []:
            if part["type"] == "tool_result":
                content = part["content"]
                found += [content] if isinstance(content, str) else [one["text"] for one in content]
    return found


# ── the built-in agent ──────────────────────────────────────────────────────────────────────────────────────────────


def test_functions_are_tools(url: str, tmp_path: Path) -> None:
    (tmp_path / "otters.md").write_text("They hold hands.\n")
    turns = [
        tool_call("search", {"query": "otters"}).and_call("search", {}),
        tool_call("add", {"a": 1, "b": 2}).and_call("send", {"to": "ann"}),
        tool_call("read", {"path": "otters.md"}),
        turn("Otters hold hands."),
    ]
    with fake_llm(turns) as fake:
        assistant = react_agent(
            "assistant",
            model=fake.model,
            tools=[search, add, send, "read"],
            system_prompt="Be brief.",
            approvals="allow",
            working_directory=tmp_path,
        )
        outcome = flovyn.run(assistant, "What do otters do?", id="otters", url=url, timeout=PATIENCE_S)
        assert outcome == dataclasses.replace(outcome, text="Otters hold hands.", stop_reason="end", turns=4)
        assert outcome.model == fake.model and outcome.usage[fake.model].calls == 4
        found = told(fake.calls[-1])
        assert found[:4] == ["three pages about otters", "three pages about anything", '{"sum":3}', "Done."]
        assert "They hold hands." in found[4]
        assert [(to, text) for to, text, _ in SENT] == [("ann", "hello")]
        first = fake.calls[0].body
        assert first["system"][0]["text"] == "Be brief."
        shown = {one["name"]: one for one in first["tools"]}
        assert shown["search"]["description"] == "Search the web."
        assert shown["search"]["input_schema"] == {
            "type": "object",
            "properties": {"query": {"type": "string", "default": "anything", "description": "What to look for."}},
            "additionalProperties": False,
        }
        assert fake.paid == 4 and all(call.is_paid for call in fake.calls)


def test_an_ended_run_gives_its_outcome_again(file_url: str) -> None:
    with fake_llm([turn("Once.")]) as fake:
        assistant = react_agent(model=fake.model)
        outcomes = [flovyn.run(assistant, "Say it.", id="once", url=file_url) for _ in range(2)]
        assert outcomes[0] == outcomes[1] and isinstance(outcomes[1], RunOutcome)
        assert fake.paid == 1


async def test_a_worker_serves_assistants_beside_functions(url: str, tmp_path: Path) -> None:
    with fake_llm([turn("one").when(model="a"), turn("two").when(model="b")]):
        one, two = react_agent("one", model="fake/a"), react_agent("two", model="fake/b", tools=["grep"])

        @flovyn.agent
        async def mine(ctx: flovyn.AgentContext, query: str) -> str:
            return await search(query)

        async with flovyn.connect(url) as client, client.worker(agents=[one, two, mine]):
            runs = [await client.start(one, "?"), await client.start(two, RunInput("?")), await client.start(mine, "x")]
            ends = [await run.result(timeout=PATIENCE_S) for run in runs]
    assert [getattr(end, "text", end) for end in ends] == ["one", "two", "three pages about x"]


def test_a_run_says_more_than_a_prompt(url: str) -> None:
    with fake_llm([tool_call("search"), tool_call("add", {"a": 1, "b": 1}), turn("Done.")]) as fake:
        assistant = react_agent(model="fake/usual", tools=[SEARCH, ADD], max_turns=1, max_tokens=99)
        assert flovyn.run(assistant, "Go.", id="usual", url=url).stop_reason == "max_turns"
        given = RunInput("Go.", model="fake/better", max_turns=9, budget=Budget(max_calls=2))
        outcome = flovyn.run(assistant, given, id="better", url=url)
        assert (outcome.stop_reason, outcome.turns, outcome.model) == ("budget", 2, "fake/better")
        assert {call.body["max_tokens"] for call in fake.calls} == {99}
        narrow = RunInput("Go.", tools=["add"])
        flovyn.run(assistant, narrow, id="narrow", url=url)
        assert [one["name"] for one in fake.calls[-1].body["tools"]] == ["add"]


async def test_tokens_come_while_the_model_speaks(url: str) -> None:
    with fake_llm([turn("All is well with otters.").slowly(first_ms=30, chunk_ms=2, chunk_chars=4)]) as fake:
        assistant = react_agent(model=fake.model)
        pieces: list[str] = []
        async for event in flovyn.stream(assistant, "How are they?", url=url, timeout=PATIENCE_S):
            if isinstance(event, flovyn.Token):
                pieces.append(event.text)
        assert "".join(pieces) == "All is well with otters." and len(pieces) > 3


def test_wrong_arguments_go_back_to_the_model(url: str) -> None:
    with fake_llm([tool_call("add", {"a": "one", "c": 2}), tool_call("ad"), turn("I give up.")]) as fake:
        assistant = react_agent(model=fake.model, tools=[ADD])
        assert flovyn.run(assistant, "Add.", url=url, timeout=PATIENCE_S).text == "I give up."
        found = told(fake.calls[-1])
        assert "The arguments of add are wrong" in found[0] and '"one" is not of type "integer"' in found[0]
        assert "There is no tool" in found[1]


def test_a_task_that_fails_is_told(url: str) -> None:
    @flovyn.task(retries=1)
    async def broken() -> str:
        """Break."""
        attempts.append(1)
        raise ValueError("the disk is full")

    attempts: list[int] = []
    with fake_llm([tool_call("broken"), turn("It is broken.")]) as fake:
        assistant = react_agent(model=fake.model, tools=[tool(broken, effect="read")])
        assert flovyn.run(assistant, "Try.", url=url, timeout=PATIENCE_S).text == "It is broken."
        assert told(fake.calls[-1]) == ["ValueError: the disk is full"]
    assert len(attempts) == 2, "the task's own retries hold"


async def test_a_tool_of_another_queue_runs_there(url: str) -> None:
    @flovyn.task(queue="gpu")
    async def render(scene: str) -> str:
        """Render a scene."""
        return f"rendered {scene}"

    with fake_llm([tool_call("render", {"scene": "a lake"}), turn("Done.")]) as fake:
        assistant = react_agent(model=fake.model, tools=[tool(render, effect="read")])
        async with flovyn.connect(url) as client, client.worker(agents=[assistant]):
            run = await client.start(assistant, "Render a lake.")
            with pytest.raises(flovyn.Timeout):
                await run.result(timeout=0.3)
            async with client.worker(tasks=[render], queue="gpu"):
                assert (await run.result(timeout=PATIENCE_S)).text == "Done."
        assert told(fake.calls[-1]) == ["rendered a lake"]


@pytest.mark.parametrize("verdict", ["approved", "denied", "changed"])
async def test_a_person_decides(url: str, verdict: str) -> None:
    with fake_llm([tool_call("send", {"to": "bob"}), turn("I have tried.")]) as fake:
        assistant = react_agent(model=fake.model, tools=[send])
        async with flovyn.connect(url) as client, client.worker(agents=[assistant]):
            run = await client.start(assistant, "Write to Bob.", id=verdict)
            async for event in run.stream():
                request = ApprovalRequest.of(event)
                if request is None:
                    continue
                assert (request.name, request.arguments, request.effect) == ("send", {"to": "bob"}, "write")
                assert not SENT
                match verdict:
                    case "approved":
                        await request.approve(run)
                    case "changed":
                        await request.approve(run, arguments={"to": "carol"}, scope="run")
                    case _:
                        await request.deny(run, "He is away.")
            assert (await run.result(timeout=PATIENCE_S)).text == "I have tried."
        assert [to for to, _, _ in SENT] == {"approved": ["bob"], "changed": ["carol"], "denied": []}[verdict]
        expected = {"approved": "Done.", "changed": 'this call: {"to":"carol"}]', "denied": "He is away."}[verdict]
        assert expected in told(fake.calls[-1])[0]


def counted(fn: Callable[[str], str]) -> Callable[[str], str]:
    """Wrap a function as decorators do."""

    @functools.wraps(fn)
    def wrapped(path: str = "notes") -> str:
        return fn(path)

    return wrapped


def erase(path: str = "notes") -> str:
    """Erase a file."""
    SENT.append((path, "", ""))
    return "erased"


@pytest.mark.parametrize(
    "undeclared",
    [
        erase,
        counted(erase),
        flovyn.task(erase),
        flovyn.task(side_effects="idempotent", retries=5)(erase),
        flovyn.task(side_effects="at_most_once")(erase),
        tool(erase),
        tool(name="erase", description="Erase.")(erase),
    ],
)
async def test_a_person_is_asked_where_no_effect_is_declared(url: str, undeclared: Any) -> None:
    with fake_llm([tool_call("erase"), turn("I did not.")]) as fake:
        assistant = react_agent(model=fake.model, tools=[undeclared])
        async with flovyn.connect(url) as client, client.worker(agents=[assistant]):
            run = await client.start(assistant, "Erase the notes.")
            async for event in run.stream():
                request = ApprovalRequest.of(event)
                if request is not None:
                    assert (request.name, request.effect) == ("erase", "write")
                    await request.deny(run)
            assert (await run.result(timeout=PATIENCE_S)).text == "I did not."
        assert not SENT


def test_the_declaration_decides_the_effect() -> None:
    assert tool(search).effect == "write" and tool(send).effect == "write"
    assert tool(search, effect="read").effect == "read" and tool(send, effect="read").effect == "read"

    @tool(effect="read")
    def count(x: int) -> int:
        """Count."""
        return x

    @tool
    def reset(x: int) -> int:
        """Reset."""
        return x

    assert (count.name, count.effect, reset.effect) == ("count", "read", "write")


def test_a_policy_denies(url: str) -> None:
    policy = ApprovalPolicy([Rule("se*", "deny")], write="allow")
    with fake_llm([tool_call("search", {"query": "x"}), turn("Well.")]) as fake:
        assistant = react_agent(model=fake.model, tools=[search], approvals=policy)
        flovyn.run(assistant, "Search.", url=url, timeout=PATIENCE_S)
        assert "does not allow this call" in told(fake.calls[-1])[0]


async def test_a_chat_goes_on(url: str) -> None:
    with fake_llm([turn("Hello."), turn("Again.")]) as fake:
        assistant = react_agent(model=fake.model, mode="chat")
        async with flovyn.connect(url) as client, client.worker(agents=[assistant]):
            run = await client.start(assistant, "Hi.", id="chat")
            await run.signal("userMessage", {"text": "And again?"}, delivery="next_turn")
            answers: list[str] = []
            async for event in run.stream():
                if isinstance(event, flovyn.Entry) and event.role == "assistant" and event.entry_type == "message":
                    answers.append(event.content["parts"][0]["text"])
                if len(answers) == 2:
                    break
            await run.cancel()
        assert answers == ["Hello.", "Again."] and fake.paid == 2


def test_faults_of_a_provider_are_survived(url: str) -> None:
    faults = [status(429, retry_after=0.01), status(529), cut(after_events=2), malformed(after_events=1)]
    with fake_llm([turn("At last.").failing(*faults)]) as fake:
        assistant = react_agent(model=fake.model)
        assert flovyn.run(assistant, "Well?", url=url, timeout=60).text == "At last."
        assert [call.outcome for call in fake.calls] == ["faulted"] * 4 + ["completed"]
        assert fake.paid == 1


# ── images and bytes ────────────────────────────────────────────────────────────────────────────────────────────────


def png(width: int, height: int) -> bytes:
    """Return an image of noise, which no compression makes small."""
    rows = b"".join(b"\0" + random.Random(row).randbytes(3 * width) for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    framed = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


PNG, LARGE_PNG = png(4, 3), png(200, 200)
BASE64 = base64.b64encode(PNG).decode()
DATA_URL = f"data:image/png;base64,{BASE64}"
PARTS: dict[str, dict[str, Any]] = {
    "ours": {"type": "media", "mime": "image/png", "source": {"base64": BASE64}},
    # Bytes inside a value are base64 in JSON.
    "ours, of bytes": {"type": "media", "mime": "image/png", "source": {"base64": PNG}},
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}},
    "anthropic, of bytes": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    "openai chat": {"type": "image_url", "image_url": {"url": DATA_URL}},
    "openai responses": {"type": "input_image", "image_url": DATA_URL},
    "mcp": {"type": "image", "data": BASE64, "mimeType": "image/png"},
}


def images(sent: Any) -> list[bytes]:
    """Return the images in a request, as the three wires write them, in their order."""
    if isinstance(sent, list):
        return [image for one in cast("list[Any]", sent) for image in images(one)]
    match sent:
        case {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": str(data)}}:
            return [base64.b64decode(data, validate=True)]
        case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "input_image", "image_url": str(url)}:
            return [base64.b64decode(url.removeprefix("data:image/png;base64,"), validate=True)]
        case dict():
            return images(list(cast("dict[str, Any]", sent).values()))
        case _:
            return []


def seeing(fake: Any) -> dict[str, Provider]:
    """Return a provider for each wire, of those whose models are known to take images."""
    return {
        "anthropic": Provider(base_url=fake.url, key="none"),
        "local": Provider(base_url=fake.openai_url),
        "openai": Provider(base_url=fake.openai_url, key="none"),
    }


RETURNED: dict[str, tuple[Any, list[bytes], str]] = {
    "image": (PNG, [PNG], ""),
    "large image": (LARGE_PNG, [LARGE_PNG], ""),
    "blob": (flovyn.Blob(PNG), [PNG], ""),
    "text": ("Otters hold hands. 🦦".encode(), [], "Otters hold hands. 🦦"),
    "large text": (b"They float. " * 6_000, [], "They float. They float. "),
    "binary": (b"\x7fELF\0\0\xff", [], "[7 bytes of binary data (application/x-elf): not shown."),
    "nothing": (b"", [], ""),
    "list": ([{"type": "text", "text": "Two of them:"}, PARTS["ours"], PARTS["anthropic"]], [PNG, PNG], "Two of them:"),
    "outcome": ({"content": [PARTS["mcp"]], "isError": False}, [PNG], ""),
    "data": ([{"type": "image", "title": "Otters"}], [], '[{"title":"Otters","type":"image"}]'),
    **{name: (part, [PNG], "") for name, part in PARTS.items()},
}


@flovyn.task
async def paint(what: str) -> Any:
    """Paint something."""
    return RETURNED[what][0]


def sketch() -> bytearray:
    """Sketch something."""
    return bytearray(PNG)


@pytest.mark.parametrize("provider", ["anthropic", "local", "openai"])
def test_images_and_bytes_of_tools_reach_the_model(url: str, provider: str) -> None:
    turns = [tool_call("paint", {"what": name}) for name in RETURNED]
    with fake_llm([*turns, tool_call("sketch"), turn("Seen.")]) as fake:
        kit = [tool(paint, effect="read"), tool(sketch, effect="read")]
        assistant = react_agent(model=f"{provider}/any", tools=kit, providers=seeing(fake))
        outcome = flovyn.run(assistant, "Paint.", url=url, timeout=PATIENCE_S)
        assert (outcome.text, outcome.turns) == ("Seen.", len(RETURNED) + 2)
        assert {call.outcome for call in fake.calls} == {"completed"}
        sent = fake.calls[-1].body
    expected = [image for _, images, _ in RETURNED.values() for image in images]
    assert images(sent) == [*expected, PNG]
    whole = json.dumps(sent, ensure_ascii=False)
    for _, _, text in RETURNED.values():
        assert json.dumps(text, ensure_ascii=False)[1:-1] in whole
    # Not as a text either, which would cost a window and show nothing.
    assert whole.count(BASE64) == images(sent).count(PNG)


@pytest.mark.parametrize("shape", PARTS)
def test_a_prompt_has_images_of_every_shape(url: str, shape: str) -> None:
    with fake_llm([turn("I see.").times(3)]) as fake:
        # What is read in one shape is written in that of the wire.
        for provider in ("anthropic", "local", "openai") if shape in ("anthropic", "openai chat") else ("anthropic",):
            assistant = react_agent(model=f"{provider}/any", providers=seeing(fake))
            prompt = RunInput("Look.", parts=[PARTS[shape]])
            assert flovyn.run(assistant, prompt, url=url, timeout=PATIENCE_S).text == "I see."
            assert images(fake.calls[-1].body) == [PNG] and "Look." in json.dumps(fake.calls[-1].body)


def test_images_are_shown_to_models_that_their_provider_says_take_them(url: str) -> None:
    with fake_llm([turn("I see.").times(3)]) as fake:

        def look(model: str, **providers: Provider) -> Any:
            assistant = react_agent(model=model, providers=providers)
            flovyn.run(assistant, RunInput("Look.", parts=[PARTS["mcp"]]), url=url, timeout=PATIENCE_S)
            return fake.calls[-1].body

        unseen = look("mine/any", mine=Provider(api="openai-chat", base_url=fake.openai_url))
        assert images(unseen) == [] and "left out: this model takes text only" in json.dumps(unseen)
        seen = look("mine/any", mine=Provider(api="openai-chat", base_url=fake.openai_url, images=True))
        assert images(seen) == [PNG]
        assert images(look("fake/any")) == [PNG]


def test_a_part_that_nobody_can_read_is_refused_in_words(url: str) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"type": "video", "url": "https://a"}, 'no part of the type "video"'),
        ({"type": "image", "data": b"BM12345678", "mimeType": "image/png"}, "its bytes are image/bmp"),
        ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "use http:, https: or data:"),
    ]
    with fake_llm([turn("Hm.")]) as fake:
        assistant = react_agent(model="anthropic/any", providers=seeing(fake))
        for part, said in wrong:
            with pytest.raises(flovyn.FlovynError, match=r"userParts\[1\]") as refused:
                flovyn.run(assistant, RunInput("Look.", parts=[PARTS["mcp"], part]), url=url, timeout=PATIENCE_S)
            assert said in str(refused.value)
        assert fake.paid == 0


async def test_a_message_of_a_chat_has_images_of_every_shape(url: str) -> None:
    with fake_llm([turn("Hello."), turn("I see.")]) as fake:
        assistant = react_agent(model="anthropic/any", mode="chat", providers=seeing(fake))
        async with flovyn.connect(url) as client, client.worker(agents=[assistant]):
            run = await client.start(assistant, "Hi.")
            said = {"text": "And these?", "parts": [*PARTS.values(), {"type": "video"}]}
            await run.signal("userMessage", said, delivery="next_turn")
            answers = 0
            async for event in run.stream():
                answers += (
                    isinstance(event, flovyn.Entry) and event.role == "assistant" and event.entry_type == "message"
                )
                if answers == 2:
                    break
            await run.cancel()
        sent = fake.calls[-1].body
        assert images(sent) == [PNG] * len(PARTS)
        # Nobody waits for an answer to a signal, so the model is told.
        assert "no part of the type" in json.dumps(sent) and "And these?" in json.dumps(sent)


@flovyn.agent
async def viewer(ctx: flovyn.AgentContext, model: str) -> str:
    ctx.append_entry("user", {"role": "user", "parts": [{"type": "text", "text": "What is in it?"}, PARTS["ours"]]})
    asked = await llm.generate(ctx.context_ref(), model=model, tools=[paint])
    ctx.append_entry("assistant", asked.message)
    for call in asked.tool_calls:
        ctx.append_entry("tool_result", llm.tool_result(call, await tools.read("large.png")))
    said: dict[str, Any] = {"role": "user", "parts": [PARTS["ours, of bytes"]]}
    return (await llm.generate(ctx.context_ref(), model=model, messages=[said])).text


@pytest.mark.parametrize("provider", ["anthropic", "local", "openai"])
def test_model_calls_as_steps_are_shown_images(url: str, tmp_path: Path, provider: str) -> None:
    (tmp_path / "large.png").write_bytes(LARGE_PNG)
    with fake_llm([tool_call("paint", {"what": "image"}), turn("Noise.")]) as fake:
        kit = Toolkit(providers=seeing(fake), working_directory=tmp_path)
        assert flovyn.run(viewer, f"{provider}/any", url=url, toolkit=kit, timeout=PATIENCE_S) == "Noise."
        assert [images(call.body) for call in fake.calls] == [[PNG], [PNG, LARGE_PNG, PNG]]


# ── killed ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("moment", ["in the tool", "in the model call"])
def test_after_kill_9_each_model_call_is_paid_once(file_url: str, tmp_path: Path, moment: str) -> None:
    slow = turn("All done.")
    if moment == "in the model call":
        slow = slow.failing(stall(after_events=2))
    log = tmp_path / "log"
    with fake_llm([tool_call("note", {"text": "one"}), tool_call("note", {"text": "two"}), slow]) as fake:
        command = [sys.executable, str(VICTIM), file_url, fake.url, str(log)]
        marker = "two started" if moment == "in the tool" else ""
        victim = subprocess.Popen([*command, marker], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: victim.poll() is not None or (not marker and len(fake.calls) == 3), "the moment", victim)
        victim.kill()
        victim.communicate()
        assert victim.returncode == -signal.SIGKILL
        done = subprocess.run([*command, "-"], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["All", "done.", "3"]
        assert fake.paid == 3, [call.outcome for call in fake.calls]
    notes = log.read_text().splitlines()
    # The note that its process died in is taken again; the finished one is not.
    assert notes.count("one") == 1 and notes.count("two") == 1


def wait_until(is_so: Callable[[], bool], what: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"{what} did not come: {process.communicate()}")
        time.sleep(0.01)


async def test_through_a_server(tmp_path: Path) -> None:
    with served(tmp_path) as server, fake_llm([tool_call("search", {"query": "eels"}), turn("Eels.")]) as fake:
        assistant = react_agent("eel-finder", model=fake.model, tools=[SEARCH, "read"])
        async with flovyn.connect(server["grpc"]) as client, client.worker(agents=[assistant]):
            run = await client.start(assistant, "What swims?", id="eels")
            assert (await run.result(timeout=PATIENCE_S)).text == "Eels."
        assert told(fake.calls[-1]) == ["three pages about eels"] and fake.paid == 2


# ── steps of one's own agents ───────────────────────────────────────────────────────────────────────────────────────


@flovyn.agent
async def talker(ctx: flovyn.AgentContext, model: str) -> dict[str, Any]:
    ctx.append_entry("user", "What do otters eat?")
    asked = await llm.stream(ctx.context_ref(), model=model, system="Be brief.", tools=[search])
    ctx.append_entry("assistant", asked.message)
    for call in asked.tool_calls:
        found = await search(**call.arguments)
        ctx.append_entry("tool_result", llm.tool_result(call, found))
    reply = await llm.generate(ctx.context_ref(), model=model)
    ctx.append_entry("assistant", reply.message)
    return {"text": reply.text, "stop": reply.stop_reason, "output": reply.usage.output}


def test_models_are_asked_in_steps(url: str) -> None:
    with fake_llm([tool_call("search", {"query": "otter food"}), turn("Fish.", usage={"output": 7})]) as fake:
        found = flovyn.run(talker, fake.model, id="talk", url=url, timeout=PATIENCE_S)
        assert found == {"text": "Fish.", "stop": "end", "output": 7}
        assert told(fake.calls[-1]) == ["three pages about otter food"]
        assert fake.calls[0].body["system"][0]["text"] == "Be brief."
        assert flovyn.run(talker, fake.model, id="talk", url=url) == found or url.startswith("memory:")


def test_an_agent_that_asks_models_survives_crashes_everywhere() -> None:
    with fake_llm([tool_call("search", {"query": "otter food"}), turn("Fish.")]) as fake:
        report = check(talker, fake.model)
        assert report.result["text"] == "Fish."
        assert fake.paid >= 2


async def test_only_streamed_answers_are_shown(url: str) -> None:
    @flovyn.agent
    async def both(ctx: flovyn.AgentContext) -> list[str]:
        hidden = await llm.generate("One?", model="fake/m")
        shown = await llm.stream("Two?", model="fake/m")
        return [hidden.text, shown.text]

    turns = [turn("hidden").when(last_user_contains="One"), turn("shown").when(last_user_contains="Two")]
    with fake_llm(turns):
        events = [event async for event in flovyn.stream(both, url=url, timeout=PATIENCE_S)]
    assert "".join(event.text for event in events if isinstance(event, flovyn.Token)) == "shown"


async def test_outside_an_agent_a_model_is_just_asked() -> None:
    with fake_llm([turn("Yes.", thinking="Hm.")], otherwise=turn("No.")) as fake:
        reply = await llm.generate("Are otters nice?", model=fake.model, thinking="low")
        assert (reply.text, reply.thinking, reply.stop_reason) == ("Yes.", "Hm.", "end")
        more = [{"role": "assistant", "content": "Yes."}, "And eels?"]
        assert (await llm.generate("Are otters nice?", messages=more, model=fake.model)).text == "No."
        with pytest.raises(OutsideAgent, match="conversation of a run"):
            llm.generate({"execution": "x", "thread": "", "leaf": None}, model=fake.model)
        with pytest.raises(OutsideAgent, match=r"use llm\.generate"):
            llm.stream("Well?", model=fake.model)
        with pytest.raises(OutsideAgent, match="inside an agent"):
            tools.read("x")
        with pytest.raises(InvalidArgument, match="nothing to answer"):
            llm.generate(model=fake.model)
        with pytest.raises(ModelError, match="there is no provider") as wrong:
            await llm.generate("?", model="nobody/m")
        assert wrong.value.type == "unknownModel" and wrong.value.code == "TaskFailed"


def test_a_model_that_cannot_be_asked_fails_the_step(url: str) -> None:
    @flovyn.agent
    async def careful(ctx: flovyn.AgentContext) -> str:
        try:
            return (await llm.generate("?", model="mine/m")).text
        except ModelError as error:
            return f"{error.type}: {error.status}"

    with fake_llm([turn("never").failing(status(401).times(9))]) as fake:
        kit = Toolkit(providers={"mine": Provider("anthropic-messages", fake.url, key="secret-key")})
        assert "secret-key" not in repr(kit)
        assert flovyn.run(careful, url=url, toolkit=kit, timeout=PATIENCE_S) == "unauthorized: 401"


@flovyn.agent
async def keeper(ctx: flovyn.AgentContext, name: str) -> list[Any]:
    written = await tools.write(name, "one\ntwo\n")
    found = await tools.grep("tw.")
    missing = await tools.read("nothing.md")
    return [written.is_error, found.text, missing.is_error, (missing.details or {}).get("error")]


def test_host_tools_are_steps(url: str, tmp_path: Path) -> None:
    kit = Toolkit(working_directory=tmp_path / "work")
    (tmp_path / "work").mkdir()
    wrote, found, failed, why = flovyn.run(keeper, "a.md", id="keep", url=url, toolkit=kit, timeout=PATIENCE_S)
    assert not wrote and "a.md" in found and failed and why == "not_found"
    assert (tmp_path / "work" / "a.md").read_text() == "one\ntwo\n"


def test_tools_have_more_directories_and_variables(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    more = tmp_path / "more"
    more.mkdir()
    monkeypatch.setenv("OTTERS", "two")

    @flovyn.agent
    async def visitor(ctx: flovyn.AgentContext, folder: str) -> str:
        await tools.write(f"{folder}/a.md", "one\n")
        return (await tools.bash(f"cat {folder}/a.md; echo $OTTERS")).text

    kit = Toolkit(working_directory=work, add_dirs=[more], variables=["OTTERS"], sandbox=False, caches="private")
    assert flovyn.run(visitor, str(more), url=url, toolkit=kit, timeout=PATIENCE_S) == "one\ntwo\n"


def test_an_assistants_tools_have_them_too(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, more = tmp_path / "work", tmp_path / "more"
    work.mkdir()
    more.mkdir()
    monkeypatch.setenv("OTTERS", "two")
    written = tool_call("write", {"path": f"{more}/a.md", "content": "one\n"})
    turns = [written, tool_call("bash", {"command": f"cat {more}/a.md; echo $OTTERS"}), turn("Done.")]
    with fake_llm(turns) as fake:
        assistant = react_agent(
            model=fake.model,
            tools=["write", "bash"],
            approvals="allow",
            working_directory=work,
            add_dirs=[more],
            variables=["OTTERS"],
            caches="private",
            sandbox=False,
        )
        assert flovyn.run(assistant, "Work.", url=url, timeout=PATIENCE_S).text == "Done."
        assert told(fake.calls[-1])[1] == "one\ntwo\n"


def test_an_assistant_says_how_much_of_results_its_model_is_shown(url: str) -> None:
    def count() -> str:
        """Count."""
        return "".join(f"{number}\n" for number in range(100))

    def assistant(model: str) -> Any:
        limits, room = ResultLimits(max_lines=10), Compaction(keep_recent_tokens=5_000)
        return react_agent(model=model, tools=[tool(count, effect="read")], results=limits, compaction=room)

    turns = [tool_call("count"), turn("Many.")]
    with fake_llm(turns) as fake:
        flovyn.run(assistant(fake.model), "Count.", url=url, timeout=PATIENCE_S)
        assert "Lines 3 to 92 are left out" in told(fake.calls[-1])[0]
    with fake_llm(turns) as fake:
        more = RunInput("Count.", results=ResultLimits(max_lines=1_000))
        flovyn.run(assistant(fake.model), more, url=url, timeout=PATIENCE_S)
        assert "left out" not in told(fake.calls[-1])[0]


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<p>Otters hold <b>hands</b>.</p>")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@flovyn.agent
async def reader(ctx: flovyn.AgentContext, page: str) -> list[Any]:
    listed = await tools.todo(["read the page", TodoStep("think", "in_progress")])
    found = await tools.fetch(page)
    raw = await tools.fetch(page, raw=True)
    return [listed.details["todos"], listed.text, found.text, "<b>" in raw.text]


def test_steps_are_listed_and_pages_read(url: str) -> None:
    kit = Toolkit(fetch_private_hosts=["127.0.0.1"])
    with HTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = f"http://127.0.0.1:{server.server_port}/"
        todos, text, found, raw = flovyn.run(reader, page, url=url, toolkit=kit, timeout=PATIENCE_S)
        server.shutdown()
    assert [(step["content"], step["status"]) for step in todos] == [
        ("read the page", "pending"),
        ("think", "in_progress"),
    ]
    assert text == "[ ] read the page\n[>] think\n"
    assert "Otters hold" in found and "<b>" not in found and raw


MCP_SERVER = r"""
import json, sys
def tell(id, result): print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    method, id = asked.get("method"), asked.get("id")
    if id is None:
        continue
    if method == "initialize":
        version = asked["params"]["protocolVersion"]
        info = {"name": "s", "version": "1"}
        tell(id, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        tell(id, {"tools": [{"name": "shout", "description": "Shouts.", "inputSchema": schema,
                             "annotations": {"readOnlyHint": True}}]})
    elif method == "tools/call":
        text = asked["params"]["arguments"]["text"].upper()
        tell(id, {"content": [{"type": "text", "text": text}]})
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}), flush=True)
"""


@flovyn.agent
async def shouter(ctx: flovyn.AgentContext, name: str) -> str:
    return (await tools.call(name, {"text": "otters"})).text


def test_mcp_tools_are_called_by_name(url: str, tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(MCP_SERVER)
    servers = {"probe": {"command": sys.executable, "args": [str(program)]}}
    kit = Toolkit(tools=["mcp__probe__*"], mcp_servers=servers)
    found = flovyn.run(shouter, "mcp__probe__shout", url=url, toolkit=kit, timeout=PATIENCE_S)
    assert "OTTERS" in found
    with fake_llm([tool_call("mcp__probe__shout", {"text": "eels"}), turn("Loud.")]) as fake:
        assistant = react_agent(model=fake.model, tools=["mcp__probe__*"], mcp_servers=servers)
        assert flovyn.run(assistant, "Shout.", url=url, timeout=PATIENCE_S).text == "Loud."
        assert "EELS" in told(fake.calls[-1])[0]


async def test_a_tool_that_nobody_serves_is_named(url: str) -> None:
    with pytest.raises(flovyn.AgentFailed, match=r"toolkit=Toolkit\(tools=\['mcp__no__tool'\]\)"):
        await flovyn.run_async(shouter, "mcp__no__tool", url=url, toolkit=Toolkit(), timeout=PATIENCE_S)


# ── declarations ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_cannot_be_served_is_said(url: str) -> None:
    async with flovyn.connect(url) as client:
        for assistant, said in [
            (react_agent(tools=["reed"]), 'there is no tool "reed"; there are bash'),
            (react_agent(working_directory="/no/such/folder", tools=["read"]), "/no/such/folder"),
            (react_agent(providers={"mine": Provider()}), 'the provider "mine"'),
            (react_agent(approvals=ApprovalPolicy([Rule("[", "deny")])), "cannot be used"),
        ]:
            with pytest.raises(InvalidArgument) as wrong:
                async with client.worker(agents=[assistant]):
                    run = await client.start(assistant, "x")
                    await run.result(timeout=PATIENCE_S)
            assert said in str(wrong.value), wrong.value
        with pytest.raises(InvalidArgument, match="two different functions have the kind 'a'"):
            client.worker(agents=[react_agent("a"), react_agent("a")])
        with pytest.raises(InvalidArgument, match="two different providers named"):
            two = [react_agent(name, providers={"p": Provider(key=name)}) for name in ("a", "b")]
            await client.worker(agents=two).start()


def test_a_tool_needs_a_name_a_description_and_types() -> None:
    def silent(x: int) -> int:
        return x

    def strange(x: complex) -> None:
        """Take a number."""

    def many(*x: int) -> None:
        """Take numbers."""

    @functools.wraps(silent)
    def wrapped(*args: Any, **kwargs: Any) -> int:
        return silent(*args, **kwargs)

    with pytest.raises(InvalidArgument, match="has no description"):
        react_agent(tools=[silent])
    with pytest.raises(InvalidArgument, match=r"the parameter 'x' of task 'strange' holds a complex"):
        react_agent(tools=[strange])
    with pytest.raises(InvalidArgument, match="any number of arguments"):
        tool(many)
    with pytest.raises(InvalidArgument, match="any number of arguments"):
        tool(wrapped, description="Be silent.")
    with pytest.raises(InvalidArgument, match="use 1 to 64 letters"):
        tool(silent, description="Be silent.", name="a b")
    made = tool(silent, description="Be silent.", name="hush", effect="exec")
    assert (made.name, made.effect, made.task.kind) == ("hush", "exec", "silent")
    with pytest.raises(InvalidArgument, match="the effect of the tool 'search' is 'reads'"):
        tool(search, effect="reads")  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(InvalidArgument, match="takes a prompt, a RunInput"):
        react_agent().wire(7)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    """A place."""

    x: float
    label: str = "here"
    next: Point | None = None


class Options(TypedDict, total=False):
    depth: int


class Query(pydantic.BaseModel):
    text: str = pydantic.Field(description="What to find.")
    limit: int = 10


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (int | None, {"type": ["integer", "null"]}),
        (Optional[list[str]], {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}),  # noqa: UP045
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Annotated[int, "How many."], {"type": "integer", "description": "How many."}),
        (Any, {}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (list[datetime.date], {"type": "array", "items": {"type": "string", "format": "date"}}),
        (datetime.timedelta | None, {"anyOf": [{"type": "string", "format": "duration"}, {"type": "null"}]}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (Path, {"type": "string"}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (enum.Enum("Corner", {"A": (0, 0), "B": (0, 1)}), {"type": "array", "enum": [[0, 0], [0, 1]]}),
        (
            Options,
            {
                "$ref": "#/$defs/Options",
                "$defs": {
                    "Options": {
                        "type": "object",
                        "properties": {"depth": {"type": "integer"}},
                        "additionalProperties": False,
                    }
                },
            },
        ),
    ],
)
def test_types_have_schemas(hint: Any, schema: dict[str, Any]) -> None:
    assert schema_of(hint) == schema


def test_classes_have_schemas_and_are_rebuilt(url: str) -> None:
    seen: list[Any] = []

    @flovyn.task
    async def plot(point: Point, query: Query, colour: Colour = Colour.RED, *, day: datetime.date) -> str:
        """Plot a point."""
        seen.append((point, query, colour))
        return f"{point.x} on {day:%d.%m.}"

    parameters = tool(plot).parameters
    assert parameters["required"] == ["point", "query", "day"]
    assert parameters["properties"]["point"] == {"$ref": "#/$defs/Point"}
    of_point = parameters["$defs"]["Point"]
    assert of_point["required"] == ["x"] and of_point["description"] == "A place."
    assert of_point["properties"]["next"]["anyOf"][0] == {"$ref": "#/$defs/Point"}
    assert parameters["$defs"]["Query"]["properties"]["text"]["description"] == "What to find."
    arguments = {"point": {"x": 1.5, "next": {"x": 2}}, "query": {"text": "t"}, "colour": "blue", "day": "2026-01-31"}
    with fake_llm([tool_call("plot", arguments), turn("Plotted.")]) as fake:
        flovyn.run(
            react_agent(model=fake.model, tools=[tool(plot, effect="read")]), "Plot.", url=url, timeout=PATIENCE_S
        )
        assert told(fake.calls[-1]) == ["1.5 on 31.01."]
    ((point, query, colour),) = seen
    assert point.x == 1.5 and query == Query(text="t") and colour is Colour.BLUE


def test_docstrings_of_both_styles_are_read() -> None:
    def google(city: str, days: int = 1) -> str:
        """Tell the weather.

        Of any city.

        Args:
            city (str): Where,
                in words.
            days: How far ahead.

        Returns:
            The weather.
        """
        return city

    def sphinx(city: str) -> str:
        """Tell the weather.

        :param city: Where.
        :returns: The weather.
        """
        return city

    made = tool(google)
    assert made.description == "Tell the weather.\n\nOf any city."
    assert made.parameters["properties"]["city"]["description"] == "Where, in words."
    assert made.parameters["properties"]["days"] == {"type": "integer", "default": 1, "description": "How far ahead."}
    assert tool(sphinx).parameters["properties"]["city"]["description"] == "Where."
    assert tool(sphinx).description == "Tell the weather."


def test_blocking_programs_use_it_too(file_url: str) -> None:
    with fake_llm([tool_call("add", {"a": 2, "b": 2}), turn("Four.")]) as fake:
        assistant = react_agent(model=fake.model, tools=[ADD])
        with flovyn.connect_sync(file_url) as client, client.worker(agents=[assistant]):
            assert client.start(assistant, "2 + 2?").result(timeout=PATIENCE_S).text == "Four."


def test_the_engine_takes_a_budget_of_the_toolkit(file_url: str) -> None:
    @flovyn.agent
    async def frugal(ctx: flovyn.AgentContext) -> Any:
        ctx.record_usage("any", 80, 10)
        before = await ctx.remaining_budget()
        await ctx.step()
        return before["tokens"]["left"]

    with flovyn.connect_sync(file_url) as client, client.worker(agents=[frugal]):
        assert client.start(frugal, budget=Budget(max_tokens=100)).result(timeout=PATIENCE_S) == 10
        run = client.start(frugal, budget=Budget(max_tokens=50))
        with pytest.raises(flovyn.FlovynError, match="PAUSED"):
            run.result(timeout=2)
        run.resume(budget=Budget(max_tokens=500))
        assert run.result(timeout=PATIENCE_S) is not None


@pytest.mark.parametrize("given", [talker, react_agent("other", model="fake/m")], ids=lambda given: given.kind)
def test_an_agent_is_no_task(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=rf"the agent '{given.kind}' is no task"):
        tool(given)


@pytest.mark.parametrize("name", ["add_dirs", "roots", "variables", "fetch_allowed_hosts", "fetch_private_hosts"])
async def test_a_text_is_not_taken_for_a_list_of_its_letters(name: str) -> None:
    # The first letter of a path is the root of all files.
    wanted = rf"{name} is a list, and '/srv' is one text; write {name}=\['/srv'\]"
    wrong: dict[str, Any] = {name: "/srv"}
    assistant = react_agent("wide", model="fake/m", **wrong)
    async with flovyn.connect("memory:") as client:
        with pytest.raises(InvalidArgument, match=wanted):
            async with client.worker(agents=[assistant]):
                pass
        with pytest.raises(InvalidArgument, match=wanted):
            async with client.worker(toolkit=Toolkit(**wrong)):
                pass


@pytest.mark.parametrize(
    "ask",
    [
        lambda: react_agent("wide", model="fake/m", tools="read"),  # pyright: ignore[reportUnknownLambdaType]
        lambda: react_agent("wide", model="fake/m", fallback="fake/m"),  # pyright: ignore[reportUnknownLambdaType]
        lambda: RunInput("Go", tools="read").describe(),  # pyright: ignore[reportUnknownLambdaType]
        lambda: RunInput("Go", fallback="fake/m").describe(),  # pyright: ignore[reportUnknownLambdaType]
        lambda: flovyn.task(no_retry="ValueError")(len),  # pyright: ignore[reportUnknownLambdaType]
        lambda: flovyn.agent(tags="night")(talker.fn),  # pyright: ignore[reportUnknownLambdaType]
    ],
)
def test_a_name_is_not_taken_for_a_list(ask: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument, match=r"\w+ is a list, and '.*' is one text"):
        ask()


def test_a_built_in_agent_is_no_function() -> None:
    with pytest.raises(TypeError, match=r"client\.start"):
        react_agent("assistant")("a prompt")


def test_the_import_stays_lazy() -> None:
    code = "import flovyn, sys; sys.exit(any(name.startswith('flovyn.toolkit') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
