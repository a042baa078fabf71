"""Prints the OpenAPI document of the server that the installed `flovyn` starts.

Usage: document.py >FILE
"""

from __future__ import annotations

import tempfile
import urllib.request
from pathlib import Path

from serving import serving


def main() -> None:
    """Ask a server for its document."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        answer = urllib.request.urlopen(f"{server.http}/openapi.json")
        print(answer.read().decode())


if __name__ == "__main__":
    main()
