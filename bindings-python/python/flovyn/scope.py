"""Which agent the running code belongs to: context variables, so that branches inherit them."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .activation import Activation

current: ContextVar[Activation | None] = ContextVar("flovyn_agent", default=None)
"""The activation whose agent runs; none inside tasks and outside agents."""

in_attempt: ContextVar[bool] = ContextVar("flovyn_attempt", default=False)
"""Whether the running code is that of an attempt of a task."""

once_name: ContextVar[str | None] = ContextVar("flovyn_once", default=None)
"""The ``once`` that runs, whose ops have a namespace of their own."""
