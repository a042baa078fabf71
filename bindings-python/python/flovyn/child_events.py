"""What the runs of a family tell each other: messages, requests, and what an agent hears of a child.

``ctx.wait_for_child_event`` gives one of these: match on its class.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from .errors import ChildFailed, InvalidArgument
from .family import Child
from .scope import once_name
from .serde import checked
from .step import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .activation import Activation
    from .handle import CancelMode, Delivery

__all__ = ["BudgetExceeded", "Cancelled", "ChildEvent", "Completed", "Failed", "Request", "Signal"]


@dataclass(frozen=True)
class Signal:
    """A child has told something by ``ctx.signal_parent``."""

    name: str
    payload: Any


@dataclass(frozen=True)
class Request:
    """A child asks by ``ctx.request_from_parent``, and waits for the answer."""

    name: str
    payload: Any
    child: str = field(compare=False)
    """The id of the child."""
    id: str = field(compare=False)
    """Its own id: with both, ``ctx.respond`` answers it after a checkpoint."""
    _answer: Callable[[Any], Step[None]] = field(repr=False, compare=False)

    def respond(self, value: Any = None) -> Step[None]:
        """Answer it, once; await it (``.result()`` in a ``def`` agent) to know that the answer is durable.

        Raises ``AlreadyExists`` at the await where it was answered before, with another value.
        """
        return self._answer(value)


@dataclass(frozen=True)
class Completed:
    """A child has returned."""

    output: Any


@dataclass(frozen=True)
class Failed:
    """A child has failed."""

    error: ChildFailed


@dataclass(frozen=True)
class Cancelled:
    """A child was cancelled; ``output`` is what it kept."""

    output: Any


@dataclass(frozen=True)
class BudgetExceeded:
    """A child was asked to stop, since its budget had no room for what it wanted to do; ``output`` is what it kept."""

    used: Mapping[str, int]
    """``tokens``, ``costMicros`` and ``calls`` that it and all runs below it have used."""
    limit: Mapping[str, int]
    """The budget that had no room for more, its own or the one that it drew from: ``maxTokens`` and so on."""
    output: Any


AnyChild = Child[Any] | str | UUID
"""What ``ctx.spawn_agent`` has returned, or its id."""

ChildEvent = Signal | Request | Completed | Failed | Cancelled | BudgetExceeded


class _News(Step[Any]):
    """A wait for what a child tells next."""

    __slots__ = ()

    def _late(self) -> str:
        return f"nothing came of child {self._what!r} in time"


class _Asked(Step[Any]):
    """A wait for the answer to a request."""

    __slots__ = ()

    def _late(self) -> str:
        return f"no answer to the request {self._what!r} came in time"


def _named(child: Any, call: str) -> tuple[str, str]:
    """Return the id of a child and its name for people."""
    if isinstance(child, Child):
        known = cast("Child[Any]", child)
        return str(known.id), known.kind
    if isinstance(child, (str, UUID)):
        return str(child), str(child)
    raise InvalidArgument(f"{call} takes what spawn_agent has returned, or the id of a child, not {child!r}")


def to_parent(activation: Activation, name: str, payload: Any) -> Step[None]:
    """Tell the parent something."""
    activation.check_open()
    return activation.step(activation.session.call_tell(name, checked(payload), once_name.get()), what=name)


def asked(activation: Activation, name: str, payload: Any, timeout: float | None) -> Step[Any]:
    """Ask the parent."""
    activation.check_open()
    op = activation.session.call_request(name, checked(payload), timeout, once_name.get())
    return activation.keep(_Asked(activation, op, what=name))


def to_child(activation: Activation, child: Any, name: str, payload: Any, delivery: Delivery) -> Step[None]:
    """Send a child a signal."""
    activation.check_open()
    to, _ = _named(child, "signal_child")
    op = activation.session.call_send(to, name, checked(payload), delivery, once_name.get())
    return activation.step(op, what=name)


def stopped(activation: Activation, child: Any, mode: CancelMode, timeout: float | None) -> Step[None]:
    """Ask a child to stop."""
    activation.check_open()
    to, _ = _named(child, "cancel_child")
    return activation.step(activation.session.call_stop(to, mode, timeout, once_name.get()), what="cancel")


def news(activation: Activation, child: Any, timeout: float | None) -> Step[ChildEvent]:
    """Wait for what a child tells next, or for its end."""
    activation.check_open()
    of, kind = _named(child, "wait_for_child_event")
    output = None
    if isinstance(child, Child):
        known = cast("Child[Any]", child)
        known.heard, output = True, known.rebuild

    def event(told: tuple[str, str, Any, str, str, Any, Any]) -> ChildEvent:
        what, name, value, sender, request, failure, overrun = told
        if what == "signal":
            return Signal(name, value)
        if what == "request":
            return Request(name, value, sender, request, lambda answer: answered(activation, sender, request, answer))
        if what == "failed":
            _, type_, message, _, _, _, traceback = failure
            return Failed(ChildFailed(message, kind=kind, type=type_, traceback=traceback))
        if value is not None and output is not None:
            value = output(value)
        if what == "budget_exceeded":
            return BudgetExceeded(overrun["used"], overrun["limit"], value)
        return Completed(value) if what == "completed" else Cancelled(value)

    op = activation.session.call_child_event(of, timeout, once_name.get())
    return activation.keep(_News(activation, op, what=kind, rebuild=event))


def answered(activation: Activation, child: Any, request: str, value: Any) -> Step[None]:
    """Answer a request of a child."""
    activation.check_open()
    to, _ = _named(child, "respond")
    op = activation.session.call_answer(to, str(request), checked(value), once_name.get())
    return activation.step(op, what="answer")
