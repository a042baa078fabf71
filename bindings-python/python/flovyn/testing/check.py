"""Proof by construction: an agent must end the same, whatever happens to its process.

It is run undisturbed first. Then its coroutine is dropped at every wait, and its process dies at every commit in turn:
before it, after it, and with only the answer lost. Outcome, conversation and steps must be those of the first run,
and no step that had its result may run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import _native
from ..agent import Agent
from ..client import Client
from ..errors import AgentFailed, FlovynError, InvalidArgument, Waiting
from ..handle import Facts, Handle
from ..hub import Hub
from ..inputs import NOT_GIVEN
from ..run import on_thread
from ..task import Task
from .fakes import Fakes, fakes_by_kind
from .family import Member, all_runs, difference, entries, members, ops
from .harness import TestWorld

if TYPE_CHECKING:
    from .suspects import Suspects

Signals = Sequence[tuple[str, Any]] | Mapping[str, Any]

_KEY = "flovyn-check"
_PAUSE_S = 0.002
_STILL_POLLS = 5
_STUCK_S = 1.0
"""How long nothing may happen before a signal is missed: the code may have a timer of its own."""


Raises = type[BaseException] | str | bool


class Difference(AssertionError):
    """An agent did not end as in its undisturbed run, or that one did not end as it should."""


@dataclass
class Report:
    """What a check has seen. It may be awaited, which gives itself."""

    result: Any
    commits: int
    runs: int = 0
    entries: list[tuple[str, str, Any]] = field(default_factory=list[tuple[str, str, Any]])
    ops: list[str] = field(default_factory=list[str])

    def __await__(self) -> Generator[Any, Any, Report]:
        return self
        yield


@dataclass
class _Seen:
    """How a run ended."""

    outcome: Any
    failure: FlovynError | None
    entries: list[tuple[str, str, Any]]
    ops: list[str]
    family: list[Member]
    commits: int


def check(
    agent: Agent[Any, Any],
    input: Any = NOT_GIVEN,
    *,
    signals: Signals = (),
    tasks: Fakes | None = None,
    raises: Raises = False,
    timeout: float = 60.0,
    max_commits: int = 200,
) -> Report:
    """Run an agent with forced re-entry and with a crash at every commit; raise ``Difference`` at the first one.

    The runs that it starts are compared as it is, where they end of themselves. An agent that fails, or is cancelled,
    raises ``Difference`` too, unless that is expected: ``raises`` is the type of the error, its name, or True for any.
    Where runs differ, the agent is run once more to say which calls in its code differ in every process, such as
    ``time.time() at mod.py:26``.

    ``signals`` are sent at the start, in order; ``tasks`` maps tasks to stand-ins, which must give the same result
    whenever they are called. An ``at_most_once`` task that a crash leaves in doubt is answered with "run it again", as
    by a person who found that it did not happen. Durable sleeps cost no time. ``timeout`` limits each run, in seconds.
    """

    def work() -> Report:
        return asyncio.run(
            check_async(
                agent, input, signals=signals, tasks=tasks, raises=raises, timeout=timeout, max_commits=max_commits
            )
        )

    if asyncio._get_running_loop() is None:  # pyright: ignore[reportPrivateUsage]
        return work()
    return on_thread(work)


async def check_async(
    agent: Agent[Any, Any],
    input: Any = NOT_GIVEN,
    *,
    signals: Signals = (),
    tasks: Fakes | None = None,
    raises: Raises = False,
    timeout: float = 60.0,
    max_commits: int = 200,
) -> Report:
    """Do what ``check`` does, on the running loop."""
    case = _Case(agent, input, list(signals.items() if isinstance(signals, Mapping) else signals), tasks, timeout)
    expected = await case.run("undisturbed")
    _check_end(expected, raises)
    case.check_fakes()
    report = Report(expected.outcome, expected.commits, 1, expected.entries, expected.ops)
    await case.compare(expected, "re-entered at every wait", max_parked=0)
    report.runs += 1
    for n in range(1, min(expected.commits, max_commits) + 1):
        for how in ("before", "after", "answer_lost"):
            await case.compare(expected, f"crash at commit {n}, {how}", crash=(n, how))
            report.runs += 1
    return report


def _check_end(seen: _Seen, raises: Raises) -> None:
    failure = seen.failure
    if failure is None:
        if raises is not False:
            raise Difference(
                f"undisturbed: the agent gave {seen.outcome!r}, but was expected to raise {_named(raises)}"
            )
        return
    found = failure.type if isinstance(failure, AgentFailed) else type(failure).__name__
    if raises is True or (isinstance(raises, str) and raises == found):
        return
    if isinstance(raises, type) and (raises in (Exception, BaseException) or raises.__qualname__ == found):
        return
    wanted = "" if raises is False else f", not {_named(raises)}"
    told = getattr(failure, "traceback", None)
    raise Difference(
        f"undisturbed: {failure}{wanted}; where that is right, pass raises={found!r}" + (f"\n\n{told}" if told else "")
    ) from failure


def _named(raises: Raises) -> str:
    return raises.__qualname__ if isinstance(raises, type) else "an error" if raises is True else str(raises)


class _Case:
    """One agent with one input, run again and again."""

    def __init__(
        self, agent: Agent[Any, Any], input: Any, signals: list[tuple[str, Any]], tasks: Fakes | None, timeout: float
    ) -> None:
        self._agent = agent
        self._input = input
        self._signals = signals
        self._fakes = fakes_by_kind(tasks, [agent])
        self._given = tasks
        self._attempted: set[str] = set()
        self._timeout = timeout

    async def run(self, what: str, *, max_parked: int | None = None, crash: tuple[int, str] | None = None) -> _Seen:
        try:
            return await asyncio.wait_for(self._run(max_parked, crash), self._timeout)
        except Difference as difference:
            raise Difference(f"{what}: {difference}") from None
        except asyncio.TimeoutError:
            raise Difference(f"{what}: the run has not ended within {self._timeout:g} s") from None

    async def compare(
        self, expected: _Seen, what: str, *, max_parked: int | None = None, crash: tuple[int, str] | None = None
    ) -> None:
        """Run once more and raise the first difference, with what may be its cause."""
        try:
            seen = await self.run(what, max_parked=max_parked, crash=crash)
            _compare(expected, seen, what)
        except Difference as difference:
            raise Difference(f"{difference}; {await self._why()}") from None

    async def _why(self) -> Suspects:
        from .suspects import looked_for

        with looked_for() as suspects:
            try:
                await self.run("looked at")
            except Exception:
                pass  # What was seen until then may still be the cause.
        return suspects

    def check_fakes(self) -> None:
        """Refuse a stand-in for a task that the agent's code neither names nor has called."""
        named = {task.kind for task in self._agent.own_tasks()} | self._attempted
        for given in self._given or ():
            if isinstance(given, Task) and given.kind not in named:
                called = ", ".join(sorted(self._attempted)) or "none"
                raise InvalidArgument(f"tasks= has {given!r}, which {self._agent!r} does not call; it called: {called}")

    async def _run(self, max_parked: int | None, crash: tuple[int, str] | None) -> _Seen:
        world = TestWorld()
        client = world.start_process()
        if crash is not None:
            client.native.crash_at(*crash)
        handle = await client.start(self._agent, self._input, id=_KEY)
        for number, (name, value) in enumerate(self._signals):
            await handle.signal(name, value, idempotency_key=f"check-{number}")
        commits = 0
        while True:
            await self._serve(client, max_parked)
            ended = await self._drive(world, client, handle)
            commits += client.native.commits()
            if ended:
                break
            dead = client
            dead.forget()
            await Hub.current().call(dead.native.kill)
            client = world.start_process()
            handle = await client.handle(_KEY)
        try:
            # What is stored is compared; a serializer may have made of it what has no JSON form.
            outcome, failure = await _outcome(await client.handle(_KEY))
            family = await members(client, handle)
            return _Seen(outcome, failure, await entries(handle), await ops(client, handle), family, commits)
        finally:
            await client.close()

    async def _serve(self, client: Client, max_parked: int | None) -> None:
        worker = client.worker([self._agent], max_parked=max_parked)
        worker.fakes.update(self._fakes)
        done = {task["id"] for task in await _all_tasks(client) if task["status"] == "COMPLETED"}
        repeated: list[str] = []

        def attempt(kind: str, uuid: bytes) -> None:
            self._attempted.add(kind)
            if str(_uuid(uuid)) in done:
                repeated.append(kind)

        worker.on_attempt = attempt
        self._repeated = repeated
        await worker.start()

    async def _drive(self, world: TestWorld, client: Client, handle: Handle[Any]) -> bool:
        """Let the life go on until the run or the life has ended; true for the run. Time passes when all wait."""
        end = asyncio.ensure_future(Hub.current().call(client.native.crashed))
        loop = asyncio.get_running_loop()
        still, since = 0, loop.time()
        last: Any = None
        try:
            while not end.done():
                looked = asyncio.ensure_future(all_runs(client))
                await asyncio.wait((looked, end), return_when=asyncio.FIRST_COMPLETED)
                if end.done():
                    looked.cancel()
                    return False
                runs = looked.result()
                run = next(run for run in runs if str(run.id) == str(handle.id))
                if self._repeated:
                    raise Difference(f"task {self._repeated[0]!r} ran again although it had its result")
                if run.status in ("COMPLETED", "FAILED", "CANCELLED"):
                    return True
                for paused in (run for run in runs if run.status == "PAUSED"):
                    which = "the run" if paused is run else f"its child {paused.kind!r}"
                    raise Difference(f"{which} was paused: {paused.wait_reason}, {paused.failure}")
                now = loop.time()
                seen = [(one.id, one.status, one.epoch, one.updated_at) for one in runs]
                if seen != last or any(one.status == "RUNNING" for one in runs):
                    still, since, last = 0, now, seen
                still += 1
                if still > _STILL_POLLS:
                    still = 0
                    if await world.jump():
                        since = now
                    elif any(one.wait_reason == "in_doubt" for one in runs):
                        await _answer(client)
                    elif now - since > _STUCK_S:
                        _check_waits(run, runs)
                await asyncio.sleep(_PAUSE_S)
            return False
        finally:
            end.cancel()


