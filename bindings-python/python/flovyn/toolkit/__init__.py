"""The toolkit: the built-in agent, model calls, host tools and MCP tools.

``react_agent`` declares an agent that works with tools. ``llm.generate`` and ``tools.read`` are durable steps of any
agent. All of it runs in the worker's own process.
"""

from __future__ import annotations

from . import llm, tools
from .approvals import ApprovalPolicy, ApprovalRequest, Decision, Rule
from .delegates import Delegate, DelegateLike, delegate
from .external import External
from .kit import Api, Provider, Toolkit
from .llm import ModelError, Reply, TokenUsage, ToolCall, tool_result
from .native import Via
from .output import InvalidOutput
from .patterns import PlanAgent, PlanInput, PlanOutcome, TaskReport, escalate, plan_and_execute, supervisor
from .react import (
    Budget,
    Compaction,
    Mode,
    ModelUsage,
    Outage,
    ReactAgent,
    ResultLimits,
    RunInput,
    RunOutcome,
    StopReason,
    Thinking,
    ToolLike,
    react_agent,
)
from .tool import Effect, Tool, tool
from .tools import TodoStep, ToolOutcome

__all__ = [
    "Api",
    "ApprovalPolicy",
    "ApprovalRequest",
    "Budget",
    "Compaction",
    "Decision",
    "Delegate",
    "DelegateLike",
    "Effect",
    "External",
    "InvalidOutput",
    "Mode",
    "ModelError",
    "ModelUsage",
    "Outage",
    "PlanAgent",
    "PlanInput",
    "PlanOutcome",
    "Provider",
    "ReactAgent",
    "Reply",
    "ResultLimits",
    "Rule",
    "RunInput",
    "RunOutcome",
    "StopReason",
    "TaskReport",
    "Thinking",
    "TodoStep",
    "TokenUsage",
    "Tool",
    "ToolCall",
    "ToolLike",
    "ToolOutcome",
    "Toolkit",
    "Via",
    "delegate",
    "escalate",
    "llm",
    "plan_and_execute",
    "react_agent",
    "supervisor",
    "tool",
    "tool_result",
    "tools",
]
