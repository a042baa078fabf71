"""A scripted model server in this process: what it answers is written down, and so is what it was asked.

It is the server that Flovyn's own tests speak to, over HTTP on the loopback: what a real provider would refuse it
refuses too, and it plays their faults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .. import _native
from ..errors import InvalidArgument

Json = Mapping[str, Any]
Wire = Literal["anthropic-messages", "openai-chat", "openai-responses"]

_open: list[FakeLlm] = []


@dataclass(frozen=True)
class Turn:
    """One answer of the scripted model."""

    script: Json
    """The turn as a script says it."""

    def and_call(self, name: str, arguments: Json | None = None, *, id: str | None = None) -> Turn:
        """Call one more tool."""
        call: dict[str, Any] = {"name": name, "arguments": dict(arguments or {})}
        if id is not None:
            call["id"] = id
        return self._with(toolCalls=[*self.script.get("toolCalls", ()), call])

    def failing(self, *faults: Fault) -> Turn:
        """Go wrong: the first time it is asked for with the first fault, and so on; after them it goes well."""
        return self._with(faults=[*self.script.get("faults", ()), *(fault.script for fault in faults)])

    def times(self, count: int) -> Turn:
        """Answer so many times in a row; its texts may say ``{{i}}``, the number of the answer from 1."""
        return self._with(repeat=count)

    def when(
        self,
        *,
        last_user_contains: str | None = None,
        model: str | None = None,
        turn: int | None = None,
        nth: int | None = None,
        has_tool_result: bool | None = None,
    ) -> Turn:
        """Answer certain requests only, each time; all that is given has to hold."""
        given = {
            "lastUserContains": last_user_contains,
            "model": model,
            "turn": turn,
            "nth": nth,
            "hasToolResult": has_tool_result,
        }
        return self._with(when={name: value for name, value in given.items() if value is not None})

    def slowly(self, *, first_ms: int = 0, chunk_ms: int = 0, chunk_chars: int = 24) -> Turn:
        """Answer at this pace: so long before the first event, so long between events of so many characters."""
        return self._with(pace={"ttftMs": first_ms, "chunkMs": chunk_ms, "chunkChars": chunk_chars})

    def _with(self, **changes: Any) -> Turn:
        return replace(self, script={**self.script, **changes})


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong once."""

    script: Json

    def times(self, count: int) -> Fault:
        """Go wrong so many times."""
        return Fault({**self.script, "times": count})


def turn(
    text: str | None = None, *, thinking: str | None = None, usage: Json | None = None, stop: str | None = None
) -> Turn:
    """Say something. ``usage`` has ``input`` and ``output`` tokens; ``stop`` is why it stops, if not at the end."""
    given: dict[str, Any] = {"text": text, "thinking": thinking, "usage": usage, "stop": stop}
    return Turn({name: value for name, value in given.items() if value is not None})


def tool_call(name: str, arguments: Json | None = None, *, id: str | None = None) -> Turn:
    """Call a tool; ``.and_call`` calls one more in the same answer."""
    return Turn({}).and_call(name, arguments, id=id)


def cut(*, after_events: int = 2, broken: bool = False) -> Fault:
    """End the stream after so many events: as if it were complete, or with a broken connection."""
    return Fault({"cut": {"afterEvents": after_events, "end": "broken" if broken else "clean"}})


def stall(*, after_events: int = 0, ms: int | None = None) -> Fault:
    """Say nothing for so long, or until the client leaves."""
    return Fault({"stall": {"afterEvents": after_events} | ({} if ms is None else {"ms": ms})})


def status(code: int, *, retry_after: float | None = None, message: str | None = None) -> Fault:
    """Refuse: 429, 500, 529. ``retry_after`` is seconds."""
    given = {"code": code, "retryAfter": retry_after, "message": message}
    return Fault({"status": {name: value for name, value in given.items() if value is not None}})


def malformed(*, after_events: int = 0) -> Fault:
    """Send an event that is no JSON."""
    return Fault({"malformed": {"afterEvents": after_events}})


@dataclass(frozen=True)
class ModelCall:
    """A request that came, and what became of it."""

    model: str
    api: Wire
    body: dict[str, Any] = field(repr=False)
    """The request as it was sent."""
    turn: int
    """Answers in its conversation, plus one."""
    outcome: Literal["answering", "completed", "faulted", "disconnected", "refused"]
    """``completed`` is what a provider charges."""
    reason: str | None = None
    """Why it was refused."""

    @property
    def is_paid(self) -> bool:
        """Whether the answer was sent to its end."""
        return self.outcome == "completed"

    @classmethod
    def of(cls, found: Json) -> ModelCall:
        """Make it from what the server recorded."""
        outcome: Any = found["outcome"]
        refused: Json = {} if isinstance(outcome, str) else outcome["refused"]
        word: Any = "refused" if refused else outcome
        reason: str | None = refused.get("reason")
        return cls(found["model"], found["api"], found["body"], found["turn"], word, reason)


class FakeLlm:
    """A running server: a context manager. While it is open, workers of this process know its models as ``fake/…``."""

    def __init__(self, script: Json) -> None:
        self._script = script
        self._native: _native.FakeLlm | None = None

    def __enter__(self) -> FakeLlm:
        self._native = _native.FakeLlm(dict(self._script))
        _open.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _open.remove(self)
        self._server.close()

    @property
    def _server(self) -> _native.FakeLlm:
        if self._native is None:
            raise InvalidArgument("the scripted model is not served yet; open it: with fake_llm([...]) as fake:")
        return self._native

    @property
    def url(self) -> str:
        """Its address, as Anthropic's clients take it."""
        return self._server.url

    @property
    def openai_url(self) -> str:
        """Its address, as OpenAI's clients take it."""
        return self._server.openai_url

    @property
    def model(self) -> str:
        """The name of its model, for agents: ``fake/scripted``."""
        return "fake/scripted"

    @property
    def calls(self) -> list[ModelCall]:
        """All requests so far, in the order of their arrival."""
        return [ModelCall.of(found) for found in self._server.requests()]

    @property
    def paid(self) -> int:
        """How many answers were sent to their end: the calls that a provider would have charged."""
        return self._server.paid()


def fake_llm(turns: Sequence[Turn] = (), *, otherwise: Turn | None = None, by_arrival: bool = False) -> FakeLlm:
    """Serve a scripted model: ``with fake_llm([turn("Hello.")]) as fake:``.

    A conversation with n answers in it gets turn n + 1, however often it is asked for: a client that crashed and asks
    again gets the same answer. ``by_arrival`` gives each request the next turn instead. ``otherwise`` is said where no
    turn is left; without it the request is refused.
    """
    script: dict[str, Any] = {"turns": [dict(each.script) for each in turns]}
    if otherwise is not None:
        script["otherwise"] = dict(otherwise.script)
    if by_arrival:
        script["order"] = "arrival"
    return FakeLlm(script)


def providers() -> dict[str, dict[str, Any]]:
    """Return the scripted model as a provider of the toolkit, while one is served here."""
    if not _open:
        return {}
    return {"fake": {"api": "anthropic-messages", "baseUrl": _open[-1].url, "images": True}}
