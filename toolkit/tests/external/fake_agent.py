"""An agent that does what its prompts say, in the protocols `acp`, `pi` and `claude`, with the faults that agents have.

A prompt is a list of steps, separated by `;`. What a step does is logged to `log.jsonl` in the folder FAKE_DIR, where
sessions are kept as well: a process that resumes one and is told to go on does the steps that were left.
"""

import json
import os
import pathlib
import queue
import sys
import threading
import time
import uuid

FOLDER = pathlib.Path(os.environ["FAKE_DIR"])
LOCK = threading.RLock()


def log(**facts):
    with LOCK, (FOLDER / "log.jsonl").open("a") as file:
        file.write(json.dumps(facts) + "\n")


def put(record):
    with LOCK:
        line = record if isinstance(record, str) else json.dumps(record, ensure_ascii=False)
        sys.stdout.buffer.write(line.encode() + b"\n")
        sys.stdout.buffer.flush()


class Session:
    """What an agent keeps of a conversation: what was said, and what is left to do."""

    def __init__(self, id):
        self.id = id
        self.path = FOLDER / f"session-{id}.jsonl"
        self.left_path = FOLDER / f"session-{id}.left"

    def exists(self):
        return self.path.exists()

    def items(self):
        return [json.loads(line) for line in self.path.read_text().split("\n") if line]

    def add(self, **item):
        with self.path.open("a") as file:
            file.write(json.dumps(item) + "\n")
        return len(self.items())

    def left(self):
        return json.loads(self.left_path.read_text()) if self.left_path.exists() else []

    def leave(self, steps):
        written = self.left_path.with_suffix(".new")
        written.write_text(json.dumps(steps))
        written.replace(self.left_path)


class Agent:
    """The steps, in the words of no protocol."""

    def __init__(self):
        self.session = None
        self.cancelled = threading.Event()
        self.answers = {}
        self.steered = []

    def prompt(self, text):
        log(event="prompt", text=text, pid=os.getpid())
        self.session.add(user=text)
        self.cancelled.clear()
        if text.startswith("You were interrupted"):
            steps = self.session.left()
        else:
            steps = [step.strip() for step in text.split(";")]
        self.session.leave(steps)
        threading.Thread(target=self.turn, args=(steps,), daemon=True).start()

    def turn(self, steps):
        while steps:
            if self.cancelled.is_set():
                return self.end("cancelled")
            word, _, rest = steps[0].partition(" ")
            self.is_last = len(steps) == 1
            if word == "fail":
                return self.end("error", rest)
            getattr(self, "do_" + word, self.do_say_all)(rest or word)
            steps = steps[1:]
            self.session.leave(steps)
            steps += self.take_up(steps)
        self.end("end")

    def take_up(self, steps):
        """The steps of messages that have steered the turn, while it had these left."""
        taken, self.steered = self.steered, []
        for text in taken:
            self.session.add(user=text)
        return [step.strip() for text in taken for step in text.split(";")]

    def do_say(self, text):
        for piece in (text[:2], text[2:]):
            self.text(piece)
        self.session.add(text=text, last=self.is_last)
        self.message_end(text)

    def do_say_all(self, text):
        self.do_say(text)

    def do_think(self, text):
        self.thought(text)

    def do_separators(self, _):
        self.do_say("a\u2028b\u2029c\u0085d")

    def do_tool(self, name):
        id = f"call-{uuid.uuid4().hex[:8]}"
        self.tool_start(id, name, {"path": "otters.txt"})
        self.session.add(tool=id, name=name)
        log(event="tool", name=name, id=id)
        self.tool_end(id, name, f"{name} is done", False)
        self.session.add(ended=id, name=name, content=f"{name} is done")

    def do_open(self, name):
        """A tool that takes its time."""
        id = f"call-{uuid.uuid4().hex[:8]}"
        self.tool_start(id, name, {"target": name})
        self.session.add(tool=id, name=name)
        log(event="open", name=name)
        until = time.time() + 20
        while time.time() < until and not (FOLDER / "go").exists() and not self.cancelled.is_set():
            time.sleep(0.01)
        self.tool_end(id, name, f"{name} is done", False)
        self.session.add(ended=id, name=name, content=f"{name} is done")

    def do_ask(self, command):
        id = f"ask-{command.replace(' ', '-')}"
        allowed = self.permission(id, command)
        log(event="answer", command=command, allowed=allowed)
        self.do_say(f"{command} was {'allowed' if allowed else 'not allowed'}")

    def do_garbage(self, _):
        put("Welcome to the fake agent! {not json")
        put("[1, 2]")
        put("")

    def do_noise(self, _):
        """Records of no known sort, and bytes that are no text."""
        for line in ('null', '42', '"text"', "{}", '{"type": "unheard", "method": 7}', '{"jsonrpc": "2.0", "id": 987654, "result": null}'):
            put(line)
        with LOCK:
            sys.stdout.buffer.write(b"\xff\xfe\x00 no text\r\n")
            sys.stdout.buffer.flush()

    def do_huge(self, _):
        put(json.dumps({"x": "y" * (33 << 20)}))

    def do_stderr(self, text):
        print(text, file=sys.stderr, flush=True)

    def do_hang(self, once):
        marker = FOLDER / "hung"
        if once == "once" and marker.exists():
            return
        marker.touch()
        log(event="hang")
        time.sleep(600)

    def do_stubborn(self, _):
        """A hang that no request to stop ends."""
        self.text("never")
        self.do_hang(_)

    def do_die(self, once):
        marker = FOLDER / "died"
        if once != "once" or not marker.exists():
            marker.touch()
            print("the fake agent dies now", file=sys.stderr, flush=True)
            os._exit(7)

    def do_wait(self, name):
        """Until the test lets it."""
        log(event="wait", name=name)
        while not (FOLDER / name).exists() and not self.cancelled.is_set():
            time.sleep(0.01)

    def do_slow(self, _):
        time.sleep(0.2)

    def closed(self):
        """Its input has ended."""

    def message_end(self, text):
        pass

    def wait_for(self, id, timeout=600):
        until = time.time() + timeout
        while id not in self.answers and time.time() < until and not self.cancelled.is_set():
            time.sleep(0.005)
        return self.answers.pop(id, None)


