"""Runs the programs of the README as they stand there, in Python and in TypeScript: each is killed while it waits.

A program is the first block of its language; the command that answers it is the README's too. Needs the packages built.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
NODE = REPOSITORY / "bindings-node"
PATIENCE_S = 30.0
EXPECTED = "three pages about otters"
TRANSPILE = (
    "const ts = require('typescript'); const text = require('fs').readFileSync(0, 'utf8'); "
    "const compilerOptions = { module: 'esnext', target: 'es2022' }; "
    "process.stdout.write(ts.transpileModule(text, { compilerOptions }).outputText)"
)


def block(text: str, start: str) -> str:
    """Return the first fenced block that begins as given."""
    found = re.search(rf"^```{start}(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"the README has no block that begins with {start!r}")
    return found.group(1)


def python(readme: str, folder: Path) -> list[str]:
    """Write the Python program down and return how it is run."""
    program = folder / "quickstart.py"
    program.write_text(block(readme, "python\n"))
    return [sys.executable, str(program)]


def typescript(readme: str, _: Path) -> list[str]:
    """Write the TypeScript program down where it finds the package, and return how it is run."""
    program = NODE / ".examples" / "readme" / "quickstart.mjs"
    program.parent.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        ["node", "-e", TRANSPILE], input=block(readme, "ts\n"), cwd=NODE, capture_output=True, text=True, check=True
    )
    program.write_text(made.stdout)
    return ["node", str(program)]


def waits(answer: list[str], folder: Path) -> bool:
    """Tell whether the run waits for its approval."""
    shown = subprocess.run(
        [answer[0], "runs", "show", *answer[3:5]], cwd=folder, capture_output=True, text=True, check=False
    )
    return "WAITING" in shown.stdout


def prove(command: list[str], answer: list[str], folder: Path) -> None:
    """Start the program, kill it while it waits, start it again, answer it, and look at what it prints."""
    first = subprocess.Popen(command, cwd=folder)
    deadline = time.monotonic() + PATIENCE_S
    while not waits(answer, folder):
        assert first.poll() is None and time.monotonic() < deadline, "the program does not wait for its approval"
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    subprocess.run(answer, cwd=folder, check=True, capture_output=True)
    told, _ = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0 and EXPECTED in told, f"it ended with {second.returncode} and printed {told!r}"


def main() -> None:
    """Prove both."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    words = shlex.split(block(readme, "\nflovyn runs signal"))
    answer = [str(Path(sys.executable).with_name("flovyn")), "runs", "signal", *words]
    for language in (python, typescript):
        with tempfile.TemporaryDirectory(prefix="flovyn-readme-") as name:
            folder = Path(name)
            prove(language(readme, folder), answer, folder)
        print(
            f"  ok      the README's program in {language.__name__}: killed while it waited, and finished", flush=True
        )


if __name__ == "__main__":
    main()
