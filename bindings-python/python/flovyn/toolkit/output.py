"""Structured output: the form of an answer, from a type, and how the answer comes back as a value of it."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..errors import InvalidArgument, TaskFailed
from ..serde.codec import rebuilder
from ..step import Step
from .schema import schema_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..activation import Activation
    from .llm import Reply

R = TypeVar("R")

FINAL_ANSWER = "final_answer"
"""The tool by which models answer that cannot be forced into a form."""
RETRIES = 2
"""How often a model is asked again where its answer does not have the form."""


def spec_of(output: Any, retries: int) -> dict[str, Any] | None:
    """Return the form as the toolkit reads it; ``output`` is a type or a JSON Schema."""
    if output is None:
        return None
    if retries < 0:
        raise InvalidArgument(f"output_retries is {retries}; give 0 or more")
    schema: Any = dict(cast("Mapping[str, Any]", output)) if isinstance(output, Mapping) else schema_of(output)
    name = schema.get("title") if isinstance(output, Mapping) else getattr(output, "__name__", None)
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", name if isinstance(name, str) else "")[:64]
    return {"schema": schema, "name": plain or "answer", "retries": retries}


def value_of(output: Any, found: Any) -> Any:
    """Return an answer as a value of its type."""
    if output is None or found is None or isinstance(output, Mapping):
        return found
    rebuild = rebuilder(output)
    return found if rebuild is None else rebuild(found)


class InvalidOutput(TaskFailed):
    """No answer of the model had the form that was asked for; the message tells what was wrong with the last one."""

    code = "TaskFailed"


class Asking(Step[R]):
    """A model call whose answer has to have a form: a step that asks again while the answer does not have it.

    Each time is an op of its own, so each answer is recorded and paid once.
    """

    __slots__ = ("_ask_again", "_asked", "_retries")

    def __init__(self, activation: Activation, op: int, uuid: bytes = b"", **options: Any) -> None:
        super().__init__(activation, op, uuid, **options)
        self._asked: list[Step[Any]] = []
        self._retries = 0
        self._ask_again: Callable[[Reply[Any]], Step[Any]] | None = None

    def asks_again(self, retries: int, ask: Callable[[Reply[Any]], Step[Any]]) -> None:
        """Ask so often again, with what this makes of an answer that did not fit."""
        self._retries, self._ask_again = retries, ask

    def result(self) -> R:
        reply: Any = super().result()
        times = 0
        while (step := self._after(times, reply)) is not None:
            reply, times = step.result(), times + 1
        return reply

    def __await__(self) -> Generator[Any, Any, R]:
        reply: Any = yield from super().__await__()
        times = 0
        while (step := self._after(times, reply)) is not None:
            reply = yield from step.__await__()
            times += 1
        return reply

    def _after(self, times: int, reply: Reply[Any]) -> Step[Any] | None:
        """Return the call that follows an answer; none if it fits. Whoever awaits the step twice shares the calls."""
        fault = reply.fault
        if fault is None or self._ask_again is None:
            return None
        if times >= self._retries:
            raise invalid(times + 1, fault)
        if len(self._asked) == times:
            self._asked.append(self._ask_again(reply))
        return self._asked[times]


def invalid(asked: int, fault: str) -> InvalidOutput:
    """Say that the model never gave an answer of the form."""
    return InvalidOutput(
        f"the model was asked {asked} times and gave no answer of the form: {fault}", type="invalid_output"
    )
