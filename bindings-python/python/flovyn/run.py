"""The shortest programs: run an agent to its end, here and now."""

from __future__ import annotations

import asyncio
import contextvars
import shlex
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, overload

from .agent import Agent
from .client import Client, connect
from .ends import ended_in_order
from .errors import FlovynError, InvalidArgument, Waiting
from .handle import Handle
from .inputs import NOT_GIVEN
from .log import way_on
from .task import Task
from .worker import Worker

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .events import Event
    from .toolkit import Toolkit

I = TypeVar("I")  # noqa: E741 - the input
R = TypeVar("R")
OnWait = Literal["block", "return"]


class StreamOptions(TypedDict, total=False):
    """How a run is to be streamed; see ``run``."""

    id: str | None
    url: str | None
    tasks: Iterable[Task[..., Any]]
    toolkit: Toolkit | None
    timeout: float | None


class RunOptions(StreamOptions, total=False):
    """How a run is to be run; see ``run``."""

    on_wait: OnWait
    on_event: Callable[[Event], Any] | None


@overload
def run(agent: Agent[None, R], input: None = None, **options: Unpack[RunOptions]) -> R: ...
@overload
def run(agent: Agent[I, R], input: I, **options: Unpack[RunOptions]) -> R: ...
def run(
    agent: Agent[Any, Any],
    input: Any = NOT_GIVEN,
    *,
    id: str | None = None,
    url: str | None = None,
    tasks: Iterable[Task[..., Any]] = (),
    toolkit: Toolkit | None = None,
    timeout: float | None = None,
    on_wait: OnWait = "block",
    on_event: Callable[[Event], Any] | None = None,
) -> Any:
    """Run an agent to its end and return its result.

    The same ``id`` again resumes the run, or returns its recorded result. Serves this run alone: the agent, the tasks
    its code calls, and ``tasks``; ``toolkit`` is what the agent may use of the toolkit. With ``on_wait="return"`` a
    run that waits for a signal is left waiting and None is returned; one that waits for a decision raises ``InDoubt``,
    a paused one ``Waiting``. Inside a running event loop it works on a thread of its own. Ctrl-C and SIGTERM give the
    run back before they end the process.
    """

    def work() -> Any:
        return asyncio.run(
            run_async(
                agent,
                input,
                id=id,
                url=url,
                tasks=tasks,
                toolkit=toolkit,
                timeout=timeout,
                on_wait=on_wait,
                on_event=on_event,
            )
        )

    try:
        if asyncio._get_running_loop() is None:  # pyright: ignore[reportPrivateUsage]
            return work()
        return on_thread(work)
    except FlovynError as error:
        # The frames from here on are the engine's and asyncio's.
        raise error.with_traceback(None) from error.__cause__


def on_thread(work: Callable[[], Any]) -> Any:
    """Do work on a thread of its own with the caller's context variables, and wait for it."""
    outcome: list[Any] = []
    context = contextvars.copy_context()

    def body() -> None:
        try:
            outcome.extend((True, context.run(work)))
        except BaseException as error:
            outcome.extend((False, error))

    thread = threading.Thread(target=body, name="flovyn-run", daemon=True)
    thread.start()
    thread.join()
    if not outcome[0]:
        raise outcome[1]
    return outcome[1]


@overload
async def run_async(agent: Agent[None, R], input: None = None, **options: Unpack[RunOptions]) -> R: ...
@overload
async def run_async(agent: Agent[I, R], input: I, **options: Unpack[RunOptions]) -> R: ...
async def run_async(
    agent: Agent[Any, Any],
    input: Any = NOT_GIVEN,
    *,
    id: str | None = None,
    url: str | None = None,
    tasks: Iterable[Task[..., Any]] = (),
    toolkit: Toolkit | None = None,
    timeout: float | None = None,
    on_wait: OnWait = "block",
    on_event: Callable[[Event], Any] | None = None,
) -> Any:
    """Run an agent to its end on the running loop and return its result; see ``run``."""
    _check(agent)
    with ended_in_order():
        return await _run(agent, input, id, url, tasks, toolkit, timeout, on_wait, on_event)


