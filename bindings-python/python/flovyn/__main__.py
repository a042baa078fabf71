"""The ``flovyn`` command."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command with the process's arguments and return its exit code."""
    from . import _native

    return _native.cli(["flovyn", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