class Acp(Agent):
    def __init__(self):
        super().__init__()
        self.prompt_id = None
        self.next = 100

    def update(self, **update):
        put({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": self.session.id, "update": update}})

    def block(self, text):
        return {"type": "text", "text": text}

    def text(self, text):
        self.update(sessionUpdate="agent_message_chunk", content=self.block(text))

    def thought(self, text):
        self.update(sessionUpdate="agent_thought_chunk", content=self.block(text))

    def tool_start(self, id, name, args):
        self.update(sessionUpdate="tool_call", toolCallId=id, title=f"The {name}", kind=name, status="pending", rawInput=args)

    def tool_end(self, id, name, content, failed):
        content = [{"type": "content", "content": self.block(content)}]
        self.update(sessionUpdate="tool_call_update", toolCallId=id, status="failed" if failed else "completed", content=content)

    def request(self, method, **params):
        self.next += 1
        id = self.next
        put({"jsonrpc": "2.0", "id": id, "method": method, "params": {"sessionId": self.session.id, **params}})
        return self.wait_for(id)

    def permission(self, id, command):
        call = {"toolCallId": id, "title": f"Run {command}", "kind": "execute", "rawInput": {"command": command}}
        options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}, {"optionId": "no", "name": "No", "kind": "reject_once"}]
        answer = self.request("session/request_permission", toolCall=call, options=options)
        allowed = bool(answer) and answer.get("result", {}).get("outcome", {}).get("optionId") == "yes"
        self.tool_end(id, "execute", "it ran" if allowed else "it did not run", not allowed)
        return allowed

    def do_write(self, rest):
        path, _, content = rest.partition(" ")
        answer = self.request("fs/write_text_file", path=str(pathlib.Path.cwd() / path), content=content)
        self.do_say("written" if "result" in answer else answer["error"]["message"])

    def do_read(self, path):
        answer = self.request("fs/read_text_file", path=path if path.startswith("/") else str(pathlib.Path.cwd() / path))
        self.do_say(answer["result"]["content"] if "result" in answer else answer["error"]["message"])

    def do_run(self, command):
        answer = self.request("terminal/create", command=command)
        if "error" in answer:
            return self.do_say(answer["error"]["message"])
        terminal = answer["result"]["terminalId"]
        ended = self.request("terminal/wait_for_exit", terminalId=terminal)["result"]
        output = self.request("terminal/output", terminalId=terminal)["result"]
        self.request("terminal/release", terminalId=terminal)
        self.do_say(f"{output['output'].strip()} ({ended['exitCode']})")

    def do_spend(self, amount):
        self.update(sessionUpdate="usage_update", used=10, size=100, cost={"amount": float(amount), "currency": "USD"})

    def end(self, reason, message=None):
        answer = {"jsonrpc": "2.0", "id": self.prompt_id}
        if reason == "error":
            put({**answer, "error": {"code": -32000, "message": message}})
        else:
            put({**answer, "result": {"stopReason": {"end": "end_turn", "cancelled": "cancelled"}[reason]}})

    def replay(self):
        for item in self.session.items():
            if "user" in item:
                self.update(sessionUpdate="user_message_chunk", content=self.block(item["user"]))
            elif "text" in item:
                self.text(item["text"])
            elif "tool" in item:
                self.tool_start(item["tool"], item["name"], {"path": "otters.txt"})
            elif "ended" in item:
                self.tool_end(item["ended"], item["name"], item["content"], False)

    def on(self, record):
        method, params, id = record.get("method"), record.get("params", {}), record.get("id")
        reply = lambda result: put({"jsonrpc": "2.0", "id": id, "result": result})
        if method is None:
            self.answers[id] = record
        elif method == "initialize":
            if "slow" in sys.argv:
                time.sleep(1)
            capabilities = {} if "forgetful" in sys.argv else {"loadSession": True}
            if "resuming" in sys.argv:
                capabilities = {"sessionCapabilities": {"resume": {}}}
            reply({"protocolVersion": 1, "agentCapabilities": capabilities, "agentInfo": {"name": "fake", "version": "1.0"}})
        elif method == "session/new":
            self.session = Session(uuid.uuid4().hex)
            log(event="new", session=self.session.id)
            reply({"sessionId": self.session.id})
        elif method in ("session/load", "session/resume"):
            self.session = Session(params["sessionId"])
            log(event=method, session=self.session.id)
            if not self.session.exists():
                return put({"jsonrpc": "2.0", "id": id, "error": {"code": -32002, "message": "no such session"}})
            if method == "session/load":
                self.replay()
            reply({})
        elif method == "session/prompt":
            self.prompt_id = id
            self.prompt("".join(block["text"] for block in params["prompt"]))
        elif method == "session/cancel":
            log(event="cancel")
            self.cancelled.set()


