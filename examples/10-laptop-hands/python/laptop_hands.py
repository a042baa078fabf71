"""The brain on a server, the hands on a laptop: a coder works in a folder there, and the server's workers ask the models for it.

python laptop_hands.py [DATABASE]

All of it runs on this computer: a server (``flovyn dev``), the laptop's daemon with a home of its own, and a worker that has
the models. The laptop has no key of a provider, and opens all connections by itself. What the coder reads and writes stays in a
file there: the server has the run, and references to what was said in it.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flovyn
from flovyn import AgentContext, Local, agent
from flovyn.testing import fake_llm, tool_call, turn
from flovyn.toolkit import Provider, RunInput, Toolkit

FLOVYN = Path(sys.executable).with_name("flovyn")
BROKEN = "def add(a, b):\n    return a - b\n"
SCRIPT = [
    tool_call("read", {"path": "sums.py"}),
    tool_call("edit", {"path": "sums.py", "old_string": "a - b", "new_string": "a + b"}),
    turn("It subtracted. Now it adds."),
]


@agent
async def brain(ctx: AgentContext, task: str) -> str:
    asked = RunInput(task, model="boss/m", via="parent").describe()
    outcome = await ctx.spawn_agent("react-agent", asked, mode=Local("laptop"), persistence="local")
    return outcome["text"]


@contextlib.contextmanager
def running(*words: str, env: dict[str, str]) -> Iterator[Iterator[dict[str, Any]]]:
    """Run a command of Flovyn, and give what it prints, line by line."""
    command = [str(FLOVYN), *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | env) as process:
        assert process.stdout is not None
        try:
            yield map(json.loads, process.stdout)
        finally:
            process.terminate()


async def work(server: str, laptop: dict[str, str], folder: Path) -> str:
    # The laptop asks to be let in, and somebody who may says yes to its code.
    with running("daemon", "pair", "--server", server, "--name", "laptop", env=laptop) as told:
        approve = [FLOVYN, "machines", "approve", next(told)["code"]]
        subprocess.run(approve, env=os.environ | {"FLOVYN_URL": server}, check=True, capture_output=True)
        assert next(told)["paired"]
    with running("daemon", "--workspace", str(folder), env=laptop) as told, fake_llm(SCRIPT) as fake:
        print(f"{next(told)['machine']} works in {folder.name}/")
        models = Toolkit(providers={"boss": Provider(api="anthropic-messages", base_url=fake.url)})
        async with flovyn.connect(server) as client, client.worker(agents=[brain], toolkit=models):
            run = await client.start(brain, "The sums of sums.py are wrong. Find out why and mend it.")
            return await run.result(timeout=60)


def main(database: Path) -> None:
    folder, home = database.with_suffix(".work"), database.with_suffix(".laptop")
    for made in (folder, home):
        made.mkdir(parents=True, exist_ok=True)
    file = folder / "sums.py"
    file.write_text(BROKEN)
    (home / "daemon.toml").write_text('name = "laptop"\napprove = "edits"\n')
    # Clients on this computer find the server's token by themselves; the laptop, with a home of its own, does not.
    with running("dev", "--db", f"sqlite:{database}", "--http-port", "0", "--grpc-port", "0", env={}) as told:
        print(asyncio.run(work(next(told)["grpc"], {"FLOVYN_HOME": str(home)}, folder)))
    assert file.read_text() == BROKEN.replace("-", "+")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "laptop-hands.db").absolute())
