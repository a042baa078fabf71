"""The ``flovyn`` command."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command with the process's arguments and return its exit code."""
    from . import _native

    cli = getattr(_native, "cli", None)
    if cli is None:
        print("flovyn: this build has no command line", file=sys.stderr)
        return 2
    return int(cli(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
