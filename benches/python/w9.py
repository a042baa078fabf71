"""W9 on Flovyn: from the word that cancels a tree of runs to the end of the last stream and command below it.

Each run of the tree starts its children and works beside them: every other one has an answer of a model streamed to it,
the rest run a command with a process in the background. What is open is watched by another process.
Usage: w9.py RUNS TREES hard|graceful
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from contextlib import suppress
from typing import Any, Literal, cast

import flovyn
from flovyn.toolkit import Provider, Toolkit, llm, tools

from harness.ends import Ends
from harness.measure import Span, directory, emit, percentile, rss_mb, url

WARM_UP = 2
BRANCHES = 7
SETTLE_S = 0.3
LIMIT_S = 30.0


@flovyn.agent
async def node(ctx: flovyn.AgentContext, plan: dict[str, Any]) -> None:
    children = [ctx.spawn_agent(node, below) for below in plan["below"]]
    if "pipe" in plan:
        work: Any = tools.bash(f"exec 9> {plan['pipe']}; echo open >&9; sleep 600 & sleep 600")
    else:
        ctx.append_entry("user", "Go on.")
        work = llm.generate(ctx.context_ref(), model="fake/slow", max_tokens=100)
    await asyncio.gather(work, *children)


def tree(runs: int, name: str) -> tuple[dict[str, Any], list[str]]:
    """Return what a tree of so many runs is to do, and its pipes. It is a root, branches, and the rest below these."""
    pipes = [f"{name}-{number}.pipe" for number in range(runs // 2)]
    free = iter(pipes)
    plans = [{"below": []} | ({"pipe": next(free)} if number % 2 else {}) for number in range(runs)]
    root, branches, leaves = plans[0], plans[1 : BRANCHES + 1], plans[BRANCHES + 1 :]
    root["below"] = branches
    for leaf, branch in zip(leaves, itertools.cycle(branches), strict=False):
        branch["below"].append(leaf)
    return root, pipes


async def main(runs: int, trees: int, mode: Literal["hard", "graceful"]) -> None:
    gone, answered, ended, wrong = list[float](), list[float](), list[float](), 0
    folder = directory()
    async with Ends.up() as ends, flovyn.connect(url()) as client:
        toolkit = Toolkit(
            providers={"fake": Provider("anthropic-messages", ends.url)},
            working_directory=folder,
            records=folder / "records",
        )
        async with client.worker(agents=[node], max_agents=2 * runs, max_tasks=2 * runs, toolkit=toolkit):
            for number in range(-WARM_UP, trees):
                plan, pipes = tree(runs, f"tree{number}")
                for pipe in pipes:
                    await ends.watch(str(folder / pipe))
                handle = await client.start(node, plan, id=f"tree{number}")
                await asyncio.wait_for(ends.opened(runs), LIMIT_S)
                await asyncio.sleep(SETTLE_S)
                span, begun = Span(), time.monotonic()
                await handle.cancel(mode)
                heard = span.wall_s
                last = await asyncio.wait_for(ends.gone(runs), LIMIT_S)
                with suppress(flovyn.AgentCancelled):
                    await handle.result(LIMIT_S)
                if number >= 0:
                    gone.append(last - begun)
                    answered.append(heard)
                    ended.append(span.wall_s)
                wrong += await handle.status() != "CANCELLED"
    emit(
        gone_p50_ms=percentile(gone, 0.5) * 1e3,
        gone_p99_ms=percentile(gone, 0.99) * 1e3,
        answered_p50_ms=percentile(answered, 0.5) * 1e3,
        ended_p50_ms=percentile(ended, 0.5) * 1e3,
        rss_peak_mb=rss_mb(peak=True),
        wrong=wrong,
    )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), cast(Any, sys.argv[3])))
