"""Flovyn: durable execution of AI agents.

Agents are plain async functions over a durable context. What they did is recorded; a killed process goes on where it
was, and nothing that finished runs twice. ``flovyn.run(agent, input, id=..., url="sqlite:agents.db")`` is all it takes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import _native, errors
from .agent import Agent, agent
from .client import Client, connect
from .context import AgentContext
from .errors import *  # noqa: F403
from .family import Child
from .handle import Handle
from .mode import Local, Remote
from .reducers import append, merge, replace
from .retry import Retry, RetryAfter
from .run import run, run_async, stream
from .serde import Serializer
from .step import Step
from .task import Task, TaskContext, task
from .worker import Worker

if TYPE_CHECKING:
    from .blob import Blob
    from .blocking import SyncAgentContext, SyncClient, connect_sync
    from .events import Data, Entry, Event, Gap, Lifecycle, Retract, Token, Usage
    from .machine import Daemon, daemon
    from .message import Message
    from .sharing import shared
    from .toolkit import External

__version__: str = _native.__version__

if os.environ.get("FLOVYN_DEBUG") not in (None, "", "0"):
    from .debug import install

    install()

__all__ = [
    "Agent",
    "AgentContext",
    "Blob",
    "Child",
    "Client",
    "Daemon",
    "Data",
    "Entry",
    "Event",
    "External",
    "Gap",
    "Handle",
    "Lifecycle",
    "Local",
    "Message",
    "Remote",
    "Retract",
    "Retry",
    "RetryAfter",
    "Serializer",
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
    "daemon",
    "merge",
    "replace",
    "run",
    "run_async",
    "shared",
    "stream",
    "task",
]
__all__ += errors.__all__

_LATER = {
    "Blob": "blob",
    "Daemon": "machine",
    "Data": "events",
    "Entry": "events",
    "Event": "events",
    "External": "toolkit",
    "Gap": "events",
    "Lifecycle": "events",
    "Message": "message",
    "Retract": "events",
    "SyncAgentContext": "blocking",
    "SyncClient": "blocking",
    "Token": "events",
    "Usage": "events",
    "connect_sync": "blocking",
    "daemon": "machine",
    "shared": "sharing",
}


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
