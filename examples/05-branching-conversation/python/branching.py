"""A conversation that is forked: both branches share what was said before, stored once.

python branching.py [DATABASE]
"""

import asyncio
import sys
from dataclasses import dataclass

import flovyn
from flovyn import AgentContext, agent, task


@task
async def answer(question: str) -> str:
    return f"About {question}: it depends."


@dataclass
class Chat:
    turn: int = 0


@agent(state=Chat)
async def chat(ctx: AgentContext[Chat], turns: int) -> list[str]:
    state = ctx.state
    while state.turn < turns:
        question = await ctx.wait_for_signal("userMessage")
        ctx.append_entry("user", question)
        ctx.append_entry("assistant", await answer(question))
        state.turn += 1
        await ctx.checkpoint(state)
    return [str(message.content) for message in ctx.load_messages()]


async def main(url: str) -> None:
    async with flovyn.connect(url) as client, client.worker(agents=[chat], tasks=[answer]):
        trunk = await client.start(chat, 2, id="trunk")
        await trunk.signal("userMessage", "trees")
        while not await trunk.checkpoints():
            await asyncio.sleep(0.01)
        branch = await trunk.fork(checkpoint=1)
        await trunk.signal("userMessage", "oaks")
        await branch.signal("userMessage", "birches")
        said, instead = await trunk.result(timeout=10), await branch.result(timeout=10)
        print(said, instead, sep="\n")
        assert said[:2] == instead[:2]
        assert "oaks" in said[2] and "birches" in instead[2]


if __name__ == "__main__":
    database = sys.argv[1] if len(sys.argv) > 1 else "branching.db"
    asyncio.run(main(f"sqlite:{database}"))
