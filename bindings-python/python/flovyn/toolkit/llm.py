"""Model calls as durable steps of any agent: each is paid once, whatever happens to the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from .. import _native
from ..declared import listed
from ..errors import InvalidArgument, OutsideAgent, TaskFailed
from ..hub import Hub
from ..step import LocalStep, Step
from ..task import Task
from .kit import Toolkit
from .native import GENERATE, NativeTask, Via, scripted_providers
from .output import FINAL_ANSWER, RETRIES, Asking, invalid, spec_of, value_of
from .react import Thinking
from .tool import Tool, made_tool

if TYPE_CHECKING:
    from typing_extensions import TypeVar as _TypeVar

    T = _TypeVar("T", default=Any)
    O = _TypeVar("O", default=Any)  # noqa: E741 - the output
else:
    T = TypeVar("T")
    O = TypeVar("O")  # noqa: E741 - the output

ContextRef = Mapping[str, Any]
"""What ``ctx.context_ref()`` gives: it stands for the conversation, which is read where the model is asked."""
MessageLike = str | Mapping[str, Any]
"""A text of the user, ``{"role": …, "content": …}``, or a whole message as entries store it."""
ToolChoice = Literal["auto", "none", "required"] | Mapping[str, str]
"""Whether the model has to call a tool; ``{"tool": name}`` is that one."""
Stop = Literal["end", "length", "toolUse", "refusal", "aborted", "deferred"]
"""Why the model stopped; ``aborted`` where a signal with ``delivery="now"`` cut it short."""

_GENERATE = NativeTask(GENERATE)


class ModelError(TaskFailed):
    """No model answered, and asking again in the same way would not help now."""

    code = "TaskFailed"

    def __init__(
        self, message: str = "", *, status: int | None = None, retry_after: float | None = None, **options: Any
    ) -> None:
        super().__init__(message, **options)
        self.status: int | None = status
        """The HTTP status, where there was a response."""
        self.retry_after: float | None = retry_after
        """Seconds that the provider asks to wait."""


@dataclass(frozen=True)
class ToolCall:
    """A tool that the model calls."""

    id: str
    name: str
    arguments: dict[str, Any]
    raw_arguments: str | None = None
    """What the model wrote in place of arguments, where that is no JSON object. ``arguments`` is empty then: do not run
    the call, and answer it with an error that says so."""


@dataclass(frozen=True)
class TokenUsage:
    """Tokens of one call in disjoint buckets, and what they cost."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    """Those of ``output`` that the model thought with."""
    cost_usd: float | None = None
    """None where the price is unknown; unknown is not free."""
    estimated: bool = False
    """Whether the call ended before its provider had told the counts."""


@dataclass(frozen=True)
class Reply(Generic[T]):
    """What a model answered."""

    text: str
    tool_calls: Sequence[ToolCall]
    """Calls that are yours to run; answer each with ``tool_result``."""
    stop_reason: Stop
    thinking: str
    model: str
    """The model that was asked, as ``provider/model``."""
    usage: TokenUsage
    latency: float
    """Seconds from the request to the end of the answer."""
    message: dict[str, Any] = field(repr=False)
    """The whole message, without what was measured: ``ctx.append_entry("assistant", reply.message)`` keeps it."""
    output: T = None  # pyright: ignore[reportAssignmentType]
    """The answer as a value of ``output=``; none where the model calls tools instead, or has refused."""
    fault: str | None = None
    """Why the answer has no such form, before the model is asked again."""
    again: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    """What asks for another answer."""


def generate(
    context: ContextRef | str | None = None,
    *,
    model: str,
    messages: Sequence[MessageLike] = (),
    system: str | None = None,
    tools: Sequence[Tool | Task[..., Any] | Callable[..., Any]] | None = None,
    tool_choice: ToolChoice = "auto",
    max_tokens: int | None = None,
    temperature: float | None = None,
    thinking: Thinking = "off",
    output: type[O] | Mapping[str, Any] | None = None,
    output_retries: int = RETRIES,
    toolkit: Toolkit | None = None,
    via: Via | None = None,
    key: str | None = None,
) -> Step[Reply[O]]:
    """Ask a model, and return a step that ends with its reply; readers of the run see nothing of it.

    ``context`` is ``ctx.context_ref()``, the conversation so far, or a prompt alone; ``messages`` are said after it,
    for this call only. Inside an agent this is a durable step: recorded once, asked again only if it was lost. Outside
    of one it just asks, with the providers of ``toolkit`` or of the environment, and takes no context reference.

    With ``via="parent"`` the workers of the run that has started this one make the call, with their providers and keys.
    What it used is this run's. ``NoParent`` where nobody has started it.

    With ``output``, a type (pydantic model, dataclass, ``TypedDict``, ``list[int]``, …) or a JSON Schema, the answer is
    a value of it, ``reply.output``. An answer that does not fit is told what is wrong and asked for again, at most
    ``output_retries`` times, each time as a durable step of its own.

    Raises ``ModelError`` where asking again would not help, ``TaskFailed`` where it was asked again in vain, and
    ``InvalidOutput`` where no answer fits.
    """
    given = _input(context, model, messages, system, tools, tool_choice, max_tokens, temperature, thinking)
    given["quiet"] = True
    scheduled = _scheduled(given, model, output, output_retries, via, key)
    if scheduled is not None:
        return scheduled
    if "context" in given:
        raise OutsideAgent(
            "a context reference stands for the conversation of a run, which only its agent can ask with; outside of "
            "one give llm.generate a prompt or messages"
        )
    return LocalStep(_ask_here(given, model, toolkit or Toolkit(), output, output_retries))


def stream(
    context: ContextRef | str | None = None,
    *,
    model: str,
    messages: Sequence[MessageLike] = (),
    system: str | None = None,
    tools: Sequence[Tool | Task[..., Any] | Callable[..., Any]] | None = None,
    tool_choice: ToolChoice = "auto",
    max_tokens: int | None = None,
    temperature: float | None = None,
    thinking: Thinking = "off",
    output: type[O] | Mapping[str, Any] | None = None,
    output_retries: int = RETRIES,
    via: Via | None = None,
    key: str | None = None,
) -> Step[Reply[O]]:
    """Ask a model as ``generate`` does, and show the run's readers its words while they come.

    They are ``Token`` events of ``handle.stream()``, void when the call fails and is made again, and replaced by the
    entry that keeps the reply. Only an agent's run has readers: outside of one this raises ``OutsideAgent``.
    """
    given = _input(context, model, messages, system, tools, tool_choice, max_tokens, temperature, thinking)
    scheduled = _scheduled(given, model, output, output_retries, via, key)
    if scheduled is None:
        raise OutsideAgent("llm.stream shows an answer to the readers of a run; outside of an agent use llm.generate")
    return scheduled


def _scheduled(
    given: dict[str, Any], model: str, output: Any, retries: int, via: Via | None, key: str | None
) -> Step[Reply[Any]] | None:
    spec = spec_of(output, retries)
    if spec is None:
        return _GENERATE.schedule(given, via=via, key=key, rebuild=_reply_of(model))
    asked: dict[str, Any] = {**given, "output": spec}
    messages: list[Mapping[str, Any]] = list(asked.get("messages") or ())
    rebuild = _reply_of(model, output)

    def again(reply: Reply[Any]) -> Step[Reply[Any]]:
        messages.extend((reply.message, *reply.again))
        return cast(
            "Step[Reply[Any]]", _GENERATE.schedule({**asked, "messages": messages}, via=via, key=key, rebuild=rebuild)
        )

    step = _GENERATE.schedule(asked, via=via, key=key, rebuild=rebuild, made=Asking)
    if isinstance(step, Asking):
        step.asks_again(retries, again)
    return step


def tool_result(call: ToolCall, content: Any, *, is_error: bool = False) -> dict[str, Any]:
    """Return the message that answers a call: ``ctx.append_entry("tool_result", llm.tool_result(call, found))``.

    Text is shown as it is, a ``ToolOutcome`` with all its parts, and anything else as JSON.
    """
    parts: Any = getattr(content, "content", None)
    failed = is_error or bool(getattr(content, "is_error", False))
    if parts is None:
        text = content if isinstance(content, str) else _native.encode_json(content).decode()
        parts = [{"type": "text", "text": text}]
    result: dict[str, Any] = {"type": "toolResult", "id": call.id, "name": call.name, "content": parts}
    if failed:
        result["isError"] = True
    return {"role": "tool", "parts": [result]}


def _input(
    context: ContextRef | str | None,
    model: str,
    messages: Sequence[MessageLike],
    system: str | None,
    tools: Sequence[Tool | Task[..., Any] | Callable[..., Any]] | None,
    tool_choice: ToolChoice,
    max_tokens: int | None,
    temperature: float | None,
    thinking: Thinking,
) -> dict[str, Any]:
    said = listed("messages", messages)
    if isinstance(context, str):
        said.insert(0, context)
    if context is None and not said:
        raise InvalidArgument("llm.generate was given nothing to answer; give ctx.context_ref(), a prompt or messages")
    given: dict[str, Any] = {
        "model": model,
        "context": None if isinstance(context, str) or context is None else dict(context),
        "messages": [_message(one) for one in said] or None,
        "system": system,
        "tools": None if tools is None else [_spec(one) for one in listed("tools", tools)],
        "toolChoice": None if tool_choice == "auto" else tool_choice,
        "maxTokens": max_tokens,
        "temperature": temperature,
        "thinking": thinking,
    }
    return {name: value for name, value in given.items() if value is not None}


def _message(given: MessageLike) -> dict[str, Any]:
    if isinstance(given, str):
        return {"role": "user", "parts": [{"type": "text", "text": given}]}
    if "parts" in given:
        return dict(given)
    role, content = given.get("role"), given.get("content")
    if not isinstance(role, str) or not isinstance(content, str):
        raise InvalidArgument(
            f"a message has the fields {', '.join(given) or 'none'}; write a text, {{'role': …, 'content': text}}, or "
            "a whole message with its parts"
        )
    return {"role": role, "parts": [{"type": "text", "text": content}]}


def _spec(given: Tool | Task[..., Any] | Callable[..., Any]) -> dict[str, Any]:
    made = made_tool(given)
    return {"name": made.name, "description": made.description, "parameters": dict(made.parameters)}


def _reply_of(model: str, output: Any = None) -> Callable[[Any], Reply[Any]]:
    def rebuild(found: Any) -> Reply[Any]:
        if isinstance(found, str):
            message = {"role": "assistant", "parts": [{"type": "text", "text": found}]}
            return Reply(found, (), "aborted", "", model, TokenUsage(), 0.0, message)
        error: Mapping[str, Any] | None = found.get("error")
        if error is not None:
            after = error.get("retryAfterMs")
            raise ModelError(
                error["message"],
                type=error["kind"],
                status=error.get("status"),
                retry_after=None if after is None else after / 1000,
            )
        return _with_output(_reply(found["message"], model), found.get("output"), output)

    return rebuild


def _with_output(reply: Reply[Any], checked: Mapping[str, Any] | None, output: Any) -> Reply[Any]:
    if checked is None:
        return reply
    reply = replace(reply, tool_calls=tuple(call for call in reply.tool_calls if call.name != FINAL_ANSWER))
    if "fault" in checked:
        return replace(reply, fault=checked["fault"]["message"], again=checked["fault"]["again"])
    try:
        return replace(reply, output=value_of(output, checked["value"]))
    except Exception as error:
        # A validator of the type, which no schema tells.
        fault = f"The answer was refused: {error}. Answer again, in the form that was asked for."
        return replace(reply, fault=fault, again=(_told(reply, fault),))


def _told(reply: Reply[Any], fault: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = reply.message["parts"]
    call = next((part for part in parts if part["type"] == "toolCall" and part["name"] == FINAL_ANSWER), None)
    if call is None:
        return _message(fault)
    return tool_result(ToolCall(call["id"], call["name"], call["arguments"]), fault, is_error=True)


def _reply(message: dict[str, Any], model: str) -> Reply[Any]:
    parts: list[dict[str, Any]] = message["parts"]
    meta: dict[str, Any] = dict(message.get("assistant") or {})
    # Asked again after a crash it would be another: what an agent keeps shall not tell how long it took.
    latency = meta.pop("durationMs", 0) / 1000
    meta.pop("firstTokenMs", None)
    calls = [
        ToolCall(part["id"], part["name"], part["arguments"], part.get("rawArguments"))
        for part in parts
        if part["type"] == "toolCall" and part.get("executedBy", "us") == "us"
    ]
    return Reply(
        text="".join(part["text"] for part in parts if part["type"] == "text"),
        tool_calls=tuple(calls),
        stop_reason=cast(Stop, meta.get("stop", "end")),
        thinking="".join(part["text"] for part in parts if part["type"] == "thinking"),
        model=model,
        usage=_usage(meta.get("usage") or {}),
        latency=latency,
        message={**message, "assistant": meta},
    )


def _usage(found: Mapping[str, Any]) -> TokenUsage:
    cost: Mapping[str, Any] = found.get("cost") or {}
    return TokenUsage(
        input=found.get("input", 0),
        cache_read=found.get("cacheRead", 0),
        cache_write=found.get("cacheWrite", 0),
        output=found.get("output", 0),
        reasoning=found.get("reasoning", 0),
        estimated=found.get("estimated", False),
        cost_usd=cost["amountMicros"] / 1_000_000 if cost.get("currency") == "USD" else None,
    )


async def _ask_here(given: dict[str, Any], model: str, toolkit: Toolkit, output: Any, retries: int) -> Reply[Any]:
    description = {"providers": scripted_providers() | toolkit.describe()["providers"]}
    spec = spec_of(output, retries)
    asked = given if spec is None else {**given, "output": spec}
    times = 0
    while True:
        reply = _reply_of(model, output)(await Hub.current().call(_native.generate, description, asked))
        if reply.fault is None:
            return reply
        if times >= retries:
            raise invalid(times + 1, reply.fault)
        times += 1
        asked = {**asked, "messages": [*asked.get("messages", ()), reply.message, *reply.again]}
