"""Runs every Python and TypeScript example and the demo in a folder of its own, and fails if one of them does.

The Rust examples are run by `cargo test` (crate `flovyn-examples`). The TypeScript ones are compiled into the Node package,
where they find it by its own name. Usage: run_all.py [NAME…]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
NODE_PACKAGE = HERE.parent / "bindings-node"


def programs(names: list[str]) -> list[Path]:
    """Return the programs to run, in order."""
    found = [*sorted(HERE.glob("[0-9]*/*/*.py")), *sorted(HERE.glob("[0-9]*/*/*.mts")), HERE / "demo" / "demo.py"]
    # A worker is started by the program beside it.
    chosen = [path for path in found if path.stem != "worker"]
    return [path for path in chosen if not names or any(name in str(path) for name in names)]


def command(path: Path) -> list[str]:
    """Return what runs a program."""
    if path.suffix == ".py":
        return [sys.executable, str(path)]
    return ["node", str(NODE_PACKAGE / ".examples" / path.relative_to(HERE).with_suffix(".mjs"))]


def main() -> None:
    """Run them one by one."""
    failed = 0
    if any(path.suffix == ".mts" for path in programs(sys.argv[1:])):
        subprocess.run(["npm", "run", "--silent", "examples"], cwd=NODE_PACKAGE, check=True)
    for path in programs(sys.argv[1:]):
        name = str(path.relative_to(HERE))
        with tempfile.TemporaryDirectory(prefix="flovyn-example-") as folder:
            arguments = [] if path.name == "demo.py" else [str(Path(folder) / "example.db")]
            if path.stem == "approval":
                arguments = ["both", *arguments]
            start = time.perf_counter()
            done = subprocess.run(
                [*command(path), *arguments], cwd=folder, capture_output=True, text=True, timeout=180, check=False
            )
        verdict = "ok" if done.returncode == 0 else "FAILED"
        print(f"  {verdict:<6} {name} ({time.perf_counter() - start:.1f} s)", flush=True)
        if done.returncode != 0:
            failed += 1
            print(done.stdout, done.stderr, sep="\n")
    print(f"{len(programs(sys.argv[1:])) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
