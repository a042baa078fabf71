"""Owns the peers' virtual environments: one per peer under `benches/.work`, from its pinned requirements.

Usage: peers/setup.py [dbos] [langgraph]      without names: all of them. Up to date ones are left alone.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

PEERS = Path(__file__).resolve().parent
WORK = PEERS.parent / ".work"


def set_up(name: str) -> None:
    """Create the environment of one peer, or bring it up to date with its requirements."""
    requirements = PEERS / name / "requirements.txt"
    environment = WORK / f"venv-{name}"
    installed = environment / "requirements.txt"
    if installed.exists() and installed.read_text() == requirements.read_text():
        return
    print(f"setting up {name} in {environment.relative_to(PEERS.parent)}", flush=True)
    venv.create(environment, with_pip=True, clear=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
    installed.write_text(requirements.read_text())


def main(names: list[str]) -> None:
    known = sorted(path.parent.name for path in PEERS.glob("*/requirements.txt"))
    unknown = set(names) - set(known)
    if unknown:
        raise SystemExit(f"unknown peers: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    for name in names or known:
        set_up(name)


if __name__ == "__main__":
    main(sys.argv[1:])
