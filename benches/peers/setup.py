"""Owns the peers' environments: one per peer under `benches/.work`, from its pinned requirements and npm packages.

Usage: peers/setup.py [dbos] [langgraph] [restate]      without names: all of them. Up to date ones are left alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

PEERS = Path(__file__).resolve().parent
WORK = PEERS.parent / ".work"


def set_up(name: str) -> None:
    """Create the environment of one peer, or bring it up to date with its requirements."""
    requirements, manifest = PEERS / name / "requirements.txt", PEERS / name / "package.json"
    environment = WORK / f"venv-{name}"
    installed = environment / "requirements.txt"
    wanted = requirements.read_text() + (manifest.read_text() if manifest.exists() else "")
    if installed.exists() and installed.read_text() == wanted:
        return
    print(f"setting up {name} in {environment.relative_to(PEERS.parent)}", flush=True)
    venv.create(environment, with_pip=True, clear=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
    if manifest.exists():
        shutil.copy(manifest, environment)
        quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
        subprocess.run(["npm", "install", *quiet], cwd=environment, check=True)
    installed.write_text(wanted)


def main(names: list[str]) -> None:
    known = sorted(path.parent.name for path in PEERS.glob("*/requirements.txt"))
    unknown = set(names) - set(known)
    if unknown:
        raise SystemExit(f"unknown peers: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    for name in names or known:
        set_up(name)


if __name__ == "__main__":
    main(sys.argv[1:])
