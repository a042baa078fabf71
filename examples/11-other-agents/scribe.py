"""An agent that speaks the Agent Client Protocol: it keeps what it is told in notes.txt, and asks before it writes.

It stands for the agents of others that speak it, such as codex-acp or gemini, and is started as they are.
"""

import json
import sys
from pathlib import Path
from typing import Any

NOTES = Path("notes.txt")


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def update(**what: Any) -> None:
    send(method="session/update", params={"sessionId": "scribe", "update": what})


def ask(note: str) -> None:
    """Ask whether the note may be written."""
    call = {"toolCallId": "write", "title": "Write notes.txt", "kind": "edit", "rawInput": {"path": str(NOTES), "text": note}}
    options = [{"optionId": word, "name": word, "kind": kind} for word, kind in (("yes", "allow_once"), ("no", "reject_once"))]
    send(id="may-i", method="session/request_permission", params={"sessionId": "scribe", "toolCall": call, "options": options})


def write(note: str) -> None:
    """Do it, and say so."""
    with NOTES.open("a") as file:
        file.write(note + "\n")
    done = [{"type": "content", "content": {"type": "text", "text": "written"}}]
    update(sessionUpdate="tool_call_update", toolCallId="write", status="completed", content=done)
    update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": f"I have noted: {note}"})


def main() -> None:
    asked, note = None, ""
    for line in sys.stdin:
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                about = {"name": "scribe", "version": "1.0"}
                capabilities = {"sessionCapabilities": {"resume": {}}}
                result = {"protocolVersion": 1, "agentCapabilities": capabilities, "agentInfo": about}
                send(id=message["id"], result=result)
            case "session/new":
                send(id=message["id"], result={"sessionId": "scribe"})
            case "session/resume":
                send(id=message["id"], result={})
            case "session/prompt":
                asked, note = message["id"], message["params"]["prompt"][0]["text"]
                ask(note)
            case None:
                if message["result"]["outcome"].get("optionId") == "yes":
                    write(note)
                send(id=asked, result={"stopReason": "end_turn"})


if __name__ == "__main__":
    main()
