"""Owns how packages are built into dist/: the wheel and its sdist, the npm tarballs, the crates.

Usage: build.py [--profile release] [wheel] [sdist] [npm] [react] [crates]     all of them without a name
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from version import REPOSITORY, version

DIST = REPOSITORY / "dist"
NODE = REPOSITORY / "bindings-node"
REACT = REPOSITORY / "react"
#: What a package that is not for others is built with: all that the tests of Rust were built from is shared.
SHARED = ("--features", "flovyn-cli/as-tested")
CRATES = (
    "flovyn-core-macros",
    "flovyn-proto",
    "flovyn-core",
    "flovyn-toolkit",
    "flovyn-server",
    "flovyn-server-v1",
    "flovyn-cli",
)
#: What a platform's npm package says of itself, by the name Node has for it.
PLATFORMS: dict[str, dict[str, list[str]]] = {
    "linux-x64-gnu": {"os": ["linux"], "cpu": ["x64"], "libc": ["glibc"]},
    "linux-x64-musl": {"os": ["linux"], "cpu": ["x64"], "libc": ["musl"]},
    "linux-arm64-gnu": {"os": ["linux"], "cpu": ["arm64"], "libc": ["glibc"]},
    "linux-arm64-musl": {"os": ["linux"], "cpu": ["arm64"], "libc": ["musl"]},
    "darwin-arm64": {"os": ["darwin"], "cpu": ["arm64"]},
    "darwin-x64": {"os": ["darwin"], "cpu": ["x64"]},
}


def run(*command: str | Path, **how: Any) -> None:
    """Run a command and raise with what it said if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **how)
    if done.returncode:
        raise SystemExit(f"`{' '.join(map(str, command))}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def target() -> Path:
    """Return the folder that cargo builds into."""
    return Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))


