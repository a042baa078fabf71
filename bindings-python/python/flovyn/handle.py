"""One run in the hands of a caller: watch it, steer it, wait for it."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar
from uuid import UUID

from .codes import END_CANCELLED, END_COMPLETED, END_FAILED
from .errors import AgentCancelled, AgentFailed, AsRaised, FlovynError, InDoubt, Timeout, Waiting
from .log import way_on
from .serde import checked, described
from .signals import PLAIN, Signals

if TYPE_CHECKING:
    from . import _native
    from .client import Client
    from .events import Event
    from .message import Message, Messages
    from .serde import Rebuild

R = TypeVar("R")
CancelMode = Literal["graceful", "hard"]
Delivery = Literal["next_step", "next_turn", "now"]

_UNSET: Any = object()
_PAGE = 200


class Facts(dict[str, Any]):
    """Facts by name; readable as attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Handle(Generic[R]):
    """One run. Handles are cheap, and any number of them may speak of the same run."""

    def __init__(
        self,
        client: Client,
        native: _native.Handle,
        rebuild: Rebuild | None = None,
        signals: Signals = PLAIN,
    ) -> None:
        self._client = client
        self._native = native
        self._rebuild = rebuild
        self._signals = signals
        self.id: UUID = UUID(native.id)
        self.key: str | None = native.key

    async def _ask(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Ask the engine for something about the run, and wait for it."""
        return await self._client.hub().call(getattr(self._native, name), *args, **kwargs)

    def _beside(self, native: _native.Handle) -> Handle[R]:
        """Return the handle of a run that goes on from this one."""
        return Handle(self._client, native, self._rebuild, self._signals)

    async def status(self) -> str:
        """Return the status word, such as ``RUNNING``, ``WAITING`` or ``COMPLETED``."""
        return await self._ask("status")

    async def describe(self) -> Facts:
        """Return everything known about the run.

        ``usage`` is what its own model calls have cost, by model; ``total_usage`` that of its calls and those of all
        runs below it, all models together. ``machine`` is the machine that it is for: its ``name``, whether it is
        ``live``, and when it was ``seen_at`` last; None for any other queue. ``no_worker`` lists the
        kinds it waits for that no live worker serves, with their queues.
        """
        return Facts(await self._ask("describe"))

    async def result(self, timeout: float | None = None) -> R:
        """Wait for the end and return the agent's result.

        Raises ``AgentFailed`` or ``AgentCancelled``; past ``timeout`` seconds ``Timeout`` (a ``TimeoutError``), or
        ``InDoubt`` where a decision is waited for.
        """
        try:
            return self._ended(*await self._ask("outcome", timeout))
        except (Timeout, InDoubt) as late:
            raise await self._explained(late) from None

    async def _result_or_wait(self) -> R:
        """Wait for the end, but not for signals and decisions."""
        try:
            return self._ended(*await self._ask("outcome_or_wait"))
        except InDoubt as late:
            raise await self._explained(late) from None

    async def _late(self, limit: float) -> NoReturn:
        """Raise what tells who has waited so long what the run waits for."""
        try:
            await self._ask("late", limit)
        except (Timeout, InDoubt) as late:
            raise await self._explained(late) from None
        raise Timeout(f"run {self.key or str(self.id)!r} has not ended within {limit:g} s")

    async def _explained(self, late: FlovynError) -> FlovynError:
        """Return an error about a run that has not ended, with what it waits for and what goes on with it."""
        more: list[str] = []
        try:
            facts = await self.describe()
            more += [
                f"no worker serves kind {each['kind']!r} of queue {each['queue']!r}: start one that does"
                for each in facts.no_worker
            ]
            if facts.machine is not None and facts.status == "PENDING":
                seen = facts.machine["seen_at"]
                at = None if seen is None else datetime.fromtimestamp(seen, timezone.utc)
                last = "was never seen" if at is None else f"was last seen {at:%Y-%m-%d %H:%M:%S} UTC"
                gone = "" if facts.machine["live"] else ", and is not let in, or no more"
                more.append(f"it waits for the machine {facts.machine['name']!r}, which {last}{gone}")
            for task in await self.tasks() if facts.wait_reason == "in_doubt" else ():
                if task.status == "IN_DOUBT":
                    command = shlex.join(["flovyn", "runs", "resolve", self._client.url, task.op])
                    more.append(
                        f"task {task.kind!r} (op {task.op}) may or may not have taken effect; say so with "
                        f"{command} --retry (or --result JSON, --error MESSAGE), or handle.resolve({task.op!r}, …)"
                    )
            if facts.status == "PAUSED":
                more.append(way_on(self._client.url, self.key or str(self.id)))
        except FlovynError:
            pass  # What is known already is worth more than that.
        return type(late)("; ".join([late.message, *more]), context=late.context, retryable=late.retryable)

    @staticmethod
    def _add_note(error: BaseException, note: str) -> None:
        notes: Any = getattr(error, "__notes__", None)
        setattr(error, "__notes__", [*(notes or ()), note])  # noqa: B010 - from Python 3.11 on

    def _ended(self, tag: int, value: Any) -> Any:
        name = self.key or str(self.id)
        if tag == END_COMPLETED:
            return self._rebuilt(value)
        if tag == END_FAILED:
            code, type_, message, _, _, _, traceback = value
            error = AgentFailed(f"run {name!r} failed: {type_}: {message}", type=type_, traceback=traceback)
            self._add_note(error, way_on(self._client.url, name, "retry"))
            error.__cause__ = _known(code, message)
            if traceback:
                # What is shown of an error begins with where it comes from: the user's own failing line.
                (error.__cause__ or error).__cause__ = AsRaised(traceback)
            raise error
        if tag == END_CANCELLED:
            raise AgentCancelled(f"run {name!r} was cancelled", output=value)
        reason = value["wait_reason"] or value["status"]
        context = {"status": value["status"], "wait_reason": reason, "waits_for": value["waits_for"]}
        if reason == "in_doubt":
            raise InDoubt(
                f"run {name!r} waits for a decision on a task in doubt; answer with resolve()", context=context
            )
        waits_for = ", ".join(value["waits_for"] or ()) or reason
        failure = value["failure"]
        why = f" ({failure['error_type']}: {failure['message']})" if failure else ""
        error = Waiting(
            f"run {name!r} has not ended: it waits for {waits_for}{why}", context={**context, "failure": failure}
        )
        error.__cause__ = _known(failure["code"], failure["message"]) if failure else None
        raise error

    async def stream(self, after: str | None = None, *, children: bool = False) -> AsyncIterator[Event]:
        """Iterate over the run's events from the start, or after the id of one; ends after the terminal event.

        ``event.type`` tells them apart, for type checkers too. A run that hands off tells of whoever has its work then,
        and of its own end last. With ``children`` the events of all runs below it come too, also of those that are born
        meanwhile: ``event.run`` and ``event.depth`` say whose each is. It then ends when the run has ended and all is
        told of those below it that have ended as well.
        """
        hub = self._client.hub()
        watching = self._native.stream(after, children)
        with hub:
            while events := await hub.call(watching.next):
                for parts in events:
                    yield await self._event(parts)

    async def _event(self, parts: tuple[Any, ...]) -> Event:
        """Make an event; the one that ends a run with a result has it."""
        from .events import event_of

        event = event_of(parts)
        if event.type == "lifecycle" and event.name == "completed":
            whose = self if event.run in (None, self.id) else await self._client.handle(event.run)
            event = replace(event, result=await whose.output())
        return event

    async def sse(self, after: str | None = None, *, children: bool = False) -> AsyncIterator[bytes]:
        """Iterate over the run's events as server-sent events, with the names and bodies of the server's own.

        Each value is the bytes of one or more whole events; pass a ``Last-Event-ID`` as ``after``. Ends as
        :meth:`stream` does, and takes ``children`` like it.
        """
        hub = self._client.hub()
        watching = self._native.stream(after, children)
        with hub:
            while sent := await hub.call(watching.next_sent):
                yield sent

    async def signal(
        self,
        name: str,
        payload: Any = None,
        *,
        idempotency_key: str | None = None,
        delivery: Delivery = "next_step",
    ) -> UUID:
        """Send a signal; it is durable when this returns. It may come before the agent waits for it.

        A repeated ``idempotency_key`` stores one signal and returns its id. ``delivery="next_turn"`` keeps it for
        ``wait_for_signal``; ``"now"`` interrupts the model call in flight. What does not fit the type that the agent
        declares for it is ``InvalidArgument``, and its serializer writes the value, where this handle was made by
        ``client.start(agent)``.
        """
        value = self._signals.written(name, payload)
        id = await self._ask("signal", name, value, delivery, idempotency_key)
        return UUID(id)

    async def cancel(self, mode: CancelMode = "graceful", timeout: float | None = None) -> str:
        """Ask the run to stop and return its status. Graceful: awaits raise ``Cancelled``, and the run may tidy up for
        ``timeout`` seconds (30). Hard: it ends at once."""
        return await self._ask("cancel", mode, timeout)

    async def delete(self) -> None:
        """Remove the run, which has ended, with all it has; see ``Client.delete``."""
        await self._client.delete(self.id)

    async def resume(
        self,
        *,
        max_steps: int | None = None,
        max_tail: int | None = None,
        budget: Any = None,
        message: Any = None,
    ) -> str:
        """Continue a paused run, with fresh limits, and return its status."""
        return await self._go_on(False, max_steps, max_tail, budget, message)

    async def retry(
        self,
        *,
        max_steps: int | None = None,
        max_tail: int | None = None,
        budget: Any = None,
        message: Any = None,
    ) -> str:
        """Go on with a run that has failed, or is paused, from its last commit, and return its status.

        It keeps its id, its conversation and its signals. What is done stays done; steps that failed, and of which the
        code knew no more than the error, are tried again, and so are those that went down with the run. One that must
        not run twice (``at_most_once``) keeps its failure.
        """
        return await self._go_on(True, max_steps, max_tail, budget, message)

    async def _go_on(self, retry: bool, max_steps: int | None, max_tail: int | None, budget: Any, message: Any) -> str:
        options = {
            "retry": retry,
            "max_steps": max_steps,
            "max_tail": max_tail,
            "budget": described(budget),
            "message": checked(message),
        }
        return await self._ask("resume", **options)

    async def fork(
        self,
        *,
        checkpoint: int | None = None,
        entry: UUID | str | None = None,
        op: str | None = None,
        id: str | None = None,
        state: Any = _UNSET,
        input: Any = _UNSET,
    ) -> Handle[R]:
        """Start a run that shares this one's past up to a checkpoint, an entry or an op; the last point without one."""
        native = await self._ask(
            "fork",
            checkpoint=checkpoint,
            entry=None if entry is None else str(entry),
            op=op,
            id=id,
            state=None if state is _UNSET else (checked(state),),
            input=None if input is _UNSET else (checked(input),),
        )
        return self._beside(native)

    async def resolve(
        self, op_id: str, *, result: Any = _UNSET, error: BaseException | str | None = None, retry: bool = False
    ) -> Facts:
        """Answer for a task in doubt: it has this result, or failed with this error, or shall run again."""
        given = (result is not _UNSET) + (error is not None) + retry
        if given != 1:
            raise ValueError("resolve() takes exactly one of result=, error= and retry=True")
        failed = None
        if isinstance(error, BaseException):
            failed = (type(error).__qualname__, str(error))
        elif error is not None:
            failed = ("Error", error)
        value = None if result is _UNSET else (checked(result),)
        return Facts(await self._ask("resolve", op_id, result=value, error=failed))

    async def resolve_divergence(self, decision: Literal["continue", "fork", "stay"]) -> Handle[R]:
        """Decide a divergence; returns the fork's handle for ``fork``."""
        native = await self._ask("resolve_divergence", decision)
        return self._beside(native)

    async def messages(self) -> Messages:
        """Return the conversation as of the last commit, from its root to its leaf.

        ``position`` of it is where it ends: ``stream(after=position)`` goes on behind it, with nothing twice and
        nothing left out.
        """
        from .message import Message, Messages

        items, position = await self._ask("messages")
        return Messages((Message.of(parts) for parts in items), position)

    async def input(self) -> Any:
        """Return what the run was started with, as JSON."""
        return await self._ask("value", "input")

    async def output(self) -> R | None:
        """Return what the run has returned, or kept when it was cancelled; None before its end."""
        return self._rebuilt(await self._ask("value", "output"))

    async def state(self, checkpoint: int | None = None) -> Any:
        """Return the state of a checkpoint by its sequence, or of the last one, as JSON; None where there is none."""
        return await self._ask("value", "state", checkpoint)

    def _rebuilt(self, value: Any) -> Any:
        return self._rebuild(value) if self._rebuild is not None and value is not None else value

    async def entries(self) -> list[Message]:
        """Return all entries the run appended, on whatever branch."""
        from .message import Message

        found: list[Message] = []
        after: str | None = None
        while True:
            items, after = await self._ask("entries", _PAGE, after)
            found.extend(Message.of(parts) for parts in items)
            if after is None:
                return found

    async def checkpoints(self, *, states: bool = False) -> list[Facts]:
        """Return the run's checkpoints, oldest first; with ``states`` each has its ``state``, as JSON."""
        found = await self._listed("checkpoints")
        for checkpoint in found if states else ():
            checkpoint["state"] = await self.state(checkpoint.sequence)
        return found

    async def tasks(self) -> list[Facts]:
        """Return the run's tasks in order."""
        return await self._listed("tasks")

    async def _listed(self, name: str) -> list[Facts]:
        found: list[Facts] = []
        after: str | None = None
        while True:
            page: Mapping[str, Any] = await self._ask(name, _PAGE, after)
            found.extend(Facts(item) for item in page["items"])
            after = page["next"]
            if after is None:
                return found

    def __repr__(self) -> str:
        return f"<flovyn run {self.key or self.id}>"


def _known(code: str, message: str) -> FlovynError | None:
    """Return the error that made an agent fail, where it is one of ours."""
    by_code = FlovynError._by_code  # pyright: ignore[reportPrivateUsage]
    return by_code[code](message) if code in by_code and code != "AgentFailed" else None
