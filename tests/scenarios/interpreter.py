"""The scenarios' agents in Python: they run programs of ops. README.md holds the words.

interpreter.py URL [KILL_AT] < programs, one JSON object a line; dies at the n-th place where it counts.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from datetime import datetime, timezone
from typing import Any

import flovyn
from flovyn import AgentContext, TaskContext, agent, task
from flovyn.child_events import Cancelled, Completed, Failed, Request, Signal

Program = dict[str, Any]

_kill_at = int(sys.argv[2]) if len(sys.argv) > 2 else 0
_places = itertools.count(1)
_programs: dict[str, Program] = {}


class Refused(Exception):
    """What the failing task and the failing agent raise."""


def _count() -> None:
    if next(_places) == _kill_at:
        os.kill(os.getpid(), signal.SIGKILL)


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@task
async def double(x: int) -> int:
    _count()
    return x * 2


@task
async def echo(value: Any) -> Any:
    _count()
    return value


@task
async def fill(size: int) -> bytes:
    return b"\x07" * size


@task
async def measure(content: bytes) -> int:
    return len(content)


@task(no_retry=(Refused,))
async def fails(why: str) -> None:
    _count()
    raise Refused(why)


@task(retries=3)
async def flaky(ctx: TaskContext, failures: int) -> int:
    if ctx.attempt <= failures:
        raise Refused(f"attempt {ctx.attempt}")
    return ctx.attempt


@task(retries=5)
async def hopeless(why: str) -> None:
    raise flovyn.NonRetryable(why)


@task(timeout=0.05)
async def slow(seconds: float) -> None:
    await asyncio.sleep(seconds)


@task(side_effects="at_most_once")
async def charge(amount: int) -> int:
    _count()
    return amount


# ── agents ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def step(ctx: AgentContext[Any], op: list[Any], found: dict[str, Any]) -> None:  # noqa: PLR0912, PLR0915 - one branch an op
    """Do one op."""
    _count()
    match op:
        case ["task", value, name]:
            found[name] = await double(value)
        case ["echo", value, name]:
            found[name] = await echo(value)
        case ["by_kind", kind, value, name]:
            found[name] = await ctx.schedule_task(kind, value)
        case ["keyed", value, key, name]:
            found[name] = await double.options(key=key)(value)
        case ["formed", name]:
            moment = datetime(2026, 1, 31, 12, 0, 0, 120_000, tzinfo=timezone.utc)
            found[name] = await echo({"at": moment, "ids": {10, 9}, "raw": b"\xfb\xff", "tags": {"b", "a!", "a"}})
        case ["bytes", size, name]:
            found[name] = await measure(await fill(size))
        case ["fails", why, name]:
            try:
                await fails(why)
            except flovyn.TaskFailed as error:
                found[name] = [error.type, error.message]
        case ["refused", why]:
            await fails(why)
        case ["flaky", failures, name]:
            found[name] = await flaky(failures)
        case ["hopeless", why]:
            await hopeless(why)
        case ["slow", seconds]:
            await slow(seconds)
        case ["charge", amount, name]:
            found[name] = await charge(amount)
        case ["inline", value, name]:
            found[name] = await ctx.run("inline", lambda: value)
        case ["all", values, name]:
            found[name] = await asyncio.gather(*map(double, values))
        case ["nested", rows, name]:
            found[name] = await asyncio.gather(*(asyncio.gather(*map(double, row)) for row in rows))
        case ["first", value, seconds, name]:
            index, _ = await ctx.select(double(value), ctx.sleep(seconds))
            found[name] = index
        case ["leave", value]:
            ctx.schedule_task(double, value)
        case ["detached", value, name]:
            found[name] = ctx.schedule_task(double.options(detached=True), value).ref
        case ["attach", ref, name]:
            found[name] = await ctx.attach(found[ref])
        case ["child", ops, name]:
            found[name] = await ctx.spawn_agent(below, ops)
        case ["named", id, ops, name]:
            found[name] = await ctx.spawn_agent(below, ops, id=id)
        case ["begin", id, ops]:
            ctx.spawn_agent(below, ops, id=id)
        case ["message", word, value]:
            await ctx.signal_parent(word, value)
        case ["ask", word, value, name]:
            found[name] = await ctx.request_from_parent(word, value)
        case ["hear", id, ops, name]:
            found[name] = await hear(ctx, ctx.spawn_agent(below, ops, id=id))
        case ["steer", id, ops, word, value, name]:
            child = ctx.spawn_agent(below, ops, id=id)
            await ctx.signal_child(child, word, value)
            found[name] = await child
        case ["stop", id, ops, name]:
            child = ctx.spawn_agent(below, ops, id=id)
            await ctx.wait_for_child_event(child)
            await ctx.cancel_child(child)
            found[name] = await hear(ctx, child)
        case ["shared", mode, ops, name]:
            child = ctx.spawn_agent(below, ops, shared_context=mode)
            found[name] = [await child, await said(ctx.thread(str(child.id)))]
        case ["brief", ops, name]:
            found[name] = await ctx.spawn_agent(below, ops, persistence="ephemeral")
        case ["hand_off", ops]:
            await ctx.handoff_to_agent(below, ops)
        case ["hand_off_anew", ops, completion]:
            await ctx.handoff_to_agent(below, ops, conversation=False, completion=completion)
        case ["entry", role, content]:
            ctx.append_entry(role, content)
        case ["tell", name]:
            ctx.append_entry("note", found[name])
        case ["noted", role, content, kind, turn, metadata]:
            ctx.append_entry(role, content, entry_type=kind, turn_id=turn, metadata=metadata)
        case ["thread", thread, role, content]:
            ctx.thread(thread).append_entry(role, content)
        case ["said", name]:
            found[name] = await said(ctx)
        case ["context", name]:
            found[name] = dict(ctx.context_ref())
        case ["signal", word, name]:
            found[name] = await ctx.wait_for_signal(word)
        case ["signal_within", word, seconds, name]:
            found[name] = await ctx.wait_for_signal(word, timeout=seconds)
        case ["has", word, name]:
            found[name] = await ctx.has_signal(word)
        case ["drain", word, name]:
            found[name] = await ctx.drain_signals(word)
        case ["drain_turn", word, name]:
            found[name] = await ctx.drain_signals(word, turn=True)
        case ["cancelled", name]:
            found[name] = await ctx.check_cancellation()
        case ["budget", name]:
            found[name] = await ctx.remaining_budget()
        case ["time", name]:
            before = ctx.current_time()
            await double(0)
            found[name] = before <= ctx.current_time()
        case ["random", name]:
            found[name] = [ctx.random(), str(ctx.random_uuid()), ctx.random()]
        case ["sleep", seconds]:
            await ctx.sleep(seconds)
        case ["within", seconds, inner]:
            try:
                async with ctx.timeout(seconds):
                    await step(ctx, inner, found)
            except TimeoutError as error:
                raise flovyn.Timeout("too late") from error
        case ["once", word, value, name]:
            found[name] = await ctx.once(word, double, value)
        case ["once_said", word, value, name]:

            async def both(value: int) -> int:
                ctx.append_entry("system", value)
                return await double(value)

            found[name] = await ctx.once(word, both, value)
        case ["usage", model, before, after]:
            ctx.record_usage(model, before, after)
        case ["stream", text]:
            ctx.stream_token(text)
        case ["flush"]:
            await ctx.flush()
        case ["persist"]:
            await ctx.enable_persistence()
        case ["step"]:
            await ctx.step()
        case ["commit"]:
            await ctx.checkpoint()
        case ["save", value]:
            await ctx.checkpoint(value)
        case ["unserialisable"]:
            await echo(object())
        case ["input", name]:
            found[name] = ctx.input
        case ["catch", inner, name]:
            try:
                await step(ctx, inner, found)
            except (flovyn.FlovynError, flovyn.Cancelled) as error:
                found[name] = error.code
        case ["finally", inner, last]:
            try:
                await step(ctx, inner, found)
            finally:
                await step(ctx, last, found)
        case ["raise", why]:
            raise Refused(why)
        case _:
            raise ValueError(f"unknown op {op}")


async def said(ctx: AgentContext[Any]) -> list[list[Any]]:
    """Tell a conversation as pairs of role and content."""
    return [[message.role, message.content] for message in await ctx.messages()]


async def hear(ctx: AgentContext[Any], child: flovyn.Child[Any]) -> list[list[Any]]:
    """Hear a child to its end, and answer what it asks."""
    heard: list[list[Any]] = []
    while True:
        match await ctx.wait_for_child_event(child):
            case Signal(name, payload):
                heard.append(["signal", name, payload])
            case Request(name, payload) as request:
                await request.respond(["re", payload])
                heard.append(["request", name, payload])
            case Completed(output):
                return [*heard, ["completed", output]]
            case Failed(error):
                return [*heard, ["failed", error.message]]
            case Cancelled(output):
                return [*heard, ["cancelled", output]]


def _ops(ctx: AgentContext[Any]) -> list[list[Any]]:
    return _programs[str(ctx.key).removesuffix(" (fork)")]["ops"]


async def _one_by_one(ctx: AgentContext[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for op in _ops(ctx):
        await step(ctx, op, found)
    return found


async def linear(ctx: AgentContext, input: Any) -> dict[str, Any]:
    return await _one_by_one(ctx)


@agent(version="1")
async def below(ctx: AgentContext, ops: list[list[Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for op in ops:
        await step(ctx, op, found)
    return found


async def strict(ctx: AgentContext, input: Any) -> dict[str, Any]:
    return await _one_by_one(ctx)


async def careful(ctx: AgentContext, input: Any) -> dict[str, Any]:
    return await _one_by_one(ctx)


async def looping(ctx: AgentContext[dict[str, Any]], input: Any) -> dict[str, Any]:
    ops = _ops(ctx)
    while (at := ctx.state.get("at", 0)) < len(ops):
        found = dict(ctx.state.get("found", {}))
        await step(ctx, ops[at], found)
        await ctx.checkpoint({"at": at + 1, "found": found})
    return ctx.state.get("found", {})


async def hasty(ctx: AgentContext[dict[str, Any]], input: Any) -> dict[str, Any]:
    await echo("early")
    return await looping(ctx, input)


# ── a run and what a caller does with it ─────────────────────────────────────────────────────────────────────────────


async def start(client: flovyn.Client, program: Program) -> flovyn.Handle[Any]:
    """Start the run of a program and do what comes before it advances."""
    options = program.get("options", {})
    handle = await client.start(program["agent"], program.get("input"), id=program["name"], **options)
    for number, (name, value, *delivery) in enumerate(program.get("signals", [])):
        await handle.signal(name, value, idempotency_key=str(number), delivery=delivery[0] if delivery else "next_step")
    return handle


async def ended(handle: flovyn.Handle[Any], program: Program, told: dict[str, Any]) -> Any:
    """Wait for the end, steering as the program says."""
    if "resolve" in program:
        try:
            return await handle.result(timeout=20)
        except flovyn.InDoubt as error:
            told["doubt"] = error.code
            (doubt,) = [one for one in await handle.tasks() if one["status"] == "IN_DOUBT"]
            await handle.resolve(doubt["op"], result=program["resolve"])
    if program.get("cancel"):
        while await handle.status() not in ("WAITING", "COMPLETED"):
            await asyncio.sleep(0.005)
        await handle.cancel()
    until = program.get("until", "PAUSED" if "resume" in program else None)
    if until:
        while (status := await handle.status()) not in (until, "COMPLETED", "FAILED"):
            await asyncio.sleep(0.005)
        if "resume" not in program:
            return status
        if status == until:
            await handle.resume(**program["resume"])
    return await handle.result(timeout=60)


async def answer(client: flovyn.Client, handle: flovyn.Handle[Any], program: Program, call: list[Any]) -> Any:  # noqa: PLR0912 - one branch a call
    """Do what a caller does with an ended run."""
    match call:
        case ["signal", name, value]:
            await handle.signal(name, value)
        case ["signal_again", number]:
            name, value, *_ = program["signals"][number]
            await handle.signal(name, value, idempotency_key=str(number))
        case ["resume"]:
            await handle.resume()
        case ["start_other", input]:
            await client.start(program["agent"], input, id=program["name"])
        case ["start_same"]:
            again = await client.start(program["agent"], program.get("input"), id=program["name"])
            return again.id == handle.id
        case ["handle", key]:
            await client.handle(key)
        case ["start_id", key]:
            await client.start(program["agent"], None, id=key)
        case ["result_within", seconds]:
            await handle.result(timeout=seconds)
        case ["fork", sequence]:
            fork = await handle.fork(op=f"{handle.id}-0-{sequence}", id=f"{program['name']} (fork)")
            return await fork.result(timeout=60)
        case ["messages"]:
            return [[message.role, message.content] for message in await handle.messages()]
        case ["tasks"]:
            tasks = await handle.tasks()
            failed = [one["failure"] and one["failure"]["error_type"] for one in tasks]
            return [[one["kind"], one["status"], one["attempt"], why] for one, why in zip(tasks, failed, strict=True)]
        case ["checkpoints"]:
            return len(await handle.checkpoints())
        case _:
            raise ValueError(f"unknown call {call}")
    return None


async def after(client: flovyn.Client, handle: flovyn.Handle[Any], program: Program, call: list[Any]) -> Any:
    """Do what a caller does with an ended run; give what it answers or the code of its error."""
    try:
        return await answer(client, handle, program, call)
    except flovyn.FlovynError as error:
        return error.code


async def report(client: flovyn.Client, handle: flovyn.Handle[Any], program: Program) -> dict[str, Any]:
    """Tell how a run ended."""
    told: dict[str, Any] = {"name": program["name"]}
    try:
        told["result"] = await ended(handle, program, told)
    except flovyn.FlovynError as error:
        told["error"] = error.code
    failure = (await handle.describe())["failure"]
    told["failure"] = failure and [failure["code"], failure["error_type"], failure["message"]]
    if "until" not in program:
        told["events"] = [
            event.name if isinstance(event, flovyn.Lifecycle) else event.type async for event in handle.stream()
        ]
    told["after"] = [await after(client, handle, program, call) for call in program.get("after", [])]
    return told


async def main(url: str) -> None:
    """Run the programs that are given."""
    programs = [json.loads(line) for line in sys.stdin]
    _programs.update((program["name"], program) for program in programs)
    version = programs[0].get("version", "1")
    agents = [
        agent(version=version)(linear),
        agent(version=version, on_divergence="fail")(strict),
        agent(version=version, on_divergence="pause")(careful),
        agent(version=version, state=dict)(looping),
        agent(version=version, state=dict)(hasty),
        below,
    ]
    tasks = [double, echo, fill, measure, fails, flaky, hopeless, slow, charge]
    async with flovyn.connect(url) as client:
        handles = [await start(client, program) for program in programs]
        async with client.worker(agents=agents, tasks=tasks):
            for handle, program in zip(handles, programs, strict=True):
                print(json.dumps(await report(client, handle, program)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