def commit() -> str:
    """Return the commit that is built, which the server's metrics name; nothing outside of a clone."""
    asked = ["git", "-C", str(REPOSITORY), "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def wheel(profile: str) -> Iterator[Path]:
    """Build the wheel of this platform: one for every Python from 3.10, on every Linux that is not very old."""
    for old in DIST.glob("flovyn-*.whl"):
        old.unlink()
    maturin = Path(sys.executable).with_name("maturin")
    shared = SHARED if profile == "dev" else ()
    small = ("--compression-level", "9", "--out", DIST)
    run(maturin, "build", "--profile", profile, *shared, *small, cwd=REPOSITORY / "bindings-python")
    (made,) = DIST.glob(f"flovyn-{version()}-*.whl")
    form = r"flovyn-[^-]+-cp310-abi3-(manylinux_\d+_\d+_\w+|macosx_\w+|win_\w+)\.whl"
    if not re.fullmatch(form, made.name):
        raise SystemExit(f"{made.name} is not for every Python from 3.10 or not portable; {form} is expected")
    with zipfile.ZipFile(made) as packed:
        held = packed.namelist()
    for wanted in ("flovyn/__init__.py", "flovyn/py.typed", "flovyn/_native.pyi"):
        if wanted not in held:
            raise SystemExit(f"{made.name} lacks {wanted}")
    yield made


def sdist(_: str) -> Iterator[Path]:
    """Pack the sources of the Python package with those of the crates it is made of."""
    maturin = Path(sys.executable).with_name("maturin")
    run(maturin, "sdist", "--out", DIST, cwd=REPOSITORY / "bindings-python")
    made = DIST / f"flovyn-{version()}.tar.gz"
    with tarfile.open(made) as packed:
        held = packed.getnames()
    for crate in ("core", "toolkit", "server", "proto", "core-macros", "cli"):
        if not any(name.endswith(f"/{crate}/Cargo.toml") for name in held):
            raise SystemExit(f"{made.name} lacks the crate {crate}")
    if not any(name.endswith("/server/console/index.html") for name in held):
        raise SystemExit(f"{made.name} lacks the console")
    yield made


def platform() -> str:
    """Return Node's name for this platform."""
    ask = (
        "const r = process.report.getReport().header; console.log(process.platform + '-' + process.arch + "
        "(process.platform !== 'linux' ? '' : r.glibcVersionRuntime ? '-gnu' : '-musl'))"
    )
    return subprocess.run(["node", "-e", ask], capture_output=True, text=True, check=True).stdout.strip()


def npm(profile: str) -> Iterator[Path]:
    """Pack the Node package, and beside it one that holds nothing but this platform's addon."""
    here = platform()
    shared = SHARED if profile == "dev" else ()
    run("cargo", "build", "--quiet", "--profile", profile, "-p", "flovyn-node", *shared, cwd=REPOSITORY)
    facts = json.loads((NODE / "package.json").read_text())
    kept = {name: value for name, value in facts.items() if name not in ("devDependencies", "scripts")}
    stage = DIST / "npm"
    shutil.rmtree(stage, ignore_errors=True)

    addon = stage / here
    addon.mkdir(parents=True)
    built = "debug" if profile == "dev" else profile
    library = target() / built / ("libflovyn_node.dylib" if here.startswith("darwin") else "libflovyn_node.so")
    shutil.copyfile(library, addon / f"flovyn.{here}.node")
    about = {
        **{name: facts[name] for name in ("version", "license", "repository", "engines")},
        "name": f"{facts['name']}-{here}",
        "description": f"The native part of {facts['name']} for {here}.",
        "main": f"flovyn.{here}.node",
        "files": [f"flovyn.{here}.node"],
        **PLATFORMS[here],
    }
    (addon / "package.json").write_text(json.dumps(about, indent=2) + "\n")
    (addon / "README.md").write_text(f"The native part of `{facts['name']}` for {here}.\n")

    main = stage / "sdk"
    main.mkdir()
    for folder in ("bin", "dist", "esm"):
        shutil.copytree(NODE / folder, main / folder, ignore=shutil.ignore_patterns(".built"))
    shutil.copyfile(NODE / "README.md", main / "README.md")
    kept["files"] = ["bin", "dist", "esm", "README.md"]
    kept["optionalDependencies"] = {f"{facts['name']}-{name}": facts["version"] for name in PLATFORMS if name == here}
    (main / "package.json").write_text(json.dumps(kept, indent=2) + "\n")

    for folder in (main, addon):
        shutil.copyfile(REPOSITORY / "LICENSE", folder / "LICENSE")
        run("npm", "pack", "--silent", "--pack-destination", DIST, cwd=folder)
    shutil.rmtree(stage)
    yield DIST / f"flovyn-sdk-{version()}.tgz"
    yield DIST / f"flovyn-sdk-{here}-{version()}.tgz"


def react(_: str) -> Iterator[Path]:
    """Pack the package for React. `make react-test` shows that what is packed works in another project."""
    run("npm", "run", "--silent", "build", cwd=REACT)
    run("npm", "pack", "--silent", "--pack-destination", DIST, cwd=REACT)
    yield DIST / f"flovyn-react-{version()}.tgz"


def crates(_: str) -> Iterator[Path]:
    """Pack the crates. That what is packed can be built is shown by prove.py, which builds it."""
    chosen = [word for crate in CRATES for word in ("-p", crate)]
    run("cargo", "package", "--quiet", "--no-verify", "--allow-dirty", *chosen, cwd=REPOSITORY)
    for crate in CRATES:
        made = target() / "package" / f"{crate}-{version()}.crate"
        yield Path(shutil.copy(made, DIST))


KINDS = {"wheel": wheel, "sdist": sdist, "npm": npm, "react": react, "crates": crates}


def main() -> int:
    """Build what was asked for and show its size."""
    parser = argparse.ArgumentParser(description="Build the packages into dist/.")
    parser.add_argument("--profile", default="release", help="the profile of native parts (release)")
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="which (all)")
    options = parser.parse_args()
    if not (REPOSITORY / "server" / "console" / "index.html").is_file():
        raise SystemExit("the console is not built, and every package has it: make web")
    DIST.mkdir(exist_ok=True)
    if options.profile != "dev":
        os.environ.setdefault("FLOVYN_COMMIT", commit())
    for kind in options.kinds or KINDS:
        for made in KINDS[kind](options.profile):
            print(f"  {made.stat().st_size / 1e6:7.2f} MB  {made.name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
