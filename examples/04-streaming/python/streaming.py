"""Tokens while they are made, durable entries when they are done, and a reader that resumes after any event.

python streaming.py [DATABASE]
"""

import asyncio
import sys

import flovyn
from flovyn import AgentContext, TaskContext, agent, task

WORDS = ["durable", "agents", "survive", "kill", "-9"]


@task
async def say(ctx: TaskContext, words: list[str]) -> str:
    for word in words:
        ctx.stream_token(word + " ")
        await asyncio.sleep(0.01)
    return " ".join(words)


@agent
async def speaker(ctx: AgentContext) -> str:
    text = await say(WORDS)
    ctx.append_entry("assistant", text)
    return text


async def main(url: str) -> None:
    async with flovyn.connect(url) as client, client.worker(agents=[speaker], tasks=[say]):
        handle = await client.start(speaker, id="speech-1")
        tokens, entries, last = [], [], None
        async for event in handle.stream():
            last = event.id
            if event.type == "token":
                tokens.append(event.text)
                print(event.text, end="", flush=True)
            elif event.type == "entry":
                entries.append(event.data["content"])
        print()
        assert entries == [" ".join(WORDS)]
        assert "".join(tokens).split() == WORDS or not tokens
        # Resuming after the last event: nothing comes twice, and the stream ends at once.
        assert [event async for event in handle.stream(after=last)] == []


if __name__ == "__main__":
    database = sys.argv[1] if len(sys.argv) > 1 else "streaming.db"
    asyncio.run(main(f"sqlite:{database}"))
