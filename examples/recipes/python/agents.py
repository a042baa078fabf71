"""The agent that every recipe serves: it looks something up, writes, and waits for a person's word."""

from __future__ import annotations

from flovyn import AgentContext, agent, task


@task(retries=3)
async def look_up(topic: str) -> str:
    """A durable step; in life a request that costs time and money."""
    return f"three pages about {topic}"


@agent
async def researcher(ctx: AgentContext, topic: str) -> str:
    """Answers once it was approved."""
    ctx.append_entry("user", topic)
    found = await look_up(topic)
    for word in found.split():
        ctx.stream_token(word + " ")
    ctx.append_entry("assistant", found)
    approved = await ctx.wait_for_signal("approval", bool)
    return found if approved else "dropped"
