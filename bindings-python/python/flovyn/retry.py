"""When a task that failed is tried again: the pauses of its policy, and what its errors say themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .errors import FlovynError, NonRetryable, NotSerializable, message_of, traceback_of, type_name, unwrapped
from .log import logger

RetryIf = Callable[[BaseException], Any]
Failure = tuple[str, str, str, str, bool, "float | None"]
"""Code, type, message, traceback, whether another attempt may follow, and the seconds that the error asks to wait."""


@dataclass(frozen=True)
class Retry:
    """The pauses between the attempts of a task.

    The pause after failure ``n`` is ``min(delay * factor ** (n - 1), max_delay)`` seconds, of which chance takes away
    a part of up to ``jitter``: between ``1 - jitter`` and all of it is waited for. An error with ``retry_after`` is
    waited for so long instead.
    """

    delay: float = 0.2
    """The first pause, in seconds."""
    factor: float = 2.0
    """What each pause is of the one before, from 1."""
    max_delay: float = 60.0
    """The longest pause, in seconds."""
    jitter: float = 0.5
    """The part of a pause that chance may take away, from 0 to 1."""


class RetryAfter(FlovynError):
    """Raised by a task that is to be tried again after so many seconds, instead of its policy's pause.

    Any other error with an attribute ``retry_after`` (seconds, or a ``timedelta``) is waited for in the same way. It
    gives no attempt that ``retries`` does not give.
    """

    def __init__(self, retry_after: float | timedelta, message: str = "") -> None:
        super().__init__(message or f"it may be tried again after {retry_after} s")
        self.retry_after: float | timedelta = retry_after
        """The pause: seconds, or a ``timedelta``."""


def failure_of(error: BaseException, retry_if: RetryIf | None = None) -> Failure:
    """Describe a task's error. It cannot fail."""
    error = unwrapped(error)
    code, retryable = "TaskFailed", True
    if issubclass(type(error), NonRetryable):
        code, retryable = "NonRetryable", False
    elif issubclass(type(error), NotSerializable):
        code, retryable = "NotSerializable", False
    elif retry_if is not None:
        retryable = _asked(retry_if, error)
    return code, type_name(error), message_of(error), traceback_of(error), retryable, _pause_of(error)


def _asked(retry_if: RetryIf, error: BaseException) -> bool:
    try:
        return bool(retry_if(error))
    except Exception as broken:
        logger.warning(
            "retry_if raised %s when it was asked about %s, so that is final: %s",
            type_name(broken),
            type_name(error),
            message_of(broken),
        )
        return False


def _pause_of(error: BaseException) -> float | None:
    try:
        asked: Any = getattr(error, "retry_after", None)
        if isinstance(asked, timedelta):
            asked = asked.total_seconds()
        if asked is None:
            return None
        # What a header says is text.
        seconds = float(asked)
        return 0.0 if seconds < 0 else seconds
    except Exception:
        # It says nothing that can be waited for: the policy's pause holds.
        return None