class Pi(Agent):
    """`pi --mode rpc --session-id ID`."""

    def __init__(self):
        super().__init__()
        self.session = Session(sys.argv[sys.argv.index("--session-id") + 1])
        log(event="resumed" if self.session.exists() else "new", session=self.session.id)
        self.session.path.touch()

    def say_update(self, kind, **fields):
        put({"type": "message_update", "usage": {}, "assistantMessageEvent": {"type": kind, "contentIndex": 0, **fields}})

    def text(self, text):
        self.say_update("text_delta", delta=text)

    def thought(self, text):
        self.say_update("thinking_delta", delta=text)

    def message_end(self, text):
        put({"type": "message_end", "message": self.message(text, self.is_last)})

    def message(self, text, is_last):
        usage = {"input": 10, "output": 2, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 12, "cost": {"total": 0.001}}
        content = [{"type": "text", "text": text}]
        return {"role": "assistant", "content": content, "provider": "fake", "model": "m", "usage": usage, "stopReason": "stop" if is_last else "toolUse"}

    def tool_start(self, id, name, args):
        put({"type": "tool_execution_start", "toolCallId": id, "toolName": name, "args": args})

    def tool_end(self, id, name, content, failed):
        result = {"content": [{"type": "text", "text": content}]}
        put({"type": "tool_execution_end", "toolCallId": id, "toolName": name, "result": result, "isError": failed})

    def permission(self, id, command):
        put({"type": "extension_ui_request", "id": id, "method": "confirm", "title": f"Run {command}?"})
        return (self.wait_for(id) or {}).get("confirmed", False)

    def end(self, reason, message=None):
        if reason != "end":
            stop = {"cancelled": "aborted", "error": "error"}[reason]
            put({"type": "message_end", "message": {"role": "assistant", "content": [], "stopReason": stop, "errorMessage": message}})
        put({"type": "agent_end", "messages": [], "willRetry": False})
        put({"type": "agent_settled", "aborted": reason == "cancelled"})

    def entries(self, since):
        entries = []
        for number, item in enumerate(self.session.items()):
            message = None
            if "user" in item:
                message = {"role": "user", "content": [{"type": "text", "text": item["user"]}]}
            elif "text" in item:
                message = self.message(item["text"], item["last"])
            elif "tool" in item:
                call = {"type": "toolCall", "id": item["tool"], "name": item["name"], "arguments": {}}
                message = {"role": "assistant", "content": [call], "stopReason": "toolUse"}
            elif "ended" in item:
                content = [{"type": "text", "text": item["content"]}]
                message = {"role": "toolResult", "toolCallId": item["ended"], "toolName": item["name"], "content": content, "isError": False}
            entries.append({"type": "message", "id": str(number), "message": message})
        leaf = entries[-1]["id"] if entries else None
        return {"entries": entries[int(since) + 1 :] if since else entries, "leafId": leaf}

    def on(self, record):
        kind = record["type"]
        reply = lambda data=None: put({"id": record.get("id"), "type": "response", "command": kind, "success": True, "data": data})
        if kind == "get_state":
            reply({"sessionId": self.session.id, "isStreaming": False})
        elif kind == "get_entries":
            reply(self.entries(record.get("since")))
        elif kind == "prompt":
            reply({"disposition": "started"})
            self.prompt(record["message"])
        elif kind == "steer":
            log(event="steer", text=record["message"])
            self.steered.append(record["message"])
            reply({"disposition": "queued"})
        elif kind == "abort":
            log(event="cancel")
            self.cancelled.set()
            reply()
        elif kind == "extension_ui_response":
            self.answers[record["id"]] = record


