"""Agents for the console to look at: a worker on a scripted model, for development and for the browser tests.

python serve.py GRPC_URL WORKDIR

It serves until its standard input ends, and prints `ready` when it takes work. The tests start runs, over REST.
"""

import asyncio
import sys
from pathlib import Path

import flovyn
from flovyn.testing import cut, fake_llm, status, tool_call, turn
from flovyn.toolkit import react_agent, tool

PROSE = """## What otters eat

Otters eat **fish**, crayfish and *frogs*. In figures:

| prey | share |
| --- | ---: |
| fish | 71 % |
| crayfish | 19 % |
| frogs | 10 % |

1. They hunt at dusk.
2. They eat about 15 % of their weight a day.

```python
def daily(weight: float) -> float:
    return weight * 0.15
```

See [the survey](https://example.org/otters) for more.
"""

HOSTILE = (
    '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script> '
    "[click](javascript:window.pwned=1) ![x](https://example.org/track.png) <b>bold?</b>"
)

SCRIPT = [
    # Each conversation is recognised by a word of its prompt.
    turn(
        PROSE, thinking="The user wants a survey. A table will do, then two facts.", usage={"input": 900, "output": 240}
    )
    .slowly(first_ms=150, chunk_ms=15, chunk_chars=12)
    .when(last_user_contains="survey"),
    turn(PROSE * 12).slowly(chunk_ms=16, chunk_chars=6).when(last_user_contains="long story"),
    turn(PROSE * 3).slowly(chunk_ms=16, chunk_chars=6).when(last_user_contains="short story"),
    turn(HOSTILE).when(last_user_contains="hostile", turn=2),
    tool_call("hostile_tool", {"name": "<script>alert(1)</script>"}).when(last_user_contains="hostile", turn=1),
    tool_call("grep", {"pattern": "def add"})
    .and_call("find", {"pattern": "*.py"})
    .when(last_user_contains="mend", turn=1),
    tool_call("read", {"path": "sums.py"}).when(last_user_contains="mend", turn=2),
    tool_call(
        "edit",
        {"path": "sums.py", "old_string": "add(a, b):\n    return a - b", "new_string": "add(a, b):\n    return a + b"},
    ).when(last_user_contains="mend", turn=3),
    tool_call(
        "bash",
        {
            "command": "printf '\\033[32mok\\033[0m 12 passed\\n\\033[31mfail\\033[0m 1 failed\\n'; "
            "ls; echo odd >&2; exit 3"
        },
    ).when(last_user_contains="mend", turn=4),
    turn("It subtracted. Now it **adds**; one test is left to mend.")
    .slowly(chunk_ms=20)
    .when(last_user_contains="mend", turn=5),
    tool_call("publish", {"title": "Otters", "words": 120}).when(last_user_contains="publish", turn=1),
    turn("That is done.").when(last_user_contains="publish"),
    tool_call("scout", {"task": "survey of rivers"})
    .and_call("scout", {"task": "publish rivers"})
    .when(last_user_contains="delegate", turn=1),
    turn("Both scouts are back: rivers hold otters.").when(last_user_contains="delegate"),
    turn("Never.").failing(status(400, message="the model refuses")).when(last_user_contains="break down"),
    turn("An answer after a fault.").failing(status(529), cut()).when(last_user_contains="fault"),
]


@flovyn.task
def look_up(word: str) -> dict:
    """Look a word up."""
    return {"word": word, "means": ["a mammal", "a river dweller"], "score": 0.93}


@flovyn.task
def publish(title: str, words: int) -> str:
    """Publish an article.

    Args:
        title: What it is called.
        words: How long it is.
    """
    return f"{title} is published with {words} words."


@flovyn.task
def hostile_tool(name: str) -> str:
    """Answer something that a page must not run."""
    return (
        f"<img src=x onerror=window.pwned=1> {name} \x1b[31mred\x1b[0m \x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07"
    )


@flovyn.agent
async def many(ctx: flovyn.AgentContext, count: int) -> int:
    """Append as many entries as it is told."""
    for number in range(count):
        ctx.append_entry(
            "user" if number % 2 == 0 else "assistant", f"Message {number + 1} of {count}. " + "otter " * (number % 40)
        )
        if number % 500 == 499:
            await ctx.sleep(0)
    return count


@flovyn.agent
async def lasting(ctx: flovyn.AgentContext, count: int) -> str:
    """Append as many entries as it is told, then one for each signal named go, until that says end."""
    for number in range(count):
        ctx.append_entry("assistant", f"Message {number + 1} of {count}.")
        if number % 500 == 499:
            await ctx.sleep(0)
    while (word := await ctx.wait_for_signal("go")) != "end":
        ctx.append_entry("assistant", f"It went on with {word}.")
    return "over"


@flovyn.agent
async def talker(ctx: flovyn.AgentContext, counts: list[int]) -> str:
    """Stream messages of 120 tokens each, as many as each count says; wait for a signal named go after each count."""
    said = 0
    for count in counts:
        for _ in range(count):
            said += 1
            for number in range(120):
                ctx.stream_token(f"w{number} " if number else f"Message {said}: ")
                if number % 30 == 29:
                    await asyncio.sleep(0.002)
            ctx.append_entry("assistant", f"Message {said}: " + " ".join(f"w{number}" for number in range(1, 120)))
            await ctx.sleep(0)
        await ctx.wait_for_signal("go")
    return "over"


@flovyn.agent
async def big(ctx: flovyn.AgentContext, size: int) -> int:
    """Say something of so many bytes."""
    ctx.append_entry("user", "Say a lot.")
    ctx.append_entry("assistant", "otter\n" * (size // 6))
    return size


@flovyn.agent
async def ask(ctx: flovyn.AgentContext, question: str) -> dict:
    """Wait for a signal named answer."""
    ctx.append_entry("assistant", question)
    return {"answer": await ctx.wait_for_signal("answer")}


@flovyn.agent
async def broken(ctx: flovyn.AgentContext, what: str) -> str:
    """Fail."""
    raise ValueError(f"There is no {what}.")


def prepare(work: Path) -> None:
    """Make the folder that the tools work in."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "sums.py").write_text("def add(a, b):\n    return a - b\n\n\ndef sub(a, b):\n    return a - b\n")


async def main(url: str, work: Path) -> None:
    with fake_llm(SCRIPT, otherwise=turn("I have no script for that, so I just say hello.")) as fake:
        scout = react_agent(
            "scout",
            model=fake.model,
            description="Knows rivers.",
            tools=[tool(look_up, effect="read"), publish],
            working_directory=work,
        )
        assistant = react_agent(
            "react-agent",
            model=fake.model,
            description="A helpful agent.",
            tools=[
                "read",
                "write",
                "edit",
                "grep",
                "find",
                "bash",
                tool(look_up, effect="read"),
                publish,
                tool(hostile_tool, effect="read"),
            ],
            delegates=[scout],
            system_prompt="You know otters.",
            working_directory=work,
            sandbox=False,
        )
        async with (
            flovyn.connect(url) as client,
            client.worker(agents=[assistant, scout, many, lasting, talker, big, ask, broken]),
        ):
            print("ready", flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    prepare(Path(sys.argv[2]))
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