async def _run(
    agent: Agent[Any, Any],
    input: Any,
    id: str | None,
    url: str | None,
    tasks: Iterable[Task[..., Any]],
    toolkit: Toolkit | None,
    timeout: float | None,
    on_wait: OnWait,
    on_event: Callable[[Event], Any] | None,
) -> Any:
    async with connect(url) as client:
        handle = await client.start(agent, input, id=id)
        async with _own_worker(client, handle, agent, tasks, toolkit):
            watch = None if on_event is None else asyncio.ensure_future(_tell(handle, on_event))
            try:
                return await _await_end(handle, timeout, on_wait)
            finally:
                if watch is not None:
                    await _finish(watch)


@overload
def stream(agent: Agent[None, Any], input: None = None, **options: Unpack[StreamOptions]) -> AsyncIterator[Event]: ...
@overload
def stream(agent: Agent[I, Any], input: I, **options: Unpack[StreamOptions]) -> AsyncIterator[Event]: ...
async def stream(
    agent: Agent[Any, Any],
    input: Any = NOT_GIVEN,
    *,
    id: str | None = None,
    url: str | None = None,
    tasks: Iterable[Task[..., Any]] = (),
    toolkit: Toolkit | None = None,
    timeout: float | None = None,
) -> AsyncIterator[Event]:
    """Run an agent and iterate over its events, to the terminal one."""
    _check(agent)
    async with connect(url) as client:
        handle = await client.start(agent, input, id=id)
        async with _own_worker(client, handle, agent, tasks, toolkit):
            deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
            events = handle.stream().__aiter__()
            while True:
                left = None if deadline is None else deadline - asyncio.get_running_loop().time()
                try:
                    event = await asyncio.wait_for(events.__anext__(), left)
                except StopAsyncIteration:
                    return
                except asyncio.TimeoutError:
                    break
                yield event
            await handle._late(timeout or 0)  # pyright: ignore[reportPrivateUsage]


def _check(agent: Any) -> None:
    if not isinstance(agent, Agent):
        raise InvalidArgument(f"run() takes a function declared with @agent, not {agent!r}")


def _own_worker(
    client: Client,
    handle: Handle[Any],
    agent: Agent[Any, Any],
    tasks: Iterable[Task[..., Any]],
    toolkit: Toolkit | None,
) -> Worker:
    return Worker(client, [agent], tasks, only=str(handle.id), toolkit=toolkit)


async def _await_end(handle: Handle[Any], timeout: float | None, on_wait: OnWait) -> Any:
    end: Any = handle._result_or_wait()  # pyright: ignore[reportPrivateUsage]
    try:
        if timeout is None:
            return await end
        return await asyncio.wait_for(end, timeout)
    except Waiting as waiting:
        if on_wait == "return":
            if waiting.context.get("wait_reason") != "signal":
                raise
            return None
        _say_what_for(handle, waiting)
        if waiting.context.get("wait_reason") == "error":
            # The code must change first, and that is in this process.
            raise
        return await handle.result(timeout)
    except asyncio.TimeoutError:
        pass
    await handle._late(timeout or 0)  # pyright: ignore[reportPrivateUsage]


def _say_what_for(handle: Handle[Any], waiting: Waiting) -> None:
    name = handle.key or str(handle.id)
    where = shlex.join([handle._client.url, name])  # pyright: ignore[reportPrivateUsage]
    for signal in waiting.context.get("waits_for") or ():
        command = f"flovyn runs signal {where} {shlex.quote(signal)} JSON"
        print(f"flovyn: run {name!r} waits for signal {signal!r}; send it with: {command}", file=sys.stderr)
    if waiting.context.get("status") == "PAUSED":
        reason, failure = waiting.context.get("wait_reason"), waiting.context.get("failure")
        why = f"{failure['error_type']}: {failure['message']}" if failure else reason
        on = way_on(handle._client.url, name)  # pyright: ignore[reportPrivateUsage]
        print(f"flovyn: run {name!r} is paused ({why}); {on}", file=sys.stderr)


async def _tell(handle: Handle[Any], on_event: Callable[[Event], Any]) -> None:
    async for event in handle.stream():
        told = on_event(event)
        if asyncio.iscoroutine(told):
            await told


async def _finish(watch: asyncio.Future[None]) -> None:
    _, unfinished = await asyncio.wait([watch], timeout=1.0)
    if unfinished:
        watch.cancel()
        await asyncio.wait([watch])