async def _all_tasks(client: Client) -> list[Facts]:
    return [task for run in await all_runs(client) for task in await (await client.handle(run.id)).tasks()]


async def _answer(client: Client) -> None:
    """Be the person who is asked about tasks in doubt: they did not happen, so they shall run."""
    for run in await all_runs(client):
        handle = await client.handle(run.id)
        for task in await handle.tasks():
            if task["status"] == "IN_DOUBT":
                await handle.resolve(task["op"], retry=True)


def _check_waits(root: Facts, runs: list[Facts]) -> None:
    """Say for which signal of nobody the run waits, or the child that it waits for."""
    for one in (root, *(run for run in runs if run is not root)):
        if one.wait_reason == "signal":
            who = "the agent" if one is root else f"its child {one.kind!r}"
            how = "pass it in signals=" if one is root else "let its parent send it"
            raise Waiting(f"{who} waits for signal {', '.join(one.waits_for or ())!r}; {how}")


async def _outcome(handle: Handle[Any]) -> tuple[Any, FlovynError | None]:
    try:
        result = await handle.result(timeout=10)
    except FlovynError as error:
        return (type(error).__name__, str(error)), error
    return _native.decode_json(_native.encode_json(result)) if not isinstance(result, bytes) else result, None


def _compare(expected: _Seen, seen: _Seen, what: str) -> None:
    if seen.outcome != expected.outcome:
        raise Difference(f"{what}: the outcome is {seen.outcome!r}, but undisturbed it is {expected.outcome!r}")
    if seen.entries != expected.entries:
        raise Difference(f"{what}: the conversation is {seen.entries!r}, but undisturbed it is {expected.entries!r}")
    family = difference(expected.family, seen.family)
    if family is not None:
        raise Difference(f"{what}: {family}")
    # Which of several branches calls first depends on which outcome comes first; what they call may not.
    ops, wanted = sorted(seen.ops), sorted(expected.ops)
    for number, (one, other) in enumerate(zip(ops, wanted, strict=False)):
        if one != other:
            raise Difference(f"{what}: op {number} is {one!r}, but undisturbed it is {other!r}")
    if len(ops) != len(wanted):
        raise Difference(f"{what}: there are {len(ops)} ops, but undisturbed {len(wanted)}")


def _uuid(raw: bytes) -> Any:
    from uuid import UUID

    return UUID(bytes=raw)
