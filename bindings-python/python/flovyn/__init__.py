"""Flovyn: durable execution of AI agents.

Agents are plain async functions over a durable context. What they did is recorded; a killed process goes on where it
was, and nothing that finished runs twice. ``flovyn.run(agent, input, id=..., url="sqlite:agents.db")`` is all it takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _native
from .agent import Agent, agent
from .client import Client, connect
from .context import AgentContext, Message
from .errors import *  # noqa: F403
from .errors import __all__ as _errors
from .events import Data, Entry, Event, Gap, Lifecycle, Retract, Token, Usage
from .handle import Handle
from .reducers import append, merge, replace
from .run import run, run_async, stream
from .step import Step
from .task import Task, TaskContext, task
from .worker import Worker

if TYPE_CHECKING:
    from .blocking import SyncAgentContext, SyncClient, connect_sync

__version__: str = _native.__version__

__all__ = [  # noqa: PLE0604
    "Agent",
    "AgentContext",
    "Client",
    "Data",
    "Entry",
    "Event",
    "Gap",
    "Handle",
    "Lifecycle",
    "Message",
    "Retract",
    "Step",
    "SyncAgentContext",
    "SyncClient",
    "Task",
    "TaskContext",
    "Token",
    "Usage",
    "Worker",
    "agent",
    "append",
    "connect",
    "connect_sync",
    "merge",
    "replace",
    "run",
    "run_async",
    "stream",
    "task",
    *_errors,
]

_LATER = {"SyncAgentContext", "SyncClient", "connect_sync"}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from . import blocking

        return getattr(blocking, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
