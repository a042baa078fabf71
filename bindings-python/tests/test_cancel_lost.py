"""A run that shall stop: every branch is told once, whatever asyncio makes of it, and tidies up unhindered."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import flovyn
import pytest
from flovyn import AgentContext, agent, task
from flovyn.blocking import SyncAgentContext
from flovyn.codes import OUTCOME_CANCELLED
from flovyn.scope import current
from flovyn.step import Step
from flovyn.testing import harness

made: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    made.clear()
    scopes.clear()


@task
async def make(what: str) -> str:
    made.append(what)
    return what


@task
async def long() -> None:
    await asyncio.sleep(3600)


async def cancelled(of: Any, input: Any = None) -> Any:
    """Run an agent until it waits, ask it to stop, and return what it kept."""
    async with harness([of]) as h:
        handle = await h.start(of, input)
        await h.settle()
        await handle.cancel()
        with pytest.raises(flovyn.AgentCancelled) as stopped:
            await handle.result(timeout=20)
        return stopped.value.output


# ── timers of the host ───────────────────────────────────────────────────────────────────────────────────────────────


scopes: list[anyio.CancelScope] = []
"""Of anyio: its timers look at the clock again when they fire."""


def fire_timers() -> None:
    """Let the timers of agents fire in this very turn of the loop."""
    for timer in list(asyncio.get_running_loop()._scheduled):  # type: ignore[attr-defined]
        if timer._context.get(current) is not None and not timer.cancelled():
            timer._run()
            timer.cancel()
    for scope in scopes:
        scope.cancel()
    scopes.clear()


async def by_wait_for(step: Any) -> None:
    await asyncio.wait_for(step, 3600)


async def by_timeout(step: Any) -> None:
    async with asyncio.timeout(3600):  # type: ignore[attr-defined]
        await step


async def by_move_on_after(step: Any) -> None:
    with anyio.move_on_after(3600) as scope:
        scopes.append(scope)
        await step


async def by_fail_after(step: Any) -> None:
    with anyio.fail_after(3600) as scope:
        scopes.append(scope)
        await step


async def by_wait(step: Any) -> None:
    done, pending = await asyncio.wait([asyncio.ensure_future(step)], timeout=3600)
    for one in pending:
        one.cancel()
    for one in done:
        one.result()


async def by_wait_unread(step: Any) -> None:
    _, pending = await asyncio.wait([asyncio.ensure_future(step)], timeout=3600)
    for one in pending:
        one.cancel()


async def by_call_later(step: Any) -> None:
    own = asyncio.current_task()
    assert own is not None
    timer = asyncio.get_running_loop().call_later(3600, own.cancel)
    try:
        await step
    except asyncio.CancelledError:
        pass
    finally:
        timer.cancel()


WAITS: dict[str, Callable[[Any], Awaitable[None]]] = {
    "wait_for": by_wait_for,
    "move_on_after": by_move_on_after,
    "fail_after": by_fail_after,
    "wait": by_wait,
    "wait unread": by_wait_unread,
    "call_later": by_call_later,
}
if sys.version_info >= (3, 11):
    WAITS["timeout"] = by_timeout


@agent
async def polls(ctx: AgentContext, how: str) -> str:
    for _ in range(6):
        try:
            await WAITS[how](ctx.wait_for_signal("never"))
        except (TimeoutError, asyncio.TimeoutError):
            pass
    return "went on"


@pytest.mark.parametrize("first", ["timer", "cancel"])
@pytest.mark.parametrize("how", WAITS)
async def test_a_cancel_is_not_lost_to_a_timer_of_the_same_turn(
    how: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = Step.deliver

    def together(step: Step[Any], tag: int, value: Any, cause: BaseException | None = None) -> None:
        if tag == OUTCOME_CANCELLED and first == "timer":
            fire_timers()
        deliver(step, tag, value, cause)
        if tag == OUTCOME_CANCELLED and first == "cancel":
            fire_timers()

    monkeypatch.setattr(Step, "deliver", together)
    assert await cancelled(polls, how) is None


# ── branches that nobody reads ───────────────────────────────────────────────────────────────────────────────────────


async def told_at_next_await(ctx: AgentContext) -> list[str]:
    seen = ["went on"]
    for what in ("one", "two"):
        try:
            await make(what)
            seen.append(what)
        except flovyn.Cancelled:
            seen.append("told")
    return seen


@agent
async def gathers_all(ctx: AgentContext) -> list[str]:
    await asyncio.gather(ctx.wait_for_signal("a"), ctx.wait_for_signal("b"), return_exceptions=True)
    return await told_at_next_await(ctx)


@agent
async def waits_for_all(ctx: AgentContext) -> list[str]:
    await asyncio.wait([asyncio.ensure_future(ctx.wait_for_signal("a"))])
    return await told_at_next_await(ctx)


@agent
async def sleeps_beside(ctx: AgentContext) -> list[str]:
    branch = asyncio.create_task(swallows(ctx))
    await asyncio.wait([branch])
    return await told_at_next_await(ctx)


async def swallows(ctx: AgentContext) -> None:
    try:
        await ctx.wait_for_signal("a")
    except flovyn.Cancelled:
        pass


@pytest.mark.parametrize("of", [gathers_all, waits_for_all, sleeps_beside], ids=lambda of: of.kind)
async def test_what_nobody_reads_is_raised_at_the_next_await_once(of: Any) -> None:
    assert await cancelled(of) == ["went on", "told", "two"]
    assert made == ["two"], "a step whose await was refused is not run"


@agent
async def never_reads(ctx: AgentContext) -> str:
    for _ in range(6):
        await asyncio.gather(ctx.wait_for_signal("a"), long(), return_exceptions=True)
    return "went on"


async def test_a_loop_that_reads_no_result_ends() -> None:
    assert await cancelled(never_reads) is None


@agent
async def reads_late(ctx: AgentContext) -> str:
    await asyncio.wait([asyncio.ensure_future(ctx.wait_for_signal("a"))])
    branch = asyncio.ensure_future(make("one"))
    await asyncio.wait([branch])
    try:
        branch.result()
    except flovyn.Cancelled:
        return await make("tidied up")
    return "went on"


async def test_a_branch_is_told_in_the_stead_of_the_one_that_made_it() -> None:
    assert await cancelled(reads_late) == "tidied up"
    assert made == ["tidied up"]


@agent
async def shares_a_lock(ctx: AgentContext) -> list[Any]:
    lock = asyncio.Lock()

    async def one(name: str) -> str:
        async with lock:
            await ctx.wait_for_signal(name)
        return name

    ends = await asyncio.gather(*(one(name) for name in "abc"), return_exceptions=True)
    return [type(end).__name__ for end in ends]


async def test_a_branch_that_waits_for_the_host_is_told_at_its_next_await() -> None:
    assert await cancelled(shares_a_lock) == ["Cancelled", "Cancelled", "Cancelled"]


# ── tidying up ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def tidy(ctx: AgentContext) -> None:
    await make("a")
    await asyncio.wait_for(make("b"), 3600)
    await asyncio.gather(make("c"), asyncio.create_task(_make("d")))
    await asyncio.wait([asyncio.ensure_future(make("e"))])


async def _make(what: str) -> None:
    await make(what)


async def in_finally(ctx: AgentContext) -> None:
    try:
        await ctx.wait_for_signal("x")
    finally:
        await tidy(ctx)


async def in_except(ctx: AgentContext) -> None:
    try:
        await asyncio.gather(ctx.wait_for_signal("x"), ctx.wait_for_signal("y"))
    except flovyn.Cancelled:
        await tidy(ctx)


async def after_except(ctx: AgentContext) -> None:
    try:
        await asyncio.gather(ctx.wait_for_signal("x"), ctx.wait_for_signal("y"))
    except flovyn.Cancelled:
        pass
    await tidy(ctx)


async def after_helper(ctx: AgentContext) -> None:
    async def guarded() -> None:
        try:
            await asyncio.wait_for(ctx.wait_for_signal("x"), 3600)
        except flovyn.Cancelled:
            pass

    await guarded()
    await tidy(ctx)


async def in_branch(ctx: AgentContext) -> None:
    await asyncio.gather(in_finally(ctx))


async def with_another_error(ctx: AgentContext) -> None:
    async def converts() -> None:
        try:
            await ctx.wait_for_signal("x")
        except flovyn.Cancelled:
            raise ValueError("stopped") from None

    try:
        await asyncio.gather(converts())
    except ValueError:
        await tidy(ctx)


async def in_group(ctx: AgentContext) -> None:
    try:
        async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined]
            group.create_task(ctx.wait_for_signal("x"))
            group.create_task(ctx.wait_for_signal("y"))
    finally:
        await tidy(ctx)


async def after_group(ctx: AgentContext) -> None:
    try:
        async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined]
            group.create_task(ctx.wait_for_signal("x"))
            group.create_task(ctx.wait_for_signal("y"))
    except BaseExceptionGroup:  # type: ignore[name-defined]  # noqa: F821
        pass
    await tidy(ctx)


TIDIERS = {
    each.__name__: each for each in (in_finally, in_except, after_except, after_helper, in_branch, with_another_error)
}
if sys.version_info >= (3, 11):
    TIDIERS |= {each.__name__: each for each in (in_group, after_group)}


@agent
async def tidies(ctx: AgentContext, how: str) -> None:
    await TIDIERS[how](ctx)


@pytest.mark.parametrize("how", TIDIERS)
async def test_what_tidies_up_is_not_told_again(how: str) -> None:
    await cancelled(tidies, how)
    assert sorted(made) == ["a", "b", "c", "d", "e"]


# ── how it ends ──────────────────────────────────────────────────────────────────────────────────────────────────────


@agent
async def ends_as_group(ctx: AgentContext) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(ctx.wait_for_signal, "x")
        group.start_soon(in_order, ctx)


async def in_order(ctx: AgentContext) -> None:
    await ctx.wait_for_signal("y")


@agent
async def ends_as_asyncio_does(ctx: AgentContext) -> None:
    branch = asyncio.create_task(swallows(ctx))
    await asyncio.wait([branch])
    raise asyncio.CancelledError


@agent
def ends_as_group_in_thread(ctx: SyncAgentContext) -> None:
    ends = []
    for _ in range(2):
        try:
            ctx.wait_for_signal("x")
        except flovyn.Cancelled as told:
            ends.append(told)
            break
    if sys.version_info >= (3, 11):
        raise BaseExceptionGroup("both", ends)  # noqa: F821
    raise ends[0]


@pytest.mark.parametrize("of", [ends_as_group, ends_as_asyncio_does, ends_as_group_in_thread], ids=lambda of: of.kind)
async def test_nothing_but_cancelled_is_a_cancellation(of: Any) -> None:
    assert await cancelled(of) is None


@agent
def limited(ctx: SyncAgentContext) -> str:
    with ctx.timeout(3600):
        try:
            ctx.wait_for_signal("x")
        except flovyn.Cancelled:
            return make("tidied up").result()
    return "went on"


async def test_a_limit_of_a_def_agent_has_not_passed_because_the_run_shall_stop() -> None:
    assert await cancelled(limited) == "tidied up"


# ── after a crash ────────────────────────────────────────────────────────────────────────────────────────────────────

seen: list[str] = []


@agent
async def told_across_crash(ctx: AgentContext) -> str:
    seen.append("begins")
    await asyncio.gather(ctx.wait_for_signal("a"), ctx.wait_for_signal("b"), return_exceptions=True)
    branch = asyncio.ensure_future(make("branch"))
    await asyncio.wait([branch])
    seen.append(type(branch.exception()).__name__)
    try:
        await make("one")
    except flovyn.Cancelled:
        seen.append("told")
    await make("tidied up")
    await ctx.wait_for_signal("close")
    return "closed"


async def test_replay_tells_the_same_branches() -> None:
    seen.clear()
    async with harness([told_across_crash]) as h:
        handle = await h.start(told_across_crash, id="t")
        await h.settle()
        await handle.cancel()
        await h.settle()
        first = list(seen)
        assert first == ["begins", "Cancelled", "told"]
        seen.clear()
        await h.crash()
        handle = await h.client.handle("t")
        await handle.signal("close")
        with pytest.raises(flovyn.AgentCancelled) as stopped:
            await handle.result(timeout=20)
        assert stopped.value.output == "closed"
        assert seen == first
        assert made == ["tidied up"]


# ── who asks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def asked(ctx: AgentContext) -> None:
    """Wait outside of the context until the run shall stop, and ask whether it shall."""
    while not ctx.is_cancellation_requested:
        await asyncio.sleep(0.001)
    with pytest.raises(flovyn.Cancelled):
        await ctx.check_cancellation()


@agent
async def asks(ctx: AgentContext) -> list[str]:
    await asked(ctx)
    return [await make("bye"), await make("gone")]


@agent
async def asks_beside(ctx: AgentContext) -> list[str]:
    heard: list[str] = []

    async def waits() -> None:
        with pytest.raises(flovyn.Cancelled):
            await ctx.wait_for_signal("never")
        heard.append(await make("of the waiting"))

    async def works() -> None:
        while len(heard) < 1:
            await asyncio.sleep(0.001)
        with pytest.raises(flovyn.Cancelled):
            await make("never")
        heard.append(await make("of the working"))

    async def stops() -> None:
        await asked(ctx)
        heard.append(await make("of the asking"))

    await asyncio.gather(waits(), works(), stops())
    return sorted(heard)


@agent(cancellable=False)
async def asks_by_the_way(ctx: AgentContext) -> list[str]:
    await asked(ctx)
    await asked(ctx)
    return [await make("done")]


@pytest.mark.parametrize(
    ("of", "kept"),
    [(asks, ["bye", "gone"]), (asks_beside, ["of the asking", "of the waiting", "of the working"])],
    ids=lambda of: getattr(of, "kind", ""),
)
async def test_a_branch_that_asks_is_told_once(of: Any, kept: list[str]) -> None:
    async with flovyn.connect("memory:") as client, client.worker(agents=[of]):
        run = await client.start(of)
        await asyncio.sleep(0.1)
        await run.cancel()
        with pytest.raises(flovyn.AgentCancelled) as stopped:
            await run.result(timeout=20)
    assert stopped.value.output == kept
    assert sorted(made) == sorted(kept)


async def test_what_is_not_cancellable_may_ask_and_go_on() -> None:
    async with flovyn.connect("memory:") as client, client.worker(agents=[asks_by_the_way]):
        run = await client.start(asks_by_the_way)
        await asyncio.sleep(0.1)
        await run.cancel(timeout=60)
        assert await run.result(timeout=20) == ["done"]
