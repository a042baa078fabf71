"""An agent of somebody else's takes over a run: it works in a process of its own, asks before it writes, and is kept.

python other_agents.py [DATABASE] [AGENT]

Without an agent it is the small one of scribe.py; with one it is claude, pi, or a command that speaks ACP, such as codex-acp.
"""

import asyncio
import contextlib
import shlex
import sys
from pathlib import Path
from typing import Any

import flovyn
from flovyn import AgentContext, External, agent, task
from flovyn.toolkit import ApprovalRequest

SCRIBE = Path(__file__).resolve().parents[1] / "scribe.py"


def chosen(word: str | None, work: Path) -> External:
    match word:
        case None:
            return External.acp(command=[sys.executable, str(SCRIBE)], working_dir=work, name="scribe")
        case "claude":
            return External.claude(working_dir=work)
        case "pi":
            return External.pi(working_dir=work)
        case command:
            return External.acp(command=shlex.split(command), working_dir=work)


async def look_on(run: flovyn.Handle) -> None:
    """Show what happens, and say yes to what is asked."""
    async for event in run.stream():
        if event.type == "token":
            print(event.text, end="", flush=True)
        elif request := ApprovalRequest.of(event):
            print(f"? {request.name} {request.arguments} (yes)")
            with contextlib.suppress(flovyn.ExecutionClosed):  # Read again after its end: nobody needs an answer.
                await request.approve(run)
    print()


async def main(database: Path, word: str | None) -> None:
    work = database.with_suffix(".work")
    work.mkdir(parents=True, exist_ok=True)
    other = chosen(word, work)

    @task
    async def today() -> str:
        return "Otters hold hands."

    @agent
    async def desk(ctx: AgentContext) -> dict[str, Any]:
        await ctx.handoff_to_agent(other, f"Write in notes.txt: {await today()}")

    async with flovyn.connect(f"sqlite:{database}") as client, client.worker(agents=[desk, other]):
        run = await client.start(desk, id="note-1")
        await look_on(run)
        outcome = await run.result(timeout=600)
    print(f"{outcome['text']} ({outcome['stopReason']})")
    assert (work / "notes.txt").read_text().count("Otters hold hands.") == 1


if __name__ == "__main__":
    words = sys.argv[1:]
    asyncio.run(main(Path(words[0] if words else "other-agents.db"), words[1] if len(words) > 1 else None))
