"""Errors that cannot be told, results that cannot be stored, and ends of processes that are none: no step hangs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flovyn
import pytest
from flovyn import AgentContext, agent, task
from flovyn.blocking import SyncAgentContext
from flovyn.errors import consists_of, message_of, traceback_of, type_name

SURROGATE = b"caf\xe9.txt".decode("utf-8", "surrogateescape")


class Mute(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]

    __repr__ = __str__


class Ending(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


class Endless(Exception):
    def __str__(self) -> str:
        return str(self)

    __repr__ = __str__


class OddText(str):
    def encode(self, *_: Any, **__: Any) -> bytes:
        raise RuntimeError("no bytes")


class Odd(Exception):
    def __str__(self) -> str:
        return OddText("odd")


class BadCause(Exception):
    __cause__ = 5  # type: ignore[assignment]


class BadTrace(Exception):
    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no traceback")


class BadExit(SystemExit):
    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no traceback")


class BadNotes(Exception):
    @property
    def __notes__(self) -> Any:
        raise RuntimeError("no notes")


class BadClass(Exception):
    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")


class Members(Exception):
    """As libraries for retries have them: no group."""

    exceptions = 5


class BadCode(flovyn.FlovynError):
    code = 7  # type: ignore[assignment]


class RaisingCode(flovyn.FlovynError):
    @property
    def code(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no code")


class SurrogateCode(flovyn.FlovynError):
    code = SURROGATE


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name == "__qualname__":
            raise RuntimeError("no name")
        return super().__getattribute__(name)


class BadName(Exception, metaclass=Meta):
    pass


def with_note() -> Exception:
    error = ValueError("noted")
    error.__notes__ = [SURROGATE, 5]  # type: ignore[attr-defined]
    return error


def with_cause() -> Exception:
    error = ValueError("caused")
    error.__cause__ = Mute()
    error.__cause__.__cause__ = ValueError(SURROGATE)
    return error


def with_context() -> Exception:
    error = ValueError("in context")
    error.__context__ = ValueError(SURROGATE)
    return error


def group() -> Exception:
    if sys.version_info < (3, 11):
        return ValueError("no groups")
    return ExceptionGroup(SURROGATE, [ValueError(SURROGATE), Mute()])  # noqa: F821


def named() -> Exception:
    return type("Named", (Exception,), {"__qualname__": SURROGATE})("named")  # type: ignore[no-any-return]


def from_odd_source() -> Exception:
    import linecache

    code = compile("def fail():\n    raise ValueError('x')\n", SURROGATE, "exec")
    linecache.cache[SURROGATE] = (1, None, ["def fail():\n", f"    raise '{SURROGATE}'\n"], SURROGATE)
    names: dict[str, Any] = {}
    exec(code, names)
    try:
        names["fail"]()
    except ValueError as error:
        return error
    raise AssertionError


UNTELLABLE: dict[str, Callable[[], BaseException]] = {
    "surrogate": lambda: ValueError(SURROGATE),
    "mute": Mute,
    "ending": Ending,
    "endless": Endless,
    "odd": Odd,
    "cause": with_cause,
    "bad cause": BadCause,
    "bad trace": BadTrace,
    "note": with_note,
    "bad notes": BadNotes,
    "bad class": BadClass,
    "context": with_context,
    "group": group,
    "members": Members,
    "name": named,
    "bad name": BadName,
    "source": from_odd_source,
    "code": BadCode,
    "raising code": RaisingCode,
    "surrogate code": lambda: SurrogateCode("coded"),
    "stop": lambda: StopIteration(Mute()),
    "base": lambda: BaseException(SURROGATE),
    "huge": lambda: ValueError("x" * 50_000_000),
    "bad exit": BadExit,
    "exit": lambda: SystemExit(SURROGATE),
}


@task
async def fails(which: str) -> None:
    raise UNTELLABLE[which]()


@task
def fails_in_thread(which: str) -> None:
    raise UNTELLABLE[which]()


@task(retries=1)
async def fails_twice(which: str) -> None:
    raise UNTELLABLE[which]()


@task(queue="default")
def fails_in_queue(which: str) -> None:
    raise UNTELLABLE[which]()


TASKS = {"async": fails, "thread": fails_in_thread, "retried": fails_twice, "queued": fails_in_queue}


@agent
async def calls(ctx: AgentContext, which: str, how: str) -> str:
    try:
        await TASKS[how](which)
    except flovyn.TaskFailed as failed:
        return failed.message
    return "nothing"


@pytest.mark.parametrize("how", TASKS)
@pytest.mark.parametrize("which", UNTELLABLE)
async def test_a_task_fails_with_any_error(which: str, how: str) -> None:
    if which == "stop" and how != "thread":
        return  # a coroutine cannot raise it
    told = await flovyn.run_async(calls, {"which": which, "how": how}, url="memory:", timeout=30)
    assert told != "nothing"
    assert len(told) < 100_000


@agent
async def raises(ctx: AgentContext, which: str) -> None:
    raise UNTELLABLE[which]()


@agent
def raises_in_thread(ctx: SyncAgentContext, which: str) -> None:
    raise UNTELLABLE[which]()


@agent
async def passes_on(ctx: AgentContext, which: str) -> None:
    await fails(which)


@pytest.mark.parametrize("of", [raises, raises_in_thread, passes_on], ids=lambda of: of.kind)
@pytest.mark.parametrize("which", UNTELLABLE)
async def test_an_agent_fails_with_any_error(which: str, of: Any) -> None:
    with pytest.raises(flovyn.AgentFailed) as failed:
        await flovyn.run_async(of, which, url="memory:", timeout=30)
    assert failed.value.message


def test_what_is_told_of_an_error_keeps_what_can_be_told() -> None:
    assert message_of(ValueError(SURROGATE)) == "caf\\udce9.txt"
    assert message_of(Mute()) == "<a Mute that cannot be printed>"
    assert message_of(ValueError()) == "ValueError()"
    assert type_name(BadName()) == "BadName"
    try:
        raise BadCause("why")
    except BadCause as error:
        told = traceback_of(error)
    assert "test_untellable.py" in told
    assert told.endswith("BadCause: why\n")
    huge = traceback_of(ValueError("a" * 500_000 + "end"))
    assert huge.startswith("ValueError: aaa")
    assert huge.endswith("end\n")
    assert "characters are left out" in huge
    assert consists_of(flovyn.Cancelled(), flovyn.Cancelled)
    assert not consists_of(asyncio.CancelledError(), flovyn.Cancelled)
    assert not consists_of(Members(), flovyn.Cancelled)


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Raising:
    kind: str

    @property
    def __dataclass_fields__(self) -> Any:
        raise AssertionError

    def __getattribute__(self, name: str) -> Any:
        if name == "kind":
            raise GeneratorExit("no")
        return object.__getattribute__(self, name)


def endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


UNSTORABLE: dict[str, Callable[[], Any]] = {
    "surrogate": lambda: SURROGATE,
    "inner surrogate": lambda: {"a": [SURROGATE]},
    "key": lambda: {SURROGATE: 1},
    "endless": endless,
    "object": object,
    "raising": lambda: Raising("x"),
    "type": lambda: named(),
    "long surrogate": lambda: SURROGATE * 1_000_000,
    "odd key": lambda: {Mute(): 1},
}


@task(retries=3)
async def gives(which: str) -> Any:
    return UNSTORABLE[which]()


@task
def gives_in_thread(which: str) -> Any:
    return UNSTORABLE[which]()


@task(queue="default")
async def gives_in_queue(which: str) -> Any:
    return UNSTORABLE[which]()


GIVERS = {"async": gives, "thread": gives_in_thread, "queued": gives_in_queue}


@agent
async def takes(ctx: AgentContext, which: str, how: str) -> list[Any]:
    try:
        await GIVERS[how](which)
    except flovyn.TaskFailed as failed:
        return [failed.type, failed.attempts]
    return ["nothing", 0]


@agent
async def returns(ctx: AgentContext, which: str) -> Any:
    return UNSTORABLE[which]()


@agent
def returns_in_thread(ctx: SyncAgentContext, which: str) -> Any:
    return UNSTORABLE[which]()


@pytest.mark.parametrize("how", GIVERS)
@pytest.mark.parametrize("which", UNSTORABLE)
async def test_a_result_that_cannot_be_stored_fails_its_task_at_once(which: str, how: str) -> None:
    told = await flovyn.run_async(takes, {"which": which, "how": how}, url="memory:", timeout=30)
    assert told == ["NotSerializable", 1]


@pytest.mark.parametrize("of", [returns, returns_in_thread], ids=lambda of: of.kind)
@pytest.mark.parametrize("which", UNSTORABLE)
async def test_a_result_that_cannot_be_stored_pauses_its_agent(which: str, of: Any) -> None:
    with pytest.raises(flovyn.Waiting) as paused:
        await flovyn.run_async(of, which, url="memory:", timeout=30)
    assert paused.value.context["failure"]["code"] == "NotSerializable"
    assert isinstance(paused.value.__cause__, flovyn.NotSerializable)


class Refused(BaseException):
    pass


@dataclass
class Checked:
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise Refused("negative")


@task
async def gives_unreadable() -> Checked:
    return {"n": -1}  # type: ignore[return-value]


@agent
async def reads(ctx: AgentContext) -> str:
    try:
        await gives_unreadable()
    except Refused as refused:
        return str(refused)
    return "nothing"


async def test_whatever_a_result_s_own_class_raises_comes_to_the_await() -> None:
    assert await flovyn.run_async(reads, url="memory:", timeout=30) == "negative"


# ── sys.exit and Ctrl-C ──────────────────────────────────────────────────────────────────────────────────────────────


@task
async def leaves() -> None:
    sys.exit("no such option: --fast")


@task
def leaves_in_thread() -> None:
    sys.exit("no such option: --fast")


@task(retries=1)
async def leaves_twice() -> None:
    sys.exit("no such option: --fast")


@task(queue="default")
def leaves_in_queue() -> None:
    sys.exit("no such option: --fast")


LEAVERS = {
    "async": (leaves, 1),
    "thread": (leaves_in_thread, 1),
    "retried": (leaves_twice, 2),
    "queued": (leaves_in_queue, 1),
}


@agent
async def calls_leaver(ctx: AgentContext, how: str) -> list[Any]:
    try:
        await LEAVERS[how][0]()
    except flovyn.TaskFailed as failed:
        return [failed.type, failed.message, failed.attempts]
    return []


@agent
async def leaving(ctx: AgentContext) -> None:
    sys.exit("nothing to do")


@agent
def leaving_in_thread(ctx: SyncAgentContext) -> None:
    sys.exit("nothing to do")


@pytest.mark.parametrize("how", LEAVERS)
async def test_sys_exit_fails_its_task_not_the_worker(how: str) -> None:
    told = await flovyn.run_async(calls_leaver, how, url="memory:", timeout=30)
    assert told == ["SystemExit", "no such option: --fast", LEAVERS[how][1]]


@pytest.mark.parametrize("of", [leaving, leaving_in_thread], ids=lambda of: of.kind)
async def test_sys_exit_fails_its_run(of: Any) -> None:
    with pytest.raises(flovyn.AgentFailed, match="SystemExit: nothing to do"):
        await flovyn.run_async(of, url="memory:", timeout=30)


ENDING = """
import asyncio, os, signal, sys, flovyn
from flovyn import agent, task

