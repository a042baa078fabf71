"""The ``flovyn`` command."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run the command with the process's arguments and return its exit code."""
    from . import _native

    # Ctrl-C is the command's own: it ends in order, or at once. Python would raise KeyboardInterrupt after the end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.cli(["flovyn", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
