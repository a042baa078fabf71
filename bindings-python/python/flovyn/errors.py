"""The errors of Flovyn: one tree, one class per code, the same names in every language.

An error says what was asked, what was found and what to do. ``code`` is the word that programs compare,
``context`` has the named facts (ids, sizes, limits), ``retryable`` tells whether the same request may succeed later.
"""

from __future__ import annotations

import traceback
from asyncio import CancelledError
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

__all__ = [
    "AgentCancelled",
    "AgentFailed",
    "AlreadyExists",
    "BudgetExceeded",
    "Cancelled",
    "CorruptCheckpoint",
    "Diverged",
    "ExecutionClosed",
    "ExecutionExists",
    "ExecutionNotFound",
    "FlovynError",
    "ForkedProcess",
    "InDoubt",
    "Internal",
    "InvalidArgument",
    "InvalidTransition",
    "LeaseLost",
    "LimitReached",
    "NonRetryable",
    "NotDone",
    "NotFound",
    "NotSerializable",
    "OnceChanged",
    "OpenOperations",
    "OutOfOrder",
    "OutsideAgent",
    "PayloadTooLarge",
    "PermissionDenied",
    "PreambleOp",
    "RateLimited",
    "SchemaTooNew",
    "SignalTimeout",
    "SlotTaken",
    "StateNotDeclared",
    "StepLimitReached",
    "StorageUnavailable",
    "Suspended",
    "TaskFailed",
    "TaskTimeout",
    "Timeout",
    "Unauthenticated",
    "UnknownKind",
    "UnsupportedFilesystem",
    "Waiting",
    "WrongStateType",
    "WrongThread",
]


_OURS = __file__.rpartition("errors.py")[0]
_PAGES = "https://github.com/flovyn/flovyn/blob/main/docs/errors/"


class FlovynError(Exception):
    """The root of all errors."""

    code: str = "FlovynError"
    """What precisely happened: the same word in every language."""
    retryable: bool = False
    """Whether the same request may succeed later without any change."""

    _by_code: ClassVar[dict[str, type[FlovynError]]] = {}

    def __init__(
        self, message: str = "", *, context: Mapping[str, Any] | None = None, retryable: bool | None = None
    ) -> None:
        super().__init__(message)
        self.message: str = message
        self.context: dict[str, Any] = dict(context or {})
        if retryable is not None:
            self.retryable = retryable
        if self.page is not None:
            # What shows an error shows its notes, from Python 3.11 on; its text stays what programs know.
            self.__notes__ = [f"See {self.page}"]

    @property
    def page(self) -> str | None:
        """The address of the page about this error; none for those that are no code of the engine."""
        has_page = self.code in __all__ and self.code not in ("FlovynError", "NotDone")
        return f"{_PAGES}{self.code}.md" if has_page else None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "code" not in cls.__dict__:
            cls.code = cls.__name__
        FlovynError._by_code.setdefault(cls.code, cls)


class ExecutionExists(FlovynError):
    """An id is taken by a run with another input or kind."""


class NotFound(FlovynError):
    """No such thing is here: a run, a task, an entry, a schedule, a key, a path."""


class ExecutionNotFound(NotFound):
    """No run has this id or key."""


class AlreadyExists(FlovynError):
    """The name is taken by another."""


class Unauthenticated(FlovynError):
    """A server does not know who asks."""


class PermissionDenied(FlovynError):
    """Who asks may not do this."""


class ExecutionClosed(FlovynError):
    """The run has ended and takes nothing more."""


class AgentFailed(FlovynError):
    """The agent's function raised; ``type`` and the message are those of the causing error."""

    def __init__(self, message: str = "", *, type: str = "", traceback: str | None = None, **options: Any) -> None:
        super().__init__(message, **options)
        self.type: str = type
        self.traceback: str | None = traceback


class AsRaised(Exception):
    """Stands for an error that ended an agent, wherever that was: its own traceback is its text."""

    def __str__(self) -> str:
        return f"\n\n{str(self.args[0]).rstrip()}"


class AgentCancelled(FlovynError):
    """The run was cancelled; ``output`` is what it kept."""

    def __init__(self, message: str = "", *, output: Any = None, **options: Any) -> None:
        super().__init__(message, **options)
        self.output: Any = output


