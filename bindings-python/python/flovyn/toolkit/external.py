"""External agents: somebody else's agent as an agent of a worker, which owns its process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..declared import listed
from ..errors import InvalidArgument
from .approvals import ApprovalPolicy
from .kit import Toolkit, absolute
from .react import Budget, Declared, Mode, ReactAgent

Approvals = Literal["ask", "allow", "deny"] | ApprovalPolicy
"""What answers what an agent asks permission for."""


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
    def pi(
        cls,
        *,
        working_dir: str | os.PathLike[str],
        model: str | None = None,
        command: Sequence[str] = (),
        name: str = "external-pi",
        approvals: Approvals = "ask",
        mode: Mode = "one_shot",
        budget: Budget | None = None,
        env: Mapping[str, str] | None = None,
        variables: Sequence[str] = (),
        inactivity: float | None = None,
        sandbox: bool | None = None,
    ) -> External:
        """Pi, by its RPC mode; ``command`` is what starts it in place of ``pi``."""
        given = _described("pi", working_dir, command, model, approvals, mode, budget, env, variables, inactivity)
        return cls(name, given, sandbox)

    @classmethod
    def claude(
        cls,
        *,
        working_dir: str | os.PathLike[str],
        model: str | None = None,
        command: Sequence[str] = (),
        name: str = "external-claude",
        approvals: Approvals = "ask",
        mode: Mode = "one_shot",
        budget: Budget | None = None,
        env: Mapping[str, str] | None = None,
        variables: Sequence[str] = (),
        inactivity: float | None = None,
        sandbox: bool | None = None,
    ) -> External:
        """Claude Code, by its stream of JSON messages; ``command`` is what starts it in place of ``claude``."""
        given = _described("claude", working_dir, command, model, approvals, mode, budget, env, variables, inactivity)
        return cls(name, given, sandbox)

    @classmethod
    def acp(
        cls,
        *,
        command: Sequence[str],
        working_dir: str | os.PathLike[str],
        model: str | None = None,
        name: str = "external-acp",
        approvals: Approvals = "ask",
        mode: Mode = "one_shot",
        budget: Budget | None = None,
        env: Mapping[str, str] | None = None,
        variables: Sequence[str] = (),
        inactivity: float | None = None,
        sandbox: bool | None = None,
    ) -> External:
        """An agent that speaks the Agent Client Protocol, by the program and the arguments that start it."""
        if not command:
            raise InvalidArgument('External.acp needs a command, such as ["codex-acp"]')
        given = _described("acp", working_dir, command, model, approvals, mode, budget, env, variables, inactivity)
        return cls(name, given, sandbox)

    custom = acp
    """A program of one's own that speaks the Agent Client Protocol."""


def _described(
    driver: str,
    working_dir: str | os.PathLike[str],
    command: Sequence[str],
    model: str | None,
    approvals: Approvals,
    mode: Mode,
    budget: Budget | None,
    env: Mapping[str, str] | None,
    variables: Sequence[str],
    inactivity: float | None,
) -> dict[str, Any]:
    given: dict[str, Any] = {
        "driver": driver,
        "command": listed("command", command),
        "workingDirectory": absolute(working_dir),
        "model": model,
        "approvals": approvals if isinstance(approvals, str) else approvals.describe(),
        "mode": mode,
        "budget": None if budget is None else budget.describe(),
        "env": None if env is None else dict(env),
        "variables": listed("variables", variables),
        "inactivity": inactivity,
    }
    return {name: value for name, value in given.items() if value is not None}
