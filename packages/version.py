"""Owns the one version: where it is written, how it is raised, and whether a tag names it.

version.py              prints it
version.py 0.2.0        writes another one into every manifest and names what is unreleased in the changelog
version.py --check v0.2.0   fails unless the tag is of this version
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
MANIFEST = REPOSITORY / "Cargo.toml"
CHANGELOG = REPOSITORY / "CHANGELOG.md"
#: The npm packages that are published.
NPM = (REPOSITORY / "bindings-node", REPOSITORY / "react")
FORM = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?")


def version() -> str:
    """Return the version of the workspace."""
    found = re.search(r'^\[workspace\.package\]\nversion = "([^"]+)"', MANIFEST.read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{MANIFEST} has no version under [workspace.package]")
    return found.group(1)


def write(new: str) -> None:
    """Write a version into every manifest."""
    old = version()
    manifest = MANIFEST.read_text().replace(f'version = "{old}"', f'version = "{new}"')
    MANIFEST.write_text(manifest)
    for path in (folder / name for folder in NPM for name in ("package.json", "package-lock.json")):
        text = path.read_text()
        facts = json.loads(text)
        places = 2 if path.name == "package-lock.json" else 1
        assert facts["version"] == old, f"{path} has version {facts['version']}, but {old} is expected"
        path.write_text(text.replace(f'"version": "{old}"', f'"version": "{new}"', places))
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    changelog = CHANGELOG.read_text()
    if f"## [{new}]" not in changelog:
        CHANGELOG.write_text(changelog.replace("## [Unreleased]\n", f"## [Unreleased]\n\n## [{new}] - {today}\n", 1))
    subprocess.run(["cargo", "update", "--workspace", "--offline", "--quiet"], cwd=REPOSITORY, check=True)


def main(words: list[str]) -> int:
    """Do what the command line says."""
    match words:
        case []:
            print(version())
        case ["--check", tag]:
            if tag != f"v{version()}":
                print(f"the tag {tag} is not of this version: v{version()} is expected")
                return 1
        case [new] if FORM.fullmatch(new):
            write(new)
            print(f"every manifest says {new} now; commit it and tag v{new}")
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
