"""What goes wrong is said by the logger ``flovyn``, at WARNING: the place in the user's own code, and what to do."""

from __future__ import annotations

import logging
import os
import shlex
from types import CodeType
from typing import TYPE_CHECKING, Any

from .errors import TaskFailed, is_ours, message_of, traceback_of, type_name, unwrapped

if TYPE_CHECKING:
    from .client import Client
    from .handle import Facts
    from .task import Task

logger = logging.getLogger("flovyn")


def agent_failed(kind: str, run: str, error: BaseException) -> None:
    """Say that an error has left an agent's function."""
    if not logger.isEnabledFor(logging.WARNING):
        return
    error = unwrapped(error)
    # What its task has failed with was said when it did. By type: `isinstance` asks the object too, which may raise.
    said = "" if issubclass(type(error), TaskFailed) else f": {message_of(error)}"
    text = f"agent {kind!r} of run {run} raised {type_name(error)}{said}{place_of(error)}"
    raised = (type(error), error, BaseException.__dict__["__traceback__"].__get__(error))
    record = logger.makeRecord(logger.name, logging.WARNING, __file__, 0, text, (), raised, "agent_failed")
    # Formatters take it as it is: without the engine's frames.
    record.exc_text = traceback_of(error).rstrip()
    logger.handle(record)


def attempt_failed(task: Task[..., Any], attempt: int, error: BaseException, is_final: bool) -> None:
    """Say that an attempt of a task has failed, and whether another one follows."""
    error = unwrapped(error)
    attempts = 1 + task.retries
    follows = "it is tried again" if not is_final and attempt < attempts else "no attempt is left"
    if is_final and attempt < attempts:
        follows = "it may not be tried again"
    logger.warning(
        "task %r failed at attempt %d of %d: %s: %s%s; %s",
        task.kind,
        attempt,
        attempts,
        type_name(error),
        message_of(error),
        place_of(error),
        follows,
    )


def lost(kind: str, run: str, why: str) -> None:
    """Say that a run is no longer this worker's."""
    logger.warning("agent %r: run %s is no longer held by this worker, which drops its copy: %s", kind, run, why)


def warned(kind: str, run: str, what: str) -> None:
    """Say what the engine warns of in a run."""
    logger.warning("agent %r of run %s: %s", kind, run, what)


def never_awaited(kind: str, run: str, what: str, called: tuple[CodeType, int] | None, *, can_outlive: bool) -> None:
    """Say that an agent has ended without an await of what it called."""
    place = f" at {called[0].co_filename}:{called[1]}" if called is not None else ""
    logger.warning(
        "agent %r of run %s has ended and never awaited %s%s: what has not ended by then is cancelled; await it%s",
        kind,
        run,
        what,
        place,
        ", or call it through .options(detached=True)" if can_outlive else "",
    )


async def stopped(client: Client, run: str) -> None:
    """Say why a run was paused, and how it goes on."""
    try:
        handle = await client.handle(run)
        facts = await handle.describe()
    except Exception:
        return  # The client is being closed, or the store is away, which is said elsewhere.
    if facts.status == "PAUSED":
        name = handle.key or run
        logger.warning(
            "run %r of agent %r is paused: %s; %s", name, facts.kind, why_paused(facts), way_on(client.url, name)
        )


def why_paused(facts: Facts | dict[str, Any]) -> str:
    """Say what a run is paused for."""
    failure = facts["failure"]
    return f"{failure['error_type']}: {failure['message']}" if failure else str(facts["wait_reason"])


def way_on(url: str, run: str, command: str = "resume") -> str:
    """Say how a run goes on that does not by itself."""
    if url.startswith("memory:"):  # No other process finds it.
        return f"go on with: handle.{command}()"
    return f"go on with: flovyn runs {command} {shlex.join([url, run])}"


def place_of(error: BaseException) -> str:
    """Say where in the user's own code an error was raised."""
    # By the base: a subclass may have a property of this name, and this must not fail.
    trace = BaseException.__dict__["__traceback__"].__get__(error)
    found = ""
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not is_ours(path) and f"{os.sep}asyncio{os.sep}" not in path:
            found = f" ({os.path.basename(path)}:{trace.tb_lineno})"
        trace = trace.tb_next
    return found


def unanswered(why: str) -> None:
    """Say that the server of a machine does not answer yet."""
    logger.warning("%s", why)


def refused(why: str) -> None:
    """Say that a server does not let a machine in any more."""
    logger.error("%s", why)
