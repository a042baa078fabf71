"""Runs the programs of the README as they stand there, in Python, TypeScript and Rust: each is killed while it waits.

A program is the first block of its language; the command that answers it is the README's too. Needs the packages built,
and cargo: the program in Rust is one of the crate of these tests.
"""

from __future__ import annotations

import os
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
QUICKSTART = Path(__file__).with_name("quickstart.rs")
# What the tests of Rust are built with, so that nothing is built a second time. With a test come its crate's programs.
FEATURES = "--workspace --exclude flovyn-python --exclude flovyn-node --features flovyn-core/testing"
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


def rust(readme: str, _: Path) -> list[str]:
    """Look that the program in Rust is the README's, build it, and return how it is run."""
    _, program = QUICKSTART.read_text(encoding="utf-8").split("\n\n", 1)
    if block(readme, "rust\n") != program:
        raise SystemExit(f"the README's program in Rust is not that of {QUICKSTART.relative_to(REPOSITORY)}")
    build = ["cargo", "test", "--quiet", "--no-run", *FEATURES.split(), "--test", "tidy"]
    subprocess.run(build, cwd=REPOSITORY, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return [str(target / "debug" / "quickstart")]


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
    """Prove all three."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    words = shlex.split(block(readme, "\nflovyn runs signal"))
    answer = [str(Path(sys.executable).with_name("flovyn")), "runs", "signal", *words]
    for language in (python, typescript, rust):
        with tempfile.TemporaryDirectory(prefix="flovyn-readme-") as name:
            folder = Path(name)
            prove(language(readme, folder), answer, folder)
        print(
            f"  ok      the README's program in {language.__name__}: killed while it waited, and finished", flush=True
        )


if __name__ == "__main__":
    main()
