"""An agent that asks a person, is put away while it waits, and goes on in another process.

python approval.py ask [DATABASE]       asks, and ends: the agent waits as a row in the file
python approval.py answer yes [DATABASE]
python approval.py both [DATABASE]      shows the two in one go, each in a process of its own
"""

import asyncio
import subprocess
import sys

import flovyn
from flovyn import AgentContext, agent, task


@task
async def draft(subject: str) -> str:
    return f"Dear all, {subject}."


@task(side_effects="at_most_once")
async def send(text: str) -> str:
    return f"sent: {text}"


@agent
async def mailer(ctx: AgentContext, subject: str) -> str:
    text = await draft(subject)
    ctx.append_entry("assistant", text)
    answer = await ctx.wait_for_signal("approval")
    ctx.append_entry("user", answer)
    return await send(text) if answer == "yes" else "not sent"


async def answer(url: str, word: str) -> None:
    async with flovyn.connect(url) as client:
        handle = await client.handle("mail-1")
        await handle.signal("approval", word, idempotency_key="answer-1")


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or ["both"]
    database = rest[-1] if rest and rest[-1] not in ("yes", "no") else "approval.db"
    url = f"sqlite:{database}"
    if command == "both":
        for words in (["ask"], ["answer", "yes"], ["ask"]):
            subprocess.run([sys.executable, __file__, *words, database], check=True)
    elif command == "answer":
        asyncio.run(answer(url, rest[0]))
        print("answered")
    else:
        result = flovyn.run(mailer, "the build is green", id="mail-1", url=url, on_wait="return")
        print(result if result is not None else "waiting for approval; run again after the answer")
