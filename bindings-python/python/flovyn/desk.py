"""What a client asks of a backend beside one run: listings of runs, schedules, queues, workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from .agent import Agent
from .handle import Facts
from .inputs import NOT_GIVEN
from .serde import checked

if TYPE_CHECKING:
    from . import _native
    from .hub import Hub


class Desk:
    """The questions; ``Client`` has them."""

    native: _native.Runtime

    if TYPE_CHECKING:

        def hub(self) -> Hub: ...

    async def _ask(self, ask: str, **given: Any) -> Any:
        said = {name: value for name, value in given.items() if value is not None}
        return await self.hub().call(self.native.ask, {"ask": ask, **said})

    async def _listed(self, ask: str, **given: Any) -> AsyncIterator[Facts]:
        after: str | None = None
        while True:
            page: Mapping[str, Any] = await self._ask(ask, after=after, **given)
            for item in page["items"]:
                yield Facts(item)
            after = page["next"]
            if after is None:
                return

    # ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────

    def runs(
        self,
        *,
        status: str | Iterable[str] | None = None,
        kind: str | None = None,
        queue: str | None = None,
        metadata: Mapping[str, str] | None = None,
        created_from: datetime | float | None = None,
        created_until: datetime | float | None = None,
        parent: str | UUID | None = None,
        root: str | UUID | None = None,
        roots: bool = False,
        definition: str | UUID | None = None,
        search: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Facts]:
        """Iterate over runs, newest first: those that all filters fit.

        ``created_from`` and ``created_until`` are times (a ``datetime``, or seconds since 1970), the first included.
        ``parent`` lists the runs that one started, ``root`` all below it; ``roots`` those that no other run
        started; ``definition`` those of a predefined agent by its id; ``search`` those with all of its words somewhere
        in their id, kind, queue, metadata or small input. ``limit`` is how many are asked for at a time.
        """
        given = dict(metadata or {})
        if definition is not None:
            given["agentDefinition"] = str(definition)
        return self._listed(
            "runs",
            statuses=[status] if isinstance(status, str) else list(status or ()),
            kind=kind,
            queue=queue,
            metadata=given,
            created_from=_seconds(created_from),
            created_until=_seconds(created_until),
            parent=None if parent is None else str(parent),
            root=None if root is None else str(root),
            roots=roots,
            search=search,
            limit=limit,
        )

    async def delete(self, id_or_key: str | UUID) -> None:
        """Remove a run that has ended, with all it has; its id is free again.

        ``InvalidTransition`` while it goes on, while a fork reads its history, or while a detached task of it runs.
        """
        await self._ask("delete_run", id=str(id_or_key))

    # ── schedules ───────────────────────────────────────────────────────────────────────────────────────────────

    async def create_schedule(
        self,
        id: str,
        agent: Agent[Any, Any] | str,
        input: Any = NOT_GIVEN,
        *,
        cron: str,
        timezone: str | None = None,
        queue: str | None = None,
        metadata: Mapping[str, str] | None = None,
        priority: int = 0,
        concurrency_key: str | None = None,
        concurrency_limit: int | None = None,
        paused: bool = False,
    ) -> Facts:
        """Start runs of an agent by the clock, one a tick; the same ``id`` again replaces the schedule.

        ``cron`` has minute, hour, day of month, month and day of week (seconds may come first), or is ``@daily`` and
        the like; it is read on the clock of ``timezone`` (``Europe/Paris``), else UTC. ``next_at`` of what it returns
        is the next tick, in seconds since 1970. The runs carry ``schedule`` and ``scheduledAt`` in their metadata.
        """
        if isinstance(agent, Agent):
            kind, value = agent.kind, agent.wire(input)
        else:
            kind, value = agent, checked(None if input is NOT_GIVEN else input)
        return Facts(
            await self._ask(
                "put_schedule",
                id=id,
                kind=kind,
                input=value,
                cron=cron,
                timezone=timezone,
                queue=queue,
                metadata=dict(metadata or {}),
                priority=priority,
                concurrency_key=concurrency_key,
                concurrency_limit=concurrency_limit,
                paused=paused,
            )
        )

    async def schedule(self, id: str) -> Facts:
        """Return one schedule; ``NotFound`` where there is none of this id."""
        return Facts(await self._ask("schedule", id=id))

    def schedules(self) -> AsyncIterator[Facts]:
        """Iterate over the schedules, by id."""
        return self._listed("schedules")

    async def pause_schedule(self, id: str) -> Facts:
        """Let a schedule start nothing until it is resumed."""
        return Facts(await self._ask("pause_schedule", id=id, paused=True))

    async def resume_schedule(self, id: str) -> Facts:
        """Let a schedule go on; its ticks count from now."""
        return Facts(await self._ask("pause_schedule", id=id, paused=False))

    async def delete_schedule(self, id: str) -> None:
        """Remove a schedule; the runs that it started stay."""
        await self._ask("delete_schedule", id=id)

    # ── queues and workers ──────────────────────────────────────────────────────────────────────────────────────

    async def queues(self) -> list[Facts]:
        """Return what waits and what runs, by queue and kind, and whether a live worker serves it."""
        return [Facts(each) for each in await self._ask("queues")]

    async def queue_limits(self) -> list[Facts]:
        """Return the queues that have a limit."""
        return [Facts(each) for each in await self._ask("queue_limits")]

    async def limit_queue(
        self, queue: str, *, concurrency: int | None = None, rate: tuple[int, float] | None = None
    ) -> None:
        """Limit a queue, or free it where neither limit is given.

        ``concurrency`` bounds the runs that workers hold at a time, ``rate=(runs, seconds)`` those that are handed out.
        """
        runs, seconds = rate or (None, None)
        await self._ask("limit_queue", queue=queue, concurrency=concurrency, runs=runs, seconds=seconds)

    def workers(self) -> AsyncIterator[Facts]:
        """Iterate over the workers, what they serve and until when they are believed to live."""
        return self._listed("workers")


def _seconds(at: datetime | float | None) -> float | None:
    return at.timestamp() if isinstance(at, datetime) else at