class Claude(Agent):
    """`claude -p --input-format stream-json … --session-id ID | --resume ID`, as version 2.1 speaks."""

    def __init__(self):
        super().__init__()
        resumed = "--resume" in sys.argv
        self.session = Session(sys.argv[sys.argv.index("--resume" if resumed else "--session-id") + 1])
        used = FOLDER / f"used-{self.session.id}"
        if resumed and not self.session.exists():
            why = f"No conversation found with session ID: {self.session.id}"
            self.say("result", subtype="error_during_execution", is_error=True, errors=[why], usage={}, total_cost_usd=0)
            sys.exit(why)
        if not resumed and used.exists():
            sys.exit(f"Error: Session ID {self.session.id} is already in use.")
        log(event="resumed" if resumed else "new", session=self.session.id)
        self.used = used
        # Its own records are where Claude Code keeps them.
        project = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in str(pathlib.Path.cwd()))
        kept = pathlib.Path(os.environ["CLAUDE_CONFIG_DIR"]) / "projects" / project
        kept.mkdir(parents=True, exist_ok=True)
        self.kept = kept / f"{self.session.id}.jsonl"
        # What it has cost counts from where the last process ended that could say so.
        lines = self.kept.read_text().split("\n") if self.kept.exists() else []
        costs = [json.loads(line) for line in lines if "cost-state" in line]
        self.cost = costs[-1]["totalCostUSD"] if costs else 0
        self.is_idle = True

    def closed(self):
        self.write(type="cost-state", totalCostUSD=self.cost)

    def write(self, **line):
        with self.kept.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def keep(self, type, content, **fields):
        self.write(type=type, message={"role": type, "content": content, **fields})

    def prompt(self, text):
        self.used.touch()
        if text.startswith("vanish") and not (FOLDER / "vanished").exists():
            # It has the session's id, and nothing of the conversation.
            (FOLDER / "vanished").touch()
            os._exit(7)
        self.keep("user", text)
        super().prompt(text)

    def do_vanish(self, _):
        pass

    def say(self, type, **fields):
        # The id of one process: not that of the session.
        put({"type": type, "session_id": "another", "parent_tool_use_id": None, **fields})

    def repeat(self, text, id):
        self.say("user", message={"role": "user", "content": [{"type": "text", "text": text}]}, uuid=id, isReplay=True)

    def take_up(self, steps):
        """Between two calls of its model. After the last one, what has come begins a turn of its own."""
        if not steps:
            return []
        for text, id in self.steered:
            self.write(type="attachment", attachment={"type": "queued_command", "prompt": [{"type": "text", "text": text}]})
            self.repeat(text, id)
        self.steered = [text for text, _ in self.steered]
        return super().take_up(steps)

    def piece(self, **delta):
        self.say("stream_event", event={"type": "content_block_delta", "index": 0, "delta": delta})

    def text(self, text):
        self.piece(type="text_delta", text=text)

    def thought(self, text):
        self.piece(type="thinking_delta", thinking=text)

    def message_end(self, text):
        content = [{"type": "text", "text": text}]
        self.keep("assistant", content, stop_reason="end_turn" if self.is_last else "tool_use")
        self.say("assistant", message={"role": "assistant", "content": content})
        self.say("stream_event", event={"type": "message_start"})

    def tool_start(self, id, name, args):
        content = [{"type": "tool_use", "id": id, "name": name, "input": args}]
        self.keep("assistant", content, stop_reason="tool_use")
        self.say("assistant", message={"role": "assistant", "content": content})

    def tool_end(self, id, name, content, failed):
        content = [{"type": "tool_result", "tool_use_id": id, "content": content, "is_error": failed}]
        self.keep("user", content)
        self.say("user", message={"role": "user", "content": content})

    def permission(self, id, command):
        request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": command}, "tool_use_id": id}
        put({"type": "control_request", "request_id": id, "request": request})
        answer = self.wait_for(id)
        if answer is None:
            put({"type": "control_cancel_request", "request_id": id})
        return bool(answer) and answer["response"]["behavior"] == "allow"

    def end(self, reason, message=None):
        self.cost += 0.25
        result = {"subtype": "success", "is_error": False, "terminal_reason": "completed"}
        if reason == "cancelled":
            self.keep("user", [{"type": "text", "text": "[Request interrupted by user]"}])
            errors = ["[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=null"]
            result = {"subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_streaming", "errors": errors}
        elif reason == "error":
            content = [{"type": "text", "text": message}]
            self.say("assistant", message={"role": "assistant", "model": "<synthetic>", "content": content}, error="unknown")
            result = {"subtype": "success", "is_error": True, "terminal_reason": "api_error", "result": message}
        self.say("result", **result, usage={"input_tokens": 10, "output_tokens": 2}, total_cost_usd=self.cost)
        self.is_idle = True
        self.begin()

    def begin(self):
        """Begins a turn with the first message that waits."""
        with LOCK:
            if not self.is_idle or not self.steered:
                return
            self.is_idle = False
            text, id = self.steered.pop(0)
        self.say("system", subtype="init", model="claude-otter")
        self.repeat(text, id)
        self.prompt(text)

    def on(self, record):
        request = record.get("request", {})
        if record["type"] == "control_response":
            response = record["response"]
            self.answers[response["request_id"]] = response
        elif record["type"] == "control_request":
            response = {}
            if request["subtype"] == "interrupt":
                log(event="cancel")
                self.cancelled.set()
            elif request["subtype"] == "cancel_async_message":
                left = [(text, id) for text, id in self.steered if id != request["message_uuid"]]
                response = {"cancelled": len(left) < len(self.steered)}
                self.steered = left
            put({"type": "control_response", "response": {"subtype": "success", "request_id": record["request_id"], "response": response}})
        elif record["type"] == "user":
            text = record["message"]["content"][0]["text"]
            if record.get("priority") == "next":
                log(event="steer", text=text)
            self.steered.append((text, record["uuid"]))
            self.begin()


def main():
    if "--version" in sys.argv:
        return print("1.0.0-fake")
    mode = next((word for word in ("mute", "flood", "brief") if word in sys.argv), sys.argv[1])
    if mode == "mute":
        print("usage: fake [options]\nNo protocol is spoken here.", flush=True)
        return time.sleep(600)
    if mode == "flood":
        while True:
            print("All work and no play makes Jack a dull boy.", flush=True)
    if mode == "brief":
        print("usage: fake [options]", flush=True)
        sys.exit("it cannot be used so")
    agent = {"acp": Acp, "claude": Claude, "pi": Pi}[mode]()
    for line in sys.stdin.buffer:
        agent.on(json.loads(line))
    agent.closed()


main()
