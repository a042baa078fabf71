// What a watcher of a run is told: previews, entries, and the turns of its life, each with an id to resume after.

import { facts } from "./serde.js";

/** What every event says of its run. */
export interface OfRun {
  /** The run that it is of. */
  readonly run: string;
  /** How many runs are above that one; null but in a stream with children. */
  readonly depth: number | null;
}

/** A piece of text that is being made, until an event that `replaces` it. */
export interface TokenEvent extends OfRun {
  readonly type: "token";
  readonly id: string;
  readonly text: string;
  readonly op: string;
  readonly attempt: number;
}

/** Structured data that is being made; `name` is `data`, `error` or `progress`. */
export interface DataEvent extends OfRun {
  readonly type: "data";
  readonly id: string;
  readonly name: "data" | "error" | "progress";
  readonly data: unknown;
  readonly op: string;
  readonly attempt: number;
}

/** An entry of the conversation is durable; it replaces what the agent itself has streamed so far. */
export interface EntryEvent extends OfRun {
  readonly type: "entry";
  readonly id: string;
  readonly entryId: string;
  readonly parentId: string | null;
  readonly role: string;
  readonly entryType: string;
  readonly content: unknown;
  readonly turnId: string | null;
  readonly metadata: unknown;
  readonly op: string;
  readonly at: Date;
}

/** Everything streamed for this op so far is void. */
export interface RetractEvent extends OfRun {
  readonly type: "retract";
  readonly id: string;
  readonly op: string;
}

/** A turn of the run's life or of one of its tasks: `name` is `created`, `waiting`, `task_started`, … */
export interface LifecycleEvent extends OfRun {
  readonly type: "lifecycle";
  readonly id: string;
  readonly name: string;
  readonly at: Date;
  readonly segment: number;
  readonly sequence: number | null;
  readonly data: Readonly<Record<string, unknown>>;
  /** The task that it is about, as `handle.tasks()` names it; empty where it is about the run. */
  readonly op: string;
  /** What the run has returned, of `completed`. */
  readonly result?: unknown;
  /** Whether nothing follows it. */
  readonly isTerminal: boolean;
}

/** The cost of a model call is durable. */
export interface UsageEvent extends OfRun {
  readonly type: "usage";
  readonly id: string;
  readonly at: Date;
  readonly data: Readonly<Record<string, unknown>>;
}

/** Previews of its run before this place are gone; durable events are not. */
export interface GapEvent extends OfRun {
  readonly type: "gap";
  readonly id: string;
}

/** What a run's stream tells; `id` is what to resume after. */
export type Event =
  | TokenEvent
  | DataEvent
  | EntryEvent
  | RetractEvent
  | LifecycleEvent
  | UsageEvent
  | GapEvent;

const TERMINAL = new Set(["completed", "failed", "cancelled"]);

const ENDS = new Set(["task_completed", "task_failed", "task_cancelled"]);

/**
 * Whether an event takes the place of a preview that was told before it, or voids it: then show it no longer.
 *
 * `shown = shown.filter((preview) => !replaces(event, preview))` after each event shows exactly what is being made.
 */
export function replaces(event: Event, preview: TokenEvent | DataEvent): boolean {
  switch (event.type) {
    case "entry":
      return preview.attempt === 0 && preview.run === event.run;
    case "retract":
      return preview.op === event.op;
    case "lifecycle":
      return (event.isTerminal && preview.run === event.run) || (ENDS.has(event.name) && preview.op === event.op);
    default:
      return event.type === "gap" && preview.run === event.run;
  }
}

/** Makes an event of what the engine gives. */
export function eventOf(parts: unknown[]): Event {
  const [what, id, run, depth, data, op, attempt] = parts as [
    string,
    string,
    string,
    number | null,
    string,
    string,
    number,
  ];
  const of = { id, run, depth: depth ?? null };
  switch (what) {
    case "durable":
      return durable(of, facts<DurableFacts>(data));
    case "token":
      return { type: "token", ...of, text: data, op, attempt };
    case "retract":
      return { type: "retract", ...of, op: data };
    case "gap":
      return { type: "gap", ...of };
    default:
      return { type: "data", ...of, name: what as DataEvent["name"], data: JSON.parse(data), op, attempt };
  }
}

interface DurableFacts {
  kind: string;
  at: Date;
  segment: number;
  sequence: number | null;
  op: string | null;
  data: Record<string, unknown> | null;
}

function durable(of: OfRun & { readonly id: string }, shown: DurableFacts): Event {
  const { kind, at, segment, sequence } = shown;
  const data = shown.data ?? {};
  const op = shown.op ?? "";
  switch (kind) {
    case "entry":
      return {
        type: "entry",
        ...of,
        entryId: data["entry"] as string,
        parentId: (data["parent"] as string | undefined) ?? null,
        role: data["role"] as string,
        entryType: data["entry_type"] as string,
        content: data["content"] ?? null,
        turnId: (data["turn_id"] as string | undefined) ?? null,
        metadata: data["metadata"] ?? null,
        op,
        at,
      };
    case "usage":
      return { type: "usage", ...of, at, data };
    case "retract":
      return { type: "retract", ...of, op };
    default:
      return {
        type: "lifecycle",
        ...of,
        name: kind,
        at,
        segment,
        sequence,
        data,
        op,
        isTerminal: TERMINAL.has(kind),
      };
  }
}
