"""The chat in a terminal: a long paste, an idle chat, an answer streamed into a long session, one that is resumed.

Usage: chat.py FLOVYN [ENTRIES]

FLOVYN is the command (`target/release/flovyn`); ENTRIES are those of the session that is resumed (20,000). Each figure
is printed with its aim. The scripted model, the agent and its database are in the measured process, so what the screen
costs is less than what is printed. Making the long session takes minutes.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

ROWS, COLUMNS = 50, 120
PASTE = "".join(f"{line} {'otter ' * 10}\r\n" for line in range(3_214))
LONG_ANSWER = '[otherwise]\ntext = "{text}"\n'
STREAMED = "[pace]\nchunkMs = 10\nchunkChars = 4\n" + LONG_ANSWER
BLOCK = "Some *words* and `code` in a line.\\n\\n- one\\n- two\\n\\n```rust\\nfn a() {}\\n```\\n\\n"
LINES_OF_BLOCK = 9
LINES = 10_000
#: What each figure may be, and its unit.
AIMS = {
    "idle, of a core": (1.0, "%"),
    "a paste of 200 KB": (100.0, "ms"),
    "streaming into 10,000 lines, of a core": (20.0, "%"),
    "a session resumed": (1_000.0, "ms"),
}
CALLS = 100
CALL = '{ name = "read", arguments = { path = "otters.txt" } }'
TURN = f"[otherwise]\ntoolCalls = [{', '.join([CALL] * CALLS)}]\n"
ENTRIES_OF_TURN = CALLS + 2  # the answer of the model, what it cost, the results
TICKS = os.sysconf("SC_CLK_TCK")


class Terminal:
    """A chat in a terminal that answers nothing."""

    def __init__(self, command: list[str], home: Path) -> None:
        self.shown = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(home / "project")
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "FLOVYN_HOME": str(home),
                "TERM": "xterm-256color",
            }
            os.execve(command[0], command, environment)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def read(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and select.select([self.fd], [], [], left)[0]:
            try:
                self.shown += os.read(self.fd, 1 << 16)
            except OSError:
                return

    def until(self, text: str, patience: float = 120.0) -> float:
        """Reads until a text is shown; the seconds it took."""
        start, before = time.monotonic(), len(self.shown)
        while text.encode() not in self.shown[max(0, before - 64) :]:
            if time.monotonic() - start > patience:
                raise TimeoutError(text)
            self.read(0.01)
        return time.monotonic() - start

    def write(self, text: str) -> None:
        data = text.encode()
        while data:
            ready = select.select([self.fd], [self.fd], [])
            if ready[0]:
                self.read(0)
                self.shown += os.read(self.fd, 1 << 16)
            if ready[1]:
                data = data[os.write(self.fd, data[:4_096]) :]

    def cpu_percent(self, seconds: float) -> float:
        def spent() -> int:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])

        before, start = spent(), time.monotonic()
        self.read(seconds)
        while time.monotonic() - start < seconds:
            self.read(seconds - (time.monotonic() - start))
            time.sleep(0.01)
        return (spent() - before) / TICKS / (time.monotonic() - start) * 100

    def end(self) -> None:
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def run_quietly(command: list[str], home: Path, wanted: int) -> None:
    """Runs a chat without a conversation, which has to end with this exit code."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "FLOVYN_HOME": str(home)}
    done = subprocess.run(command, cwd=home / "project", env=environment, capture_output=True, check=False)
    if done.returncode != wanted:
        raise RuntimeError(done.stderr.decode())


def main(flovyn: str, entries: int) -> None:
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "project").mkdir()
        script = home / "script.toml"
        chat = [flovyn, "chat", f"--fake={script}"]

        script.write_text(LONG_ANSWER.format(text=BLOCK * (LINES // LINES_OF_BLOCK + 1)))
        run_quietly([*chat, "-p", "Tell all of it."], home, 0)
        script.write_text(STREAMED.format(text=BLOCK * 400))
        terminal = Terminal([*chat, "--resume"], home)
        terminal.until("/help")
        terminal.read(1.0)
        figures["idle, of a core"] = terminal.cpu_percent(5.0)
        start = time.monotonic()
        terminal.write(f"\x1b[200~{PASTE}\x1b[201~")
        terminal.until("3,214 lines")
        figures["a paste of 200 KB"] = (time.monotonic() - start) * 1000
        terminal.write("\x15go\r")
        terminal.until("Some ")
        figures["streaming into 10,000 lines, of a core"] = terminal.cpu_percent(10.0)
        terminal.end()

        script.write_text(TURN)
        (home / "project" / "otters.txt").write_text("They hold hands.\n" * 10)
        turns = -(-entries // ENTRIES_OF_TURN)
        run_quietly([*chat, "-p", "Read them.", "--max-turns", str(turns)], home, 3)
        start = time.monotonic()
        terminal = Terminal([*chat, "--resume"], home)
        terminal.until("/help")
        figures["a session resumed"] = (time.monotonic() - start) * 1000
        terminal.end()
    for name, figure in figures.items():
        aim, unit = AIMS[name]
        shown = f"{name} ({entries:,} entries)" if name == "a session resumed" else name
        print(
            f"{shown:<42} {figure:>8.1f} {unit:<2}  aim {aim:>7,.0f} {unit:<2}  {'met' if figure <= aim else 'MISSED'}"
        )


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20_000)
