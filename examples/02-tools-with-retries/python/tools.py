"""Tools that fail, are retried with pauses, time out, and run side by side.

python tools.py [DATABASE]
"""

import asyncio
import sys

import flovyn
from flovyn import AgentContext, TaskContext, TaskFailed, agent, task


@task(retries=3)
async def flaky(ctx: TaskContext, number: int) -> int:
    """Fail the first two attempts."""
    if ctx.attempt < 3:
        raise ConnectionError(f"attempt {ctx.attempt} was refused")
    return number * number


@task(timeout=0.1)
async def slow() -> str:
    await asyncio.sleep(60)
    return "never"


@task(retries=5, no_retry=(ValueError,))
async def hopeless(text: str) -> int:
    return int(text)


@agent
async def worker(ctx: AgentContext) -> dict[str, object]:
    squares = await asyncio.gather(*(flaky(number) for number in range(3)))
    errors = []
    for step in (slow(), hopeless("seven")):
        try:
            await step
        except TaskFailed as error:
            errors.append(f"{error.kind}: {error.type} after {error.attempts} attempt(s)")
    return {"squares": squares, "errors": errors}


if __name__ == "__main__":
    database = sys.argv[1] if len(sys.argv) > 1 else "tools.db"
    result = flovyn.run(worker, id="tools-1", url=f"sqlite:{database}")
    print(result)
    assert result["squares"] == [0, 1, 4]
    assert len(result["errors"]) == 2
