"""The main job, shown: an agent surveys this repository, is killed with SIGKILL in the middle, and goes on. Then the same
agent behind a server, where another worker goes on.

Run by `make demo`. Needs no key and no network. Exits with 0 only if nothing was lost and no finished step ran twice.
"""

from __future__ import annotations

import asyncio
import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fleet
import flovyn

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
COLOUR = sys.stdout.isatty()


def say(text: str, *, strong: bool = False) -> None:
    """Print a line of the story."""
    print(f"\033[1m{text}\033[0m" if strong and COLOUR else text, flush=True)


class Run:
    """One process that runs the agent."""

    def __init__(self, folder: Path) -> None:
        self.started = time.time()
        log = {"SURVEY_LOG": str(folder / "ran.log")}
        command = [sys.executable, str(HERE / "survey.py"), str(folder / "demo.db"), str(REPOSITORY), str(folder / "report.md")]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | log)

    def lines(self):
        """Yield when and what the process tells, showing progress on the way."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            at, _, rest = line.strip().partition(" ")
            if rest.startswith("done "):
                done, total = map(int, rest.split()[1].split("/"))
                bar = "#" * round(30 * done / total)
                end = "\r" if COLOUR else "\n"
                if COLOUR or done % 25 == 0:
                    print(f"    [{bar:<30}] {done:>4}/{total} {rest.split(' ', 2)[2]:<60.60}", end=end, flush=True)
            yield float(at), rest


def first_life(folder: Path) -> int:
    """Run until about half of the files are done, then kill without warning."""
    run = Run(folder)
    for _, text in run.lines():
        if text.startswith("done "):
            done, total = map(int, text.split()[1].split("/"))
            if done >= total // 2:
                os.kill(run.process.pid, signal.SIGKILL)
                run.process.wait()
                if COLOUR:
                    print()
                return done
    raise SystemExit("the first process ended before it could be killed")


async def approve(url: str) -> None:
    """Send the go-ahead from this process, as a person would from another terminal."""
    async with flovyn.connect(url) as client:
        handle = await client.handle("survey")
        await handle.signal("go-ahead", "yes, write it", idempotency_key="go-1")


def second_life(folder: Path) -> tuple[float, dict[str, int]]:
    """Run to the end; return the seconds from the start of the process to its first new step, and the result."""
    before = (folder / "ran.log").read_text().count("\n")
    run, first, result = Run(folder), 0.0, {}
    for at, text in run.lines():
        if not first and (folder / "ran.log").read_text().count("\n") > before:
            first = at - run.started
        if text == "waiting":
            if COLOUR:
                print()
            say("    the agent asks for a go-ahead; another process sends it as a signal")
            asyncio.run(approve(f"sqlite:{folder / 'demo.db'}"))
        if text.startswith("result "):
            result = json.loads(text[7:])
    if run.process.wait() != 0:
        raise SystemExit("the second process failed")
    return first, result


def main() -> None:
    """Tell the story and check it."""
    with tempfile.TemporaryDirectory(prefix="flovyn-demo-") as name:
        folder = Path(name)
        say("1. An agent surveys this repository on one SQLite file, every file in durable steps.", strong=True)
        killed_at = first_life(folder)
        log = (folder / "ran.log").read_text().splitlines()
        finished = {line.split(" ", 1)[1] for line in log}
        say(f"2. kill -9 after {killed_at} files: {len(log)} steps had run.", strong=True)
        say("3. The same command again.", strong=True)
        recovery, result = second_life(folder)
        log_after = (folder / "ran.log").read_text().splitlines()
        steps = collections.Counter(line.split(" ", 1)[1] for line in log_after)
        again = [step for step, times in steps.items() if times > 1]
        say("4. What happened", strong=True)
        say(f"    result                       {json.dumps(result)}")
        say(f"    steps in all                 {len(steps)}")
        say(f"    ran before the kill          {len(log)}")
        say(f"    ran after it                 {len(log_after) - len(log)}")
        say(f"    in flight at the kill, again {len(again)}" + (f" ({', '.join(again)})" if again else ""))
        say(f"    finished steps run twice     {max(0, len(again) - 1)}")
        say(f"    process start to first step  {recovery * 1000:.0f} ms")
        if len(again) > 1 or not finished <= set(steps) or result.get("files", 0) * 2 + 2 != len(steps):
            raise SystemExit("the run lost or repeated work")
        say("5. The same agent behind a server, on two workers, watched live over server-sent events.", strong=True)
        fleet.show(folder, REPOSITORY, say)
        say("Nothing was lost, and no finished step ran twice.", strong=True)


if __name__ == "__main__":
    main()