class TaskFailed(FlovynError):
    """A task failed for good: which, with what, after how many attempts.

    ``message`` is the original error's; ``__cause__`` is that error where it happened in this process.
    """

    def __init__(
        self,
        message: str = "",
        *,
        kind: str = "",
        type: str = "",
        attempts: int = 1,
        task_id: str | None = None,
        traceback: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(message, **options)
        self.kind: str = kind
        self.type: str = type
        self.attempts: int = attempts
        self.task_id: str | None = task_id
        self.traceback: str | None = traceback

    def __str__(self) -> str:
        if not self.kind:
            return self.message
        tried = "" if self.attempts <= 1 else f" after {self.attempts} attempts"
        return f'task "{self.kind}" failed{tried}: {self.type}: {self.message}'


class TaskTimeout(TaskFailed):
    """A task ran out of time."""


class SignalTimeout(FlovynError, TimeoutError):
    """No signal came in time."""


class NonRetryable(FlovynError):
    """Raised by a task that must not be tried again."""


class NotDone(FlovynError):
    """Raised by a ``reconcile`` function: the lost attempt did not take effect, so the task may run again."""


class InDoubt(FlovynError):
    """Nobody knows whether a call took effect; a decision is waited for (``handle.resolve``)."""


class Diverged(FlovynError):
    """The code no longer matches the recorded tail."""


class SlotTaken(FlovynError):
    """A journal slot was named again with another label."""


class OutOfOrder(FlovynError):
    """A commit named a predecessor that is not the last one."""


class PreambleOp(FlovynError):
    """An agent with state called an op before its loop."""


class OnceChanged(FlovynError):
    """A ``once`` was called again with another input."""


class WrongThread(FlovynError):
    """A context was used from another thread than its agent's."""


class UnsupportedFilesystem(FlovynError):
    """The file system cannot hold a database safely."""


class StateNotDeclared(FlovynError):
    """State was used by an agent declared without it."""


class WrongStateType(FlovynError):
    """A checkpoint's state is not of the declared type."""


class NotSerializable(FlovynError):
    """A value has no JSON form; ``path`` says where, ``type`` what was found there."""

    @property
    def path(self) -> str:
        """The place of the value, such as ``$.items[3].when``."""
        return str(self.context.get("path", "$"))

    @property
    def type(self) -> str:
        """What was found there."""
        return str(self.context.get("type", ""))


class PayloadTooLarge(FlovynError):
    """A payload is over the limit."""


class BudgetExceeded(FlovynError):
    """A budget is used up."""


class StepLimitReached(FlovynError):
    """The cumulative step limit of a run is reached."""


class LimitReached(FlovynError):
    """A run has as much open, or a commit as much in it, as it may."""


class RateLimited(FlovynError):
    """A key asked a server more often than it may."""


class InvalidTransition(FlovynError):
    """The thing's present status does not allow this."""


class LeaseLost(FlovynError):
    """Another worker holds the run now."""


class OpenOperations(FlovynError):
    """A checkpoint was asked for while ops are open."""


class CorruptCheckpoint(FlovynError):
    """A stored checkpoint or journal row failed its check."""


class StorageUnavailable(FlovynError):
    """The backend did not answer; the outcome is unknown."""

    retryable = True


class SchemaTooNew(FlovynError):
    """The database was written by a newer version."""


class UnknownKind(FlovynError):
    """Nobody here serves this kind."""


class OutsideAgent(FlovynError):
    """A context call was made outside an agent."""


class Internal(FlovynError):
    """A fault of the engine; whether it happened is unknown."""


class ForkedProcess(FlovynError):
    """A client was used in a forked process."""


class InvalidArgument(FlovynError, ValueError):
    """The argument is wrong."""


class Timeout(FlovynError, TimeoutError):
    """The wait ended before the result came."""

    retryable = True


class Waiting(FlovynError):
    """A run is waiting and the caller asked not to; ``context`` says for what."""


class Cancelled(BaseException):
    """The run was asked to stop: raised into pending awaits, once per branch."""

    code = "Cancelled"


class Suspended(BaseException):
    """This copy of the agent was put away; its run goes on from its journal. Let it pass."""

    code = "Suspended"


def from_native(code: str, message: str, context: Mapping[str, Any], retryable: bool) -> BaseException:
    """Make the exception of an engine error."""
    if code == "Suspended":
        return Suspended(message)
    if code == "Cancelled":
        return Cancelled(message)
    by_code = FlovynError._by_code  # pyright: ignore[reportPrivateUsage]
    cls = by_code.get(code)
    if cls is None:
        error = FlovynError(message, context=context, retryable=retryable)
        error.code = code
        return error
    return cls(message, context=context, retryable=retryable)


def task_failed(failure: tuple[str, str, str, str | None, str | None, int, str | None]) -> FlovynError:
    """Make the exception of a failed task from ``(code, type, message, kind, task, attempts, traceback)``."""
    code, type_, message, kind, task_id, attempts, traceback = failure
    cls = TaskTimeout if code == "TaskTimeout" else TaskFailed
    return cls(message, kind=kind or "", type=type_, attempts=attempts, task_id=task_id, traceback=traceback)


# ── an error's own words ─────────────────────────────────────────────────────────────────────────────────────────────

_MOST_TEXT = 65_536
"""Characters of a message or a traceback that are kept: the journal tells what went wrong, it is no log."""


def type_name(error: BaseException) -> str:
    """Name an error's class as journals and ``no_retry`` do: without its module."""
    return _told(lambda: type(error).__qualname__, lambda: type.__dict__["__name__"].__get__(type(error)))


def code_of(error: BaseException, otherwise: str) -> str:
    """Return the code of one of these errors, or another word for any other."""
    try:
        code: Any = getattr(error, "code", None) if issubclass(type(error), FlovynError) else None
    except BaseException:
        return otherwise
    return code if isinstance(code, str) and str.isascii(code) else otherwise


def message_of(error: BaseException) -> str:
    """Return what an error says: its text, or what it is where it has none or cannot tell it."""
    return _told(lambda: str(error) or repr(error), lambda: f"<a {type_name(error)} that cannot be printed>")


def traceback_of(error: BaseException) -> str:
    """Return an error's traceback with its causes, as far as they can be told."""

    error = unwrapped(error)

    def whole() -> str:
        told = traceback.TracebackException(type(error), error, error.__traceback__)
        if any(not is_ours(frame.filename) for one in _chain(told) for frame in one.stack):
            for one in _chain(told):
                one.stack[:] = [frame for frame in one.stack if not is_ours(frame.filename)]
                one.__notes__ = None
        return "".join(list(told.format())[-30:])

    def frames() -> str:
        head = "Traceback (most recent call last):\n" + "".join(traceback.format_tb(error.__traceback__)[-30:])
        return f"{head}{type_name(error)}: {message_of(error)}\n"

    return _told(whole, lambda: _told(frames, lambda: f"{type_name(error)}: {message_of(error)}\n"))


def is_ours(path: str) -> bool:
    """Whether a file is the engine's, whose frames say nothing to who looks for a fault in an agent."""
    return path.startswith(_OURS)


def _chain(told: Any) -> list[Any]:
    """An error as it is told, with all that it comes from and is made of."""
    found: list[Any] = []
    waiting = [told]
    while waiting and len(found) < 1_000:
        one = waiting.pop()
        found.append(one)
        others = (one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ()))
        waiting += [other for other in others if other is not None]
    return found


