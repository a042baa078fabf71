"""Owns the proof that packages work: each is installed into an empty environment, where the first example runs twice.

Usage: prove.py [wheel] [sdist] [npm] [crates]      what build.py has put into dist/; all of them without a name
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import venv
from pathlib import Path

from build import CRATES, DIST, NODE, SHARED, platform, target
from version import REPOSITORY, version

HELLO = REPOSITORY / "examples" / "01-hello"
GREETING = "Hello, world!"

#: What a bare machine has: nothing that points to this repository, nor that lints what is compiled.
OURS = ("FLOVYN_", "PYTHON", "VIRTUAL_ENV", "CLIPPY_", "RUSTC_WORKSPACE_WRAPPER")
BARE = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}


#: What packed sources are built with: what is shown is that nothing is missing. No crate is built so in the workspace:
#: what is built alike in one target folder takes the place of the other's, and what was made of that is built again.
QUICK = {"profile.dev.debug": "false"} | {
    f"profile.dev.package.{crate}.{setting}": value
    for crate in (*CRATES, "flovyn-python")
    for setting, value in (("opt-level", "0"), ("debug-assertions", "false"))
}


def run(folder: Path, *command: str | Path, more: dict[str, str] | None = None) -> str:
    """Run a command in a folder and return what it printed."""
    words = [str(word) for word in command]
    environment = BARE | (more or {})
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"`{' '.join(words)}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def greets_twice(folder: Path, *command: str | Path) -> None:
    """Run the first example twice: the second time nothing runs and the recorded result comes back."""
    first, second = run(folder, *command), run(folder, *command)
    assert first.split("\n")[:2] == ["greeting world", GREETING], f"the first run printed {first!r}"
    assert second.strip() == GREETING, f"the second run printed {second!r}"


def shows_console(folder: Path, *command: str | Path) -> None:
    """Start a developer's server and ask it for the first page of its console."""
    words = [str(word) for word in command] + [
        "dev",
        "--json",
        "--db",
        "memory:",
        "--http-port",
        "0",
        "--grpc-port",
        "0",
    ]
    environment = BARE | {"FLOVYN_HOME": str(folder / "home")}
    server = subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        told = json.loads(server.stdout.readline() if server.stdout else "{}")
        assert "/sign-in#code=" in (told["console"] or ""), f"flovyn dev printed {told!r}"
        page = urllib.request.Request(told["http"], headers={"Accept": "text/html"})
        answer = urllib.request.urlopen(page).read().decode()
        assert "/assets/" in answer, f"the console is {answer!r}"
    finally:
        server.terminate()
        server.wait()


def _python(folder: Path, package: Path, more: dict[str, str] | None = None) -> None:
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    run(folder, programs / "python", "-m", "pip", "install", "--quiet", package, more=more)
    greets_twice(folder, programs / "python", HELLO / "python" / "hello.py")
    told = run(folder, programs / "flovyn", "--version")
    assert version() in told, f"flovyn --version printed {told!r}"
    shows_console(folder, programs / "flovyn")


def wheel(folder: Path) -> None:
    """Install the wheel into an empty virtual environment."""
    (package,) = DIST.glob(f"flovyn-{version()}-*.whl")
    _python(folder, package)


def sdist(folder: Path) -> None:
    """Install the sdist into an empty virtual environment, which builds it."""
    quick = " ".join(f"--config {name}={value}" for name, value in QUICK.items())
    more = {"MATURIN_PEP517_ARGS": f"--profile dev {' '.join(SHARED)} {quick}", "CARGO_TARGET_DIR": str(target())}
    _python(folder, DIST / f"flovyn-{version()}.tar.gz", more)


def npm(folder: Path) -> None:
    """Install the npm tarballs into an empty folder; run them as a module, as CommonJS and as a command."""
    (folder / "package.json").write_text('{"private": true}\n')
    packages = [DIST / f"flovyn-sdk-{version()}.tgz", DIST / f"flovyn-sdk-{platform()}-{version()}.tgz"]
    run(folder, "npm", "install", "--silent", "--no-audit", "--no-fund", *packages)
    run(NODE, "npm", "run", "--silent", "examples")
    hello = NODE / ".examples" / "01-hello" / "typescript" / "hello.mjs"
    (folder / "hello.mjs").write_text(hello.read_text())
    greets_twice(folder, "node", "hello.mjs")
    told = run(folder, "node", "-e", "console.log(typeof require('@flovyn/sdk').agent)")
    assert told.strip() == "function", f"as CommonJS it printed {told!r}"
    told = run(folder, "npx", "--no-install", "flovyn", "--version")
    assert version() in told, f"flovyn --version printed {told!r}"
    shows_console(folder, folder / "node_modules" / ".bin" / "flovyn")


def crates(folder: Path) -> None:
    """Build the first example and the command against the packed crates, as another project would."""
    for crate in CRATES:
        shutil.unpack_archive(DIST / f"{crate}-{version()}.crate", folder, "gztar")
    (folder / "src").mkdir()
    (folder / "src" / "main.rs").write_text((HELLO / "rust" / "hello.rs").read_text())
    patches = "".join(f'{crate} = {{ path = "{crate}-{version()}" }}\n' for crate in CRATES)
    # The workspace's own profiles, features and compiler: what others have written is not built again.
    profiles = re.findall(r"^\[profile\.dev.*?(?=^\[|\Z)", (REPOSITORY / "Cargo.toml").read_text(), re.M | re.S)
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "hello"\nedition = "2024"\n\n[dependencies]\n'
        f'flovyn-cli = {{ version = "{version()}", features = ["as-tested"] }}\nflovyn-core = "{version()}"\n'
        'tokio = { version = "1", features = ["macros", "rt-multi-thread"] }\n\n'
        f"[workspace]\n\n[patch.crates-io]\n{patches}\n{''.join(profiles)}"
    )
    (folder / "Cargo.lock").write_text((REPOSITORY / "Cargo.lock").read_text())
    shutil.copy(REPOSITORY / "rust-toolchain.toml", folder)
    quick = [word for name, value in QUICK.items() for word in ("--config", f"{name}={value}")]
    run(folder, "cargo", "build", "--quiet", *quick, more={"CARGO_TARGET_DIR": str(target())})
    greets_twice(folder, target() / "debug" / "hello")


KINDS = {"wheel": wheel, "sdist": sdist, "npm": npm, "crates": crates}


def main() -> int:
    """Prove what was asked for."""
    parser = argparse.ArgumentParser(description="Install packages into empty environments and run them.")
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="which (all)")
    for kind in parser.parse_args().kinds or KINDS:
        with tempfile.TemporaryDirectory(prefix=f"flovyn-{kind}-") as folder:
            KINDS[kind](Path(folder))
        print(f"  ok      {kind}: installed into an empty environment, where the first example runs", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
