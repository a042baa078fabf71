"""External agents: somebody else's agent as an agent of a worker, which owns its process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ..declared import listed
from ..errors import InvalidArgument
from .approvals import ApprovalPolicy
from .kit import Toolkit, absolute
from .react import Budget, Declared, Mode, ReactAgent

if TYPE_CHECKING:
    from typing_extensions import Required, Unpack

Approvals = Literal["ask", "allow", "deny"] | ApprovalPolicy
"""What answers what an agent asks permission for."""


class ExternalOptions(TypedDict, total=False):
    """How an external agent works; ``External`` says what each option means."""

    working_dir: Required[str | os.PathLike[str]]
    model: str | None
    name: str
    approvals: Approvals
    mode: Mode
    budget: Budget | None
    env: Mapping[str, str] | None
    variables: Sequence[str]
    inactivity: float | None
    sandbox: bool | None


class External(ReactAgent[Any]):
    """An agent of others: ``External.pi(working_dir="/src/app")``.

    Take it like any agent: ``flovyn.run(External.pi(working_dir="."), "Fix the failing test")``,
    ``ctx.spawn_agent(External.claude(working_dir="."), "…")``, ``client.worker(agents=[…])``. A run's input is a
    prompt; it ends with a ``RunOutcome``. The program has to be on the worker's machine. It is not confined: what it
    does by itself it does with the rights of the worker.

    ``approvals`` answers what it asks permission for, ``budget`` ends a turn that goes beyond it, and ``mode="chat"``
    waits for the next ``userMessage`` after a turn. It sees ``env``, and of this process the ``variables`` that are
    named, ``NAME*`` for all that begin so. ``inactivity`` is how many seconds it may be silent while it works, 600
    unless given. ``name`` is the kind of its runs, for a worker that serves several.
    """

    def __init__(self, name: str, described: dict[str, Any], sandbox: bool | None) -> None:
        toolkit = Toolkit(sandbox=sandbox)
        super().__init__(name, Declared({**described, "kind": name}, toolkit), None)

    def describe(self) -> dict[str, Any]:
        return {**self._declared.toolkit.describe(), "externalAgents": [self._declared.agent]}

    @classmethod
    def pi(cls, *, command: Sequence[str] = (), **options: Unpack[ExternalOptions]) -> External:
        """Pi, by its RPC mode; ``command`` is what starts it in place of ``pi``."""
        return cls._of("pi", command, options)

    @classmethod
    def claude(cls, *, command: Sequence[str] = (), **options: Unpack[ExternalOptions]) -> External:
        """Claude Code, by its stream of JSON messages; ``command`` is what starts it in place of ``claude``."""
        return cls._of("claude", command, options)

    @classmethod
    def acp(cls, *, command: Sequence[str], **options: Unpack[ExternalOptions]) -> External:
        """An agent that speaks the Agent Client Protocol, by the program and the arguments that start it."""
        if not command:
            raise InvalidArgument('External.acp needs a command, such as ["codex-acp"]')
        return cls._of("acp", command, options)

    custom = acp
    """A program of one's own that speaks the Agent Client Protocol."""

    @classmethod
    def _of(cls, driver: str, command: Sequence[str], options: ExternalOptions) -> External:
        unknown = options.keys() - ExternalOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"External.{driver} takes no {', '.join(sorted(unknown))}")
        if "working_dir" not in options:
            raise TypeError(f"External.{driver} needs working_dir, the folder that the agent works in")
        approvals, budget, env = options.get("approvals", "ask"), options.get("budget"), options.get("env")
        given = {
            "driver": driver,
            "command": listed("command", command),
            "workingDirectory": absolute(options["working_dir"]),
            "model": options.get("model"),
            "approvals": approvals if isinstance(approvals, str) else approvals.describe(),
            "mode": options.get("mode", "one_shot"),
            "budget": None if budget is None else budget.describe(),
            "env": None if env is None else dict(env),
            "variables": listed("variables", options.get("variables", ())),
            "inactivity": options.get("inactivity"),
        }
        described = {name: value for name, value in given.items() if value is not None}
        return cls(options.get("name", f"external-{driver}"), described, options.get("sandbox"))
