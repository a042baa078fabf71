"""Owns who takes part and how each one's programs are started: ours in three languages, DBOS, LangGraph, Restate."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

BENCHES = Path(__file__).resolve().parent.parent
REPOSITORY = BENCHES.parent
WORK = BENCHES / ".work"

FLOVYN_PYTHON = "Flovyn Python"
FLOVYN_RUST = "Flovyn Rust"
FLOVYN_NODE = "Flovyn Node"
DBOS = "DBOS"
LANGGRAPH = "LangGraph"
RESTATE = "Restate"

#: Turns a program's name and arguments into a command line.
Launcher = Callable[..., list[str]]


@dataclass(frozen=True)
class Side:
    """One participant: how to start its programs, or why it cannot take part."""

    name: str
    version: str = ""
    launch: Launcher | None = None
    absent: str = ""


def venv_python(name: str) -> Path:
    """Return the interpreter of the virtual environment `name`, whether it exists or not."""
    return WORK / f"venv-{name}" / "bin" / "python"


def run_quietly(*command: str | Path) -> str:
    """Run a command to its end and return what it printed; on failure raise with the end of its output."""
    words = [str(part) for part in command]
    done = subprocess.run(words, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    if done.returncode:
        tail = (done.stderr or done.stdout).strip()[-1500:]
        raise RuntimeError(f"`{' '.join(words)}` ended with {done.returncode}:\n{tail}")
    return done.stdout.strip()


def alone(command: list[str]) -> list[str]:
    """Return the command in a network namespace that has nothing but loopback."""
    namespace = ("unshare", "-n") if os.geteuid() == 0 else ("unshare", "-rn")
    return [*namespace, "sh", "-c", 'ip link set lo up; exec "$@"', "alone", *command]


def _python_side(name: str, interpreter: Path, folder: Path, distribution: str) -> Side:
    """Describe a side whose programs are Python files in `folder`."""
    if not interpreter.exists():
        return Side(name, absent="its virtual environment is not set up")
    ask = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    try:
        version = run_quietly(interpreter, "-c", ask)
    except RuntimeError:
        return Side(name, absent=f"`{distribution}` is not installed in its virtual environment")

    def launch(program: str, *arguments: object) -> list[str]:
        return [str(interpreter.absolute()), str(folder / f"{program}.py"), *map(str, arguments)]

    return Side(name, version, launch)


def peer(name: str) -> Side:
    """Describe DBOS or LangGraph, set up by `peers/setup.py`."""
    folder = name.lower()
    return _python_side(name, venv_python(folder), BENCHES / "peers" / folder, folder)


def restate() -> Side:
    """Describe Restate, its server included: without a network, since it looks for updates when it starts."""
    side = _python_side(RESTATE, venv_python("restate"), BENCHES / "peers" / "restate", "restate-sdk")
    launch = side.launch
    if launch is None:
        return side
    manifest = json.loads((BENCHES / "peers" / "restate" / "package.json").read_text())
    server = manifest["dependencies"]["@restatedev/restate-server"]
    return replace(side, version=f"{server}, SDK {side.version}", launch=lambda *words: alone(launch(*words)))


def flovyn_cli(*, build: bool) -> tuple[str, str]:
    """Return the `flovyn` command, built in the release profile, or why there is none."""
    if build:
        run_quietly("cargo", "build", "--release", "-p", "flovyn-cli")
    program = _release() / "flovyn"
    return (str(program), "") if program.exists() else ("", "the command is not built")


def _release() -> Path:
    metadata = json.loads(run_quietly("cargo", "metadata", "--no-deps", "--format-version", "1"))
    return Path(metadata["target_directory"]) / "release"


def flovyn_python(interpreter: Path | None, *, build: bool) -> Side:
    """Describe our Python side: the interpreter given, else an environment of its own with a release build."""
    package = REPOSITORY / "bindings-python"
    if interpreter is None and not (package / "pyproject.toml").exists():
        return Side(FLOVYN_PYTHON, absent="bindings-python is not there yet")
    if interpreter is None:
        interpreter = venv_python("flovyn")
        if build:
            if not interpreter.exists():
                run_quietly(sys.executable, "-m", "venv", interpreter.parent.parent)
            run_quietly(interpreter, "-m", "pip", "install", "--quiet", "--force-reinstall", package)
    return _python_side(FLOVYN_PYTHON, interpreter, BENCHES / "python", "flovyn")


def flovyn_rust(*, build: bool) -> Side:
    """Describe our Rust side: the binary of the crate `flovyn-benches`, built in the release profile."""
    if not (BENCHES / "rust" / "Cargo.toml").exists():
        return Side(FLOVYN_RUST, absent="benches/rust is not there yet")
    metadata = json.loads(run_quietly("cargo", "metadata", "--no-deps", "--format-version", "1"))
    if build:
        run_quietly("cargo", "build", "--release", "-p", "flovyn-benches")
    binary = Path(metadata["target_directory"]) / "release" / "flovyn-benches"
    version = next((p["version"] for p in metadata["packages"] if p["name"] == "flovyn-core"), "")

    def launch(program: str, *arguments: object) -> list[str]:
        return [str(binary), program, *map(str, arguments)]

    return Side(FLOVYN_RUST, version, launch)


def flovyn_node(*, build: bool) -> Side:
    """Describe our Node side: the package that `make node` has built, with an addon of the release profile."""
    package = REPOSITORY / "bindings-node"
    if not (package / "dist" / "index.js").exists():
        return Side(FLOVYN_NODE, absent="bindings-node is not built: make node")
    addon = WORK / "flovyn.node"
    if build:
        run_quietly("cargo", "build", "--release", "-p", "flovyn-node")
        shutil.copyfile(_release() / "libflovyn_node.so", addon)
    if not addon.exists():
        return Side(FLOVYN_NODE, absent="its addon is not built")
    facts = json.loads((package / "package.json").read_text())

    def launch(program: str, *arguments: object) -> list[str]:
        program = str(BENCHES / "node" / f"{program}.mjs")
        return ["env", f"FLOVYN_NATIVE={addon}", "node", program, *map(str, arguments)]

    return Side(FLOVYN_NODE, f"{facts['version']}, Node {run_quietly('node', '--version')}", launch)
