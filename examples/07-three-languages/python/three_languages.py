"""One run, three languages: begun in Python, killed, carried on in TypeScript, killed, and finished in Rust.

Then a Python agent whose tasks are done by a worker in TypeScript and one in Rust. `make node` builds what it needs.

python three_languages.py [DATABASE]
"""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import flovyn

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]


def rust() -> list[str]:
    program = REPOSITORY / "target" / "debug" / "relay-worker"
    if not program.exists():
        build = ["cargo", "build", "--quiet", "-p", "flovyn-examples", "--bin", "relay-worker"]
        subprocess.run(build, cwd=REPOSITORY, check=True)
    return [str(program)]


def typescript() -> list[str]:
    package = REPOSITORY / "bindings-node"
    program = package / ".examples" / "07-three-languages" / "typescript" / "worker.mjs"
    if not program.exists():
        subprocess.run(["npm", "run", "--silent", "examples"], cwd=package, check=True)
    return ["node", str(program)]


async def relay(client: flovyn.Client, url: str, workers: dict[str, list[str]]) -> None:
    handle = await client.start("relay", 6, id="relay-1")
    for name in ("Python", "TypeScript"):
        ended = subprocess.run([*workers[name], url, "2"], check=False)
        assert ended.returncode == -signal.SIGKILL, f"the worker in {name} ended with {ended.returncode}"
        print(f"{name} did two steps and was killed")
    last = subprocess.Popen([*workers["Rust"], url])
    ran = await handle.result(timeout=60)
    last.terminate()
    last.wait()
    print(f"finished in Rust: {ran}")
    assert [name for _, name in ran] == ["Python", "Python", "TypeScript", "TypeScript", "Rust", "Rust"]


async def team(client: flovyn.Client, url: str, workers: dict[str, list[str]]) -> None:
    running = [subprocess.Popen([*command, url]) for command in workers.values()]
    handle = await client.start("team", "otters hold hands", id="team-1")
    found = await handle.result(timeout=60)
    for worker in running:
        worker.terminate()
        worker.wait()
    print(f"a Python agent with tasks in TypeScript and Rust: {found}")
    assert found == {"loud": "OTTERS HOLD HANDS!", "letters": 15}


async def main(database: str) -> None:
    url = f"sqlite:{database}"
    workers = {
        "Python": [sys.executable, str(HERE / "worker.py")],
        "TypeScript": typescript(),
        "Rust": rust(),
    }
    async with flovyn.connect(url) as client:
        await relay(client, url, workers)
        await team(client, url, workers)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "three.db"))
