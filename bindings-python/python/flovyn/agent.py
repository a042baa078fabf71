"""Agents: functions over a durable context."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    NoReturn,
    Protocol,
    TypeVar,
    get_origin,
    is_typeddict,
    overload,
)

from .declared import check_agent, check_kept, listed, names_before
from .errors import InvalidArgument, NotSerializable, StateNotDeclared, WrongStateType
from .inputs import NOT_GIVEN, input_of
from .serde import (
    STRICT,
    Codec,
    Pair,
    Rebuild,
    Serializer,
    Signature,
    Unfit,
    accepted,
    codec_of,
    local_names,
    own_serializer,
)
from .signals import Signals

if TYPE_CHECKING:
    from . import _native
    from .blocking import SyncAgentContext
    from .context import AgentContext
    from .task import Task

I = TypeVar("I", contravariant=True)  # noqa: E741 - the input
R = TypeVar("R")
OnDivergence = Literal["continue", "fail", "pause"]
OnError = Literal["fail", "pause"]

_UNSET: Any = object()


def _seconds(limit: float | None, kind: str) -> float | None:
    if limit is not None and not (isinstance(limit, (int, float)) and limit > 0):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"replay_timeout of agent {kind!r} is a number of seconds above 0, not {limit!r}")
    return limit


class UnreadableState(WrongStateType):
    """A stored state that the present code cannot take without losing something.

    It is no failure of the run: other code, or this one with ``migrate=``, goes on with it.
    """

    code = "WrongStateType"


class Agent(Generic[I, R]):
    """A declared agent. Start it with ``run``, ``client.start`` or a worker; it is not called like a function."""

    is_native: ClassVar[bool] = False
    """Whether the toolkit runs it, by what ``describe`` says."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        kind: str,
        version: str | None,
        state: Any,
        migrate: Callable[[Any], Any] | None,
        on_divergence: OnDivergence,
        on_error: OnError | None,
        replay_timeout: float | None,
        signals: Mapping[str, Any] | None,
        timeout: float | None,
        name: str | None,
        description: str | None,
        tags: Sequence[str],
        cancellable: bool,
        signature: Signature,
        aliases: Sequence[str] = (),
    ) -> None:
        self.fn: Callable[..., Any] = fn
        """The plain function, for tests: ``agent.fn(ctx, input)``."""
        self.kind: str = kind
        """Its name in journals."""
        self.aliases: tuple[str, ...] = tuple(aliases)
        """Names that it had before: runs recorded under them are its own."""
        self.version: str | None = version
        self.state: Any = state
        self.migrate: Callable[[Any], Any] | None = migrate
        self.on_divergence: OnDivergence = on_divergence
        self.on_error: OnError | None = on_error
        self.replay_timeout: float | None = _seconds(replay_timeout, kind)
        self.signals: Mapping[str, Any] = dict(signals or {})
        """The types of its signals, by name."""
        self.mail: Signals = Signals(self.signals, signature.own)
        """What writes and reads its signals."""
        self.timeout: float | None = timeout
        self.name: str = name or kind
        self.description: str | None = description or fn.__doc__
        self.tags: tuple[str, ...] = tuple(listed("tags", tags))
        self.cancellable: bool = cancellable
        self.is_async: bool = asyncio.iscoroutinefunction(fn)
        self._signature = signature
        self._rebuild: Rebuild | None = _UNSET
        self._state_codec: Codec | None = None
        self.__name__ = getattr(fn, "__name__", kind)
        self.__doc__ = fn.__doc__
        self.__wrapped__ = fn

    @property
    def signature(self) -> Signature:
        """What its function takes and gives."""
        return self._signature

    @property
    def code(self) -> str:
        """What identifies its code: the version, else a fingerprint of the compiled function."""
        return self.version or _fingerprint(self.fn)

    @property
    def rebuild(self) -> Rebuild | None:
        """What turns a decoded result into the annotated return type, if anything."""
        if self._rebuild is _UNSET:
            self._rebuild = self._signature.returns()
        return self._rebuild

    def wire(self, input: Any = NOT_GIVEN) -> Any:
        """Return the value that stands for the input; refuse one that the function cannot take."""
        return input_of(self.kind, self._signature, input)

    def output(self, output: Any) -> Any:
        """Return the result of a run; refuse one that ``handle.result()`` would give as something else."""
        return self._signature.returned(output)

    def arguments(self, input: Any, begun: Callable[[], bool] = lambda: False) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments after the context for a stored input.

        What validators have against it is not heard where the run has ``begun`` with it.
        """
        names = self._signature.names
        if len(names) == 1 and input is None and names[0] in self._signature.defaults:
            return [], {}
        try:
            return self._signature.unwire(input)
        except Exception:
            if not begun():
                raise
            token = accepted.set(True)
            try:
                return self._signature.unwire(input)
            finally:
                accepted.reset(token)

    def initial_state(self, stored: tuple[Any] | None) -> Any:
        """Return the state to start with: the stored one, migrated and rebuilt, or a new one."""
        if self.state is None:
            return None
        if stored is None:
            make: Any = self.state
            return make()
        value: Any = stored[0]
        if self._signature.own is not None:
            try:
                value = self._signature.own.load(value)
            except NotSerializable as error:
                raise self._unreadable(error.message, "Correct its load()") from error
        if self.migrate is not None:
            try:
                value = self.migrate(value)
            except Exception as error:
                raise self._unreadable(
                    f"migrate= raised {type(error).__name__}: {error}",
                    "Correct migrate=",
                ) from error
        try:
            return self._codec_of_state().shape.read(value, STRICT)
        except Unfit as unfit:
            raise self._unreadable(unfit.told, "Give the agent migrate= that makes the present state of it") from unfit
        except Exception as error:
            raise self._unreadable(
                f"{type(error).__name__}: {error}", "Give the agent migrate= that makes the present state of it"
            ) from error

    def _unreadable(self, why: str, what_to_do: str) -> UnreadableState:
        wanted = getattr(self.state, "__qualname__", str(self.state))
        return UnreadableState(
            f"the stored state of agent {self.kind!r} cannot be read as state={wanted}: {why}. "
            f"{what_to_do}, or deploy the code that wrote it; then resume the run",
            context={"agent": self.kind, "state": wanted, "why": why},
        )

    def _codec_of_state(self) -> Codec:
        if self._state_codec is None:
            made: Any = self.state
            # A factory does not say what it makes; a first state does.
            is_type = isinstance(made, type) or get_origin(made) is not None
            self._state_codec = codec_of(made if is_type else type(made()), local=self._signature.local)
        return self._state_codec

    def stored_state(self, value: Any) -> Any:
        """Return what is stored for a state; refuse one that is of another type than the declared one."""
        self.check_state(value)
        return value if self._signature.own is None else self._signature.own.dump(value)

    def check_stateful(self, what: str) -> None:
        """Refuse what only an agent with state can do."""
        if self.state is None:
            raise StateNotDeclared(
                f"{what} needs state, but agent {self.kind!r} is declared without it. "
                "Without state recovery replays the recorded run, and local variables are the state. "
                "With @agent(state=YourDataclass) recovery enters the function at its top with ctx.state as of the "
                "last checkpoint(): read it, then loop."
            )

    def check_state(self, value: Any) -> None:
        """Refuse a checkpoint of another type than the declared one, or one that would come back as something else."""
        # Python 3.10 takes `dict[str, int]` for a class.
        if isinstance(self.state, type) and get_origin(self.state) is None and not _is_of(value, self.state):
            raise WrongStateType(
                f"agent {self.kind!r} is declared with state={self.state.__qualname__}, "
                f"but checkpoint() got a {type(value).__qualname__}"
            )
        if self.state is not None and self._signature.own is None:
            self._codec_of_state().check_state(value)

    def declare_to(self, worker: _native.Worker) -> None:
        """Declare it to the engine, or again what it is by now."""
        for name in () if self.is_native else (self.kind, *self.aliases):
            worker.serve_agent(
                name,
                self.state is not None,
                self.code,
                self.on_divergence,
                self.on_error,
                self.cancellable,
                self.replay_timeout,
            )

    def own_tasks(self) -> Sequence[Task[..., Any]]:
        """Return the tasks that whoever serves it has to serve too."""
        from .discover import tasks_of

        return tasks_of(self.fn)

    def own_agents(self) -> Sequence[Agent[Any, Any]]:
        """Return the agents that whoever serves it has to serve too: those of its children."""
        from .discover import agents_of

        return agents_of(self)

    def given_work(self) -> Sequence[Agent[Any, Any]]:
        """Return the agents that its model may give work to."""
        return ()

    def describe(self) -> dict[str, Any]:
        """Return what the toolkit has to know to run it."""
        raise InvalidArgument(f"agent {self.kind!r} is a function; the toolkit does not run it")

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            f"agent {self.kind!r} is not called like a function: use flovyn.run({self.__name__}, input), "
            f"client.start({self.__name__}, input), or {self.__name__}.fn(ctx, input) in a test"
        )

    def __repr__(self) -> str:
        return f"<flovyn agent {self.kind!r}>"


def _is_of(value: Any, cls: Any) -> bool:
    # A `TypedDict` refuses to be asked.
    return isinstance(value, dict if is_typeddict(cls) else cls)


def _fingerprint(fn: Callable[..., Any]) -> str:
    import hashlib

    digest = hashlib.blake2b(digest_size=12)

    def add(code: Any) -> None:
        digest.update(code.co_code)
        digest.update(repr(code.co_names).encode())
        for constant in code.co_consts:
            if hasattr(constant, "co_code"):
                add(constant)
            elif isinstance(constant, frozenset):
                digest.update(repr(sorted(map(repr, constant))).encode())  # pyright: ignore[reportUnknownArgumentType]
            else:
                digest.update(repr(constant).encode())

    code = getattr(fn, "__code__", None)
    if code is None:
        digest.update(getattr(fn, "__qualname__", type(fn).__qualname__).encode())
    else:
        add(code)
    return digest.hexdigest()


if TYPE_CHECKING:
    G = TypeVar("G")
    _AsyncWith = Callable[[AgentContext[Any], G], Coroutine[Any, Any, R]]
    _AsyncWithout = Callable[[AgentContext[Any]], Coroutine[Any, Any, R]]
    _SyncWith = Callable[[SyncAgentContext[Any], G], R]
    _SyncWithout = Callable[[SyncAgentContext[Any]], R]
    RC = TypeVar("RC", covariant=True)

    class _AsyncMaybe(Protocol[I, RC]):
        """An input with a default."""

        def __call__(self, ctx: AgentContext[Any], input: I = ..., /) -> Coroutine[Any, Any, RC]: ...

    class _SyncMaybe(Protocol[I, RC]):
        def __call__(self, ctx: SyncAgentContext[Any], input: I = ..., /) -> RC: ...

    class AgentDecorator:
        """What ``agent(...)`` with options gives: it declares the function it is put on."""

        @overload
        def __call__(self, fn: _AsyncMaybe[G, R], /) -> Agent[G | None, R]: ...
        @overload
        def __call__(self, fn: _AsyncWithout[R], /) -> Agent[None, R]: ...
        @overload
        def __call__(self, fn: _AsyncWith[G, R], /) -> Agent[G, R]: ...
        @overload
        def __call__(self, fn: _SyncMaybe[G, R], /) -> Agent[G | None, R]: ...
        @overload
        def __call__(self, fn: _SyncWithout[R], /) -> Agent[None, R]: ...
        @overload
        def __call__(self, fn: _SyncWith[G, R], /) -> Agent[G, R]: ...
        def __call__(self, fn: Any, /) -> Any: ...


@overload
def agent(fn: _AsyncMaybe[G, R], /) -> Agent[G | None, R]: ...
@overload
def agent(fn: _AsyncWithout[R], /) -> Agent[None, R]: ...
@overload
def agent(fn: _AsyncWith[G, R], /) -> Agent[G, R]: ...
@overload
def agent(fn: _SyncMaybe[G, R], /) -> Agent[G | None, R]: ...
@overload
def agent(fn: _SyncWithout[R], /) -> Agent[None, R]: ...
@overload
def agent(fn: _SyncWith[G, R], /) -> Agent[G, R]: ...
@overload
def agent(
    *,
    kind: str | None = None,
    aliases: Sequence[str] = (),
    version: str | None = None,
    state: Any = None,
    migrate: Callable[[Any], Any] | None = None,
    on_divergence: OnDivergence = "continue",
    on_error: OnError | None = None,
    replay_timeout: float | None = None,
    signals: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    name: str | None = None,
    description: str | None = None,
    tags: Sequence[str] = (),
    cancellable: bool = True,
    serializer: Serializer | Pair | None = None,
) -> AgentDecorator: ...
def agent(
    fn: Any = None,
    /,
    *,
    kind: str | None = None,
    aliases: Sequence[str] = (),
    version: str | None = None,
    state: Any = None,
    migrate: Callable[[Any], Any] | None = None,
    on_divergence: OnDivergence = "continue",
    on_error: OnError | None = None,
    replay_timeout: float | None = None,
    signals: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    name: str | None = None,
    description: str | None = None,
    tags: Sequence[str] = (),
    cancellable: bool = True,
    serializer: Serializer | Pair | None = None,
) -> Any:
    """Declare an agent: ``async def`` (or ``def``) over an ``AgentContext`` and one input or none.

    Without ``state`` recovery replays the recorded run, so linear code just works. With ``state=T`` recovery enters
    the function at its top with ``ctx.state`` as of the last checkpoint: read it, then loop.
    ``aliases`` names what it was called before: it goes on with the runs that were recorded under those names.
    ``version`` identifies the code (else a fingerprint does); ``on_divergence`` says what happens when edited code no
    longer matches a recorded run; ``migrate`` turns an older stored state into the present one.
    An error that leaves the function fails its run, and ``handle.retry()`` goes on with it. The run is PAUSED instead,
    for the next deploy and ``handle.resume()``, where the error says more of the code than of its work: it comes before
    all that is recorded was called again, before edited code has done anything, or from a state, an input, a result or
    a signal that does not fit its type. ``on_error="fail"`` or ``"pause"`` decides for every error.
    ``signals={"order": Order}`` names the types of its signals: ``ctx.wait_for_signal("order")`` gives that type, and
    the handle that ``client.start(agent)`` returned refuses to send what does not fit it.
    After a crash unchanged code is waited for until it has made its recorded calls again. Where a branch that waits for
    something else than its context (``asyncio.sleep``, a thread) holds up what the others were told, that ends after
    ``replay_timeout`` seconds (60): the run is PAUSED and says what is missing.
    ``serializer`` writes and reads its input, its result, its state and its signals, as that of a task does.
    """

    def declare(fn: Callable[..., Any], depth: int = 1) -> Agent[Any, Any]:
        local = local_names(fn, depth)
        check_agent(fn, local)
        own = own_serializer(serializer, f"agent {kind or fn.__name__!r}")
        signature = Signature(fn, "AgentContext", local, first_is_context=True, own=own)
        others: list[tuple[str, Any]] = []
        if own is None:
            others += [(f"the signal {name!r}", of) for name, of in (signals or {}).items()]
            others += [("the state", state)] if isinstance(state, type) or get_origin(state) is not None else []
        check_kept("agent", fn, signature.names if own is None else None, local, others)
        return Agent(
            fn,
            kind=kind or fn.__name__,
            aliases=names_before("agent", kind or fn.__name__, aliases),
            version=version,
            state=state,
            migrate=migrate,
            on_divergence=on_divergence,
            on_error=on_error,
            replay_timeout=replay_timeout,
            signals=signals,
            timeout=timeout,
            name=name,
            description=description,
            tags=tags,
            cancellable=cancellable,
            signature=signature,
        )

    return declare if fn is None else declare(fn, 2)
