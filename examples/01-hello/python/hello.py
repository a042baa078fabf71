"""The smallest durable agent. Run it twice: the second time nothing runs, the recorded result comes back.

python hello.py [DATABASE]
"""

import sys

import flovyn
from flovyn import AgentContext, agent, task


@task
async def greet(name: str) -> str:
    print(f"greeting {name}")
    return f"Hello, {name}!"


@agent
async def hello(ctx: AgentContext, name: str) -> str:
    ctx.append_entry("user", name)
    greeting = await greet(name)
    ctx.append_entry("assistant", greeting)
    return greeting


if __name__ == "__main__":
    database = sys.argv[1] if len(sys.argv) > 1 else "hello.db"
    print(flovyn.run(hello, "world", id="hello-1", url=f"sqlite:{database}"))