how = sys.argv[1]

def end():
    if how == "handler":
        os.kill(os.getpid(), signal.SIGTERM)
        return [n for n in range(1_000_000)]
    raise KeyboardInterrupt

@task
async def in_task():
    end()

@task
def in_thread():
    end()

@task(queue="default")
async def in_queue():
    end()

@agent
async def waits(ctx):
    where = sys.argv[2]
    if where == "agent":
        end()
    await {"task": in_task, "thread": in_thread, "queue": in_queue}[where]()

@agent
def waits_in_thread(ctx):
    end()

def leave(*_):
    sys.exit(3)

if how == "handler":
    signal.signal(signal.SIGTERM, leave)
try:
    flovyn.run(waits_in_thread if sys.argv[2] == "def" else waits, url="memory:", timeout=20)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("where", ["agent", "def", "task", "thread", "queue"])
def test_an_interrupt_ends_the_process(child: Callable[..., subprocess.Popen[str]], where: str) -> None:
    process = child(ENDING, "interrupt", where)
    output, complaints = process.communicate(timeout=30)
    assert (process.returncode, output) == (0, "interrupted\n"), complaints


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM")
@pytest.mark.parametrize("where", ["agent", "task", "queue"])
def test_sys_exit_of_a_signal_handler_ends_the_process(child: Callable[..., subprocess.Popen[str]], where: str) -> None:
    process = child(ENDING, "handler", where)
    _, complaints = process.communicate(timeout=30)
    assert process.returncode == 3, complaints