def unwrapped(error: BaseException) -> BaseException:
    """Return what a group of one error is about; a ``TaskGroup`` makes one of whatever goes wrong in it."""
    for _ in range(100):
        members = _members(error)
        if len(members) != 1 or all(cls.__name__ != "ExceptionGroup" for cls in type(error).__mro__):
            break
        error = members[0]
    return error


def consists_of(error: BaseException, cls: type[BaseException]) -> bool:
    """Whether an error is of a class, or a group of nothing else but it and asyncio's own cancellation."""
    found, pending, left = False, [error], 10_000
    while pending and left:
        left -= 1
        one = pending.pop()
        members = _members(one)
        pending.extend(members)
        # By type: `isinstance` asks the object too, which may raise.
        found = found or issubclass(type(one), cls)
        if not members and not issubclass(type(one), (cls, CancelledError)):
            return False
    return found and not pending


def holds(error: BaseException, other: BaseException) -> bool:
    """Whether an error is another one, or a group with it somewhere inside."""
    pending, left = [error], 10_000
    while pending and left:
        left -= 1
        one = pending.pop()
        if one is other:
            return True
        pending.extend(_members(one))
    return False


def _members(error: BaseException) -> tuple[BaseException, ...]:
    # Other errors have attributes of this name too. Before Python 3.11 the class is a package's.
    if all(cls.__name__ != "BaseExceptionGroup" for cls in type(error).__mro__):
        return ()
    try:
        return tuple(error.exceptions)  # type: ignore[attr-defined]
    except BaseException:
        return ()


def _told(tell: Callable[[], str], otherwise: Callable[[], str]) -> str:
    """Return a text that every store can take, from code of users that may raise whatever it likes."""
    try:
        text = tell()
        # Not the methods of a subclass of `str`. Half a surrogate pair comes from file names that are no UTF-8.
        return _shortened(str.encode(text, "utf-8", "backslashreplace").decode())
    except BaseException:
        return otherwise()


def _shortened(text: str) -> str:
    if len(text) <= _MOST_TEXT:
        return text
    half = _MOST_TEXT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters are left out …\n{text[-half:]}"
