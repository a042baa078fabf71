// Children: runs of other agents that an agent starts and waits for.

import { InvalidArgument, isA } from "./errors.js";
import type { Mode } from "./mode.js";
import { Step } from "./step.js";

/** Whether the journal of a run is kept; see `ctx.enablePersistence`. */
export type Persistence = "full" | "minimal" | "ephemeral" | "local";

/** How a child is to be started. */
export interface SpawnOptions {
  /**
   * Names the child among the children of this run. The same call again, with its id, agent and input, waits for the same
   * child, also after a checkpoint.
   */
  id?: string;
  /** Names the call among identical ones; the id does too. */
  key?: string;
  /** The queue whose workers serve it; that of this run unless given. */
  queue?: string;
  /** Where it works: `Local("laptop")` is a machine, whose queue it has then. */
  mode?: Mode;
  /** Its limit of steps. */
  maxSteps?: number;
  /** The limit of its run. */
  timeoutMs?: number;
  /** How long it may wait for a worker to begin it; then it fails. */
  startTimeoutMs?: number;
  /** Runs with a higher priority are claimed first. */
  priority?: number;
  /** For filters. */
  metadata?: Record<string, string>;
  /**
   * What its model calls and those of runs below it may use, as for `client.start`. It is taken out of this run's own budget,
   * and what is left comes back when the child ends. Without one the child draws from what is left.
   */
  budget?: unknown;
  /**
   * What it is given of this run's conversation: its own goes on from here by reference (`"read_only"`), and this run sees
   * what it appends (`"conversation"`); or an object of your own. It reads that as `ctx.sharedContext`.
   */
  sharedContext?: "read_only" | "conversation" | Record<string, unknown>;
  /** Whether its journal is kept, and where: `"local"` leaves its values on the machine that runs it; `"full"` unless given. */
  persistence?: Persistence;
  /** What becomes of it when this run ends: it is asked to stop (`"cancel"`, the default), or goes on. */
  onParentEnd?: "cancel" | "detach";
}

/** How a run is given to another agent, and how that one is to be started. */
export interface HandoffOptions
  extends Pick<SpawnOptions, "queue" | "mode" | "maxSteps" | "timeoutMs" | "startTimeoutMs" | "priority" | "metadata" | "budget"> {
  /** Whether the successor goes on from this thread of the conversation, by reference; true unless given. */
  conversation?: boolean;
  /** When this run ends: as its successor does (`"wait_for_child"`, the default), or at once. */
  completion?: "wait_for_child" | "immediate";
}

/** A run that an agent has started: await it for its output. Its `id` is the id of the run. */
export class Child<R> extends Step<R> {
  /** @internal Whether a later segment can join it. */
  hasId = false;
  /** @internal Whether its news are waited for, or nothing of it has to be: it goes on when this run ends. */
  heard = false;
  private watchers = 0;

  /** @internal Looks for its end, which no checkpoint has to wait for if the child has an id. */
  watch<T>(ended: () => T): Promise<T> {
    this.watchers += 1;
    return this.then(ended, ended);
  }

  /** @internal Before a checkpoint: stops looking for the end of a child that a later segment joins again. */
  leave(): void {
    if (this.hasId && this.readers > 0 && this.readers <= this.watchers) this.giveUp();
  }

  /** The agent that it runs. */
  get kind(): string {
    return this.what;
  }

  /** @internal How its output is made of what was stored. */
  get read(): ((value: unknown) => unknown) | undefined {
    return this.rebuild;
  }

  /** @internal */
  override get named(): string {
    return `child "${this.what}"`;
  }

  /** @internal */
  override get canOutlive(): boolean {
    return false;
  }

  /** @internal */
  override get isLookedAfter(): boolean {
    return this.heard;
  }
}

/** Refuses what is no child. */
export function checkChildren(children: readonly unknown[], call: string): void {
  if (children.every((child) => isA(child, Child))) return;
  throw new InvalidArgument(`${call} takes what spawnAgent has given`);
}
