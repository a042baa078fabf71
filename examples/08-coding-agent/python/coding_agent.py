"""The built-in coding agent on a folder of files: it streams, asks before it changes anything, and survives kill -9.

python coding_agent.py [DATABASE] [PROVIDER/MODEL]

Without a model it speaks to a scripted one; with one the provider's key is taken from the environment.
"""

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import flovyn
from flovyn import task
from flovyn.testing import fake_llm, tool_call, turn
from flovyn.toolkit import ApprovalRequest, ReactAgent, react_agent

BROKEN = "def add(a, b):\n    return a - b\n"
PROMPT = "The sums of sums.py are wrong. Find out why and mend it."

SCRIPT = [
    tool_call("grep", {"pattern": "def add"}),
    tool_call("read", {"path": "sums.py"}),
    tool_call("edit", {"path": "sums.py", "old_string": "a - b", "new_string": "a + b"}),
    tool_call("try_sum", {"a": 2, "b": 3}),
    turn("It subtracted. Now it adds."),
]


def coder(work: Path, model: str) -> ReactAgent:
    """An agent with the host tools, and with a function of ours as a tool."""

    @task(timeout=10)
    def try_sum(a: int, b: int) -> str:
        """Run the program's add() on two numbers."""
        program = f"import sums; print(sums.add({a!r}, {b!r}))"
        return subprocess.run([sys.executable, "-c", program], cwd=work, capture_output=True, text=True, check=True).stdout

    tools = ["read", "write", "edit", "grep", "find", try_sum]
    return react_agent("coder", model=model, tools=tools, working_directory=work)


async def look_on(run: flovyn.Handle) -> None:
    """Show what happens, and say yes to every change, as a person at a terminal would."""
    async for event in run.stream():
        if event.type == "token":
            print(event.text, end="", flush=True)
        elif event.type == "data" and event.data.get("type") == "tool_call_start":
            call = event.data["tool_call"]
            print(f"\n▸ {call['name']} {call['arguments']}")
        elif request := ApprovalRequest.of(event):
            print(f"\n? {request.name} {request.arguments} (yes)")
            with contextlib.suppress(flovyn.ExecutionClosed):  # Read again after its end: nobody needs an answer.
                await request.approve(run)
    print()


async def main(database: Path, model: str | None) -> None:
    work = database.with_suffix(".work")
    work.mkdir(parents=True, exist_ok=True)
    file = work / "sums.py"
    if not file.exists():
        file.write_text(BROKEN)
    with fake_llm(SCRIPT) as fake:
        agent = coder(work, model or fake.model)
        async with flovyn.connect(f"sqlite:{database}") as client, client.worker(agents=[agent]):
            run = await client.start(agent, PROMPT, id="mend-1")
            await look_on(run)
            outcome = await run.result()
    print(f"{outcome.text} ({outcome.turns} turns)")
    assert file.read_text() == BROKEN.replace("-", "+")


if __name__ == "__main__":
    words = sys.argv[1:]
    asyncio.run(main(Path(words[0] if words else "coding-agent.db"), words[1] if len(words) > 1 else None))
