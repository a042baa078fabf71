"""A research team: an agent leads three others, which work side by side on one budget. It stops one of them in time.

python research_team.py [DATABASE]
"""

import asyncio
import sys
from dataclasses import dataclass

import flovyn
from flovyn import AgentContext, Child, agent, task
from flovyn.child_events import BudgetExceeded, Cancelled, Completed, Failed, Signal

PAGE_TOKENS = 100


@dataclass
class Question:
    topic: str
    pages: int


@task
async def read_page(topic: str, page: int) -> str:
    return f"page {page} about {topic}"


@agent
async def researcher(ctx: AgentContext, question: Question) -> list[str]:
    notes: list[str] = []
    try:
        for page in range(question.pages):
            notes.append(await read_page(question.topic, page))
            ctx.record_usage("reader", PAGE_TOKENS)
            await ctx.signal_parent("read", len(notes))
    except flovyn.Cancelled:  # By the lead, or because the budget has no room for another page.
        pass
    return notes


async def follow(ctx: AgentContext, child: Child[list[str]], patience: int = 1_000) -> tuple[str, list[str]]:
    """Hear a researcher to its end; stop it once it has read too much. Return how it ended, and its notes."""
    while True:
        match await ctx.wait_for_child_event(child):
            case Signal("read", pages) if pages == patience:
                await ctx.cancel_child(child)
            case Completed(notes) | Cancelled(notes) | BudgetExceeded(output=notes) as end:
                return type(end).__name__, notes
            case Failed(error):
                raise error
            case _:
                pass


@agent
async def lead(ctx: AgentContext) -> dict[str, tuple[str, list[str]]]:
    otters = ctx.spawn_agent(researcher, Question("otters", 3))
    seals = ctx.spawn_agent(researcher, Question("seals", 50), budget={"max_tokens": 4 * PAGE_TOKENS})
    eels = ctx.spawn_agent(researcher, Question("eels", 10_000))
    ends = await asyncio.gather(follow(ctx, otters), follow(ctx, seals), follow(ctx, eels, patience=5))
    return dict(zip(["otters", "seals", "eels"], ends, strict=True))


async def main(url: str) -> None:
    async with flovyn.connect(url) as client, client.worker(agents=[lead]):
        run = await client.start(lead, id="team-1", budget={"max_tokens": 20_000})
        ends = await run.result(timeout=60)
        team = await run.describe()
    for topic, (end, notes) in ends.items():
        print(f"{topic}: {end} after {len(notes)} pages")
    print(f"{team.total_usage['input_tokens']} tokens in all, of {team.child_count} researchers")
    assert [ends[topic][0] for topic in ("otters", "seals", "eels")] == ["Completed", "BudgetExceeded", "Cancelled"]
    assert (len(ends["otters"][1]), len(ends["seals"][1])) == (3, 4)
    assert len(ends["eels"][1]) >= 5
    assert team.total_usage["input_tokens"] <= 20_000


if __name__ == "__main__":
    database = sys.argv[1] if len(sys.argv) > 1 else "research-team.db"
    asyncio.run(main(f"sqlite:{database}"))
