"""Which agent the running code belongs to: context variables, so that branches inherit them."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING

from .errors import OutsideAgent, WrongThread

if TYPE_CHECKING:
    from .activation import Activation

current: ContextVar[Activation | None] = ContextVar("flovyn_agent", default=None)
"""The activation whose agent runs; none inside tasks and outside agents."""

in_attempt: ContextVar[bool] = ContextVar("flovyn_attempt", default=False)
"""Whether the running code is that of an attempt of a task."""

once_name: ContextVar[str | None] = ContextVar("flovyn_once", default=None)
"""The ``once`` that runs, whose ops have a namespace of their own."""


def refuse_others(activation: Activation) -> None:
    """Refuse a call that the agent's own code does not make."""
    if current.get() is activation:
        return
    if activation.ended:
        raise OutsideAgent(
            "a context was used after its agent's code had ended; make the call before that, in the agent"
        )
    if threading.get_ident() != activation.thread:
        raise WrongThread(
            "a context was used from another thread than its agent's; make the call on the agent's own thread, "
            "or do the work in a task"
        )
    raise OutsideAgent(
        "a context was used by code that is not its agent's, such as a task; let the task return what the "
        "agent needs, and make the call in the agent"
    )
