// What a client asks of a backend beside one run: listings of runs, schedules, queues, workers.

import { Agent, type AnyAgent } from "./agent.js";
import type { Execution } from "./handle.js";
import { hub } from "./hub.js";
import type { NativeRuntime } from "./native.js";
import { encode, facts } from "./serde.js";

/** Which runs are listed: those that all of it fits. */
export interface RunsFilter {
  status?: string | readonly string[];
  kind?: string;
  queue?: string;
  metadata?: Record<string, string>;
  /** Started at this moment or after. */
  createdFrom?: Date;
  /** Started before it. */
  createdUntil?: Date;
  /** Those that this run has started, by its id or key. */
  parent?: string;
  /** All below this run, by its id or key. */
  root?: string;
  /** Only those that no other run has started. */
  roots?: boolean;
  /** Those of a predefined agent, by its id. */
  definition?: string;
  /** Those with all of these words somewhere in their id, kind, queue, metadata or small input. */
  search?: string;
  /** How many are asked for at a time: 200 unless given. */
  limit?: number;
}

/** When runs are started, and how. */
export interface ScheduleOptions {
  /** Minute, hour, day of month, month and day of week (seconds may come first), or `@daily` and the like. */
  cron: string;
  /** Whose clock counts: `Europe/Paris`; UTC unless given. */
  timezone?: string;
  input?: unknown;
  queue?: string;
  metadata?: Record<string, string>;
  priority?: number;
  concurrencyKey?: string;
  concurrencyLimit?: number;
  /** It starts nothing until it is resumed. */
  paused?: boolean;
}

/** A schedule as it stands. */
export interface Schedule {
  readonly id: string;
  readonly kind: string;
  readonly queue: string;
  readonly input: unknown;
  readonly cron: string;
  readonly timezone: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly priority: number;
  readonly concurrencyKey: string | null;
  readonly concurrencyLimit: number | null;
  readonly paused: boolean;
  /** The tick that comes next; null when there will be no more. */
  readonly nextAt: Date | null;
  readonly createdAt: Date;
}

/** What waits and what runs of a kind in a queue. */
export interface QueueLoad {
  readonly kind: string;
  readonly queue: string;
  readonly queued: number;
  readonly running: number;
  /** Whether a live worker serves it. */
  readonly served: boolean;
}

/** What a queue is limited to. */
export interface QueueLimit {
  /** Runs that workers hold at a time. */
  concurrency?: number;
  /** Runs that are handed out, in so many seconds. */
  rate?: { runs: number; seconds: number };
}

/** A queue with its limit. */
export interface LimitedQueue {
  readonly queue: string;
  readonly concurrency: number | null;
  readonly rate: { readonly runs: number; readonly seconds: number } | null;
}

/** A worker that the backend knows. */
export interface WorkerFacts {
  readonly id: string;
  readonly name: string;
  readonly queues: readonly string[];
  readonly serves: readonly { readonly kind: string; readonly queue: string }[];
  readonly seenAt: Date;
  /** Until when it is believed to live. */
  readonly aliveUntil: Date;
}

/** The questions; `Client` has them. */
export class Desk {
  /** @internal */
  readonly native: NativeRuntime;

  /** @internal */
  constructor(native: NativeRuntime) {
    this.native = native;
  }

  private async asked<T>(ask: string, given: Record<string, unknown> = {}): Promise<T> {
    const question = JSON.stringify({ ask, ...given });
    return facts<T>(await hub.call<string>((hub, token) => this.native.ask(hub, token, question)));
  }

  private async *listed<T>(ask: string, given: Record<string, unknown> = {}): AsyncGenerator<T, void, void> {
    for (let after: string | undefined; ; ) {
      const page: { items: T[]; next: string | null } = await this.asked(ask, { ...given, after });
      yield* page.items;
      if (page.next === null) return;
      after = page.next;
    }
  }

  // ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Runs, newest first. */
  runs(filter: RunsFilter = {}): AsyncGenerator<Execution, void, void> {
    const { status = [], createdFrom, createdUntil, definition, metadata = {}, ...rest } = filter;
    return this.listed("runs", {
      ...rest,
      statuses: typeof status === "string" ? [status] : status,
      metadata: definition === undefined ? metadata : { ...metadata, agentDefinition: definition },
      created_from: createdFrom && createdFrom.getTime() / 1000,
      created_until: createdUntil && createdUntil.getTime() / 1000,
    });
  }

  /**
   * Removes a run that has ended, with all it has; its id is free again. `InvalidTransition` while it goes on, while a fork
   * reads its history, or while a detached task of it runs.
   */
  async delete(idOrKey: string): Promise<void> {
    await this.asked("delete_run", { id: idOrKey });
  }

  // ── schedules ─────────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Starts runs of an agent by the clock, one a tick; the same `id` again replaces the schedule. The runs carry `schedule`
   * and `scheduledAt` in their metadata.
   */
  async createSchedule(id: string, agent: AnyAgent | string, options: ScheduleOptions): Promise<Schedule> {
    const { cron, timezone, input, queue, metadata, priority, concurrencyKey, concurrencyLimit, paused } = options;
    const kind = agent instanceof Agent ? agent.kind : (agent as string);
    const value = agent instanceof Agent ? await (agent as AnyAgent).startable(input) : input;
    return this.asked("put_schedule", {
      id,
      kind,
      // As it is stored: what has no JSON form is refused.
      input: JSON.parse(encode(value) as string) as unknown,
      cron,
      timezone,
      queue,
      metadata,
      priority,
      concurrency_key: concurrencyKey,
      concurrency_limit: concurrencyLimit,
      paused,
    });
  }

  /** One schedule; `NotFound` where there is none of this id. */
  schedule(id: string): Promise<Schedule> {
    return this.asked("schedule", { id });
  }

  /** The schedules, by id. */
  schedules(): AsyncGenerator<Schedule, void, void> {
    return this.listed("schedules");
  }

  /** Lets a schedule start nothing until it is resumed. */
  pauseSchedule(id: string): Promise<Schedule> {
    return this.asked("pause_schedule", { id, paused: true });
  }

  /** Lets a schedule go on; its ticks count from now. */
  resumeSchedule(id: string): Promise<Schedule> {
    return this.asked("pause_schedule", { id, paused: false });
  }

  /** Removes a schedule; the runs that it started stay. */
  async deleteSchedule(id: string): Promise<void> {
    await this.asked("delete_schedule", { id });
  }

  // ── queues and workers ────────────────────────────────────────────────────────────────────────────────────────

  /** What waits and what runs, by queue and kind. */
  queues(): Promise<QueueLoad[]> {
    return this.asked("queues");
  }

  /** The queues that have a limit. */
  async queueLimits(): Promise<LimitedQueue[]> {
    const found = await this.asked<{ queue: string; concurrency: number | null; runs: number | null; seconds: number }[]>(
      "queue_limits",
    );
    return found.map(({ queue, concurrency, runs, seconds }) => {
      return { queue, concurrency, rate: runs === null ? null : { runs, seconds } };
    });
  }

  /** Limits a queue, or frees it where the limit has nothing. */
  async limitQueue(queue: string, limit: QueueLimit): Promise<void> {
    await this.asked("limit_queue", { queue, concurrency: limit.concurrency, ...limit.rate });
  }

  /** The workers, what they serve and until when they are believed to live. */
  async *workers(): AsyncGenerator<WorkerFacts, void, void> {
    for await (const worker of this.listed<WorkerFacts & { aliveUntil: unknown }>("workers")) {
      yield { ...worker, aliveUntil: new Date(Number(worker.aliveUntil) * 1000) };
    }
  }
}
