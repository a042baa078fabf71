// What a watcher of a run is told: previews, entries, and the turns of its life, each with an id to resume after.

import { facts } from "./serde.js";

/** A piece of text that is being made, until an event that `replaces` it. */
export interface TokenEvent {
  readonly type: "token";
  readonly id: string;
  readonly text: string;
  readonly op: string;
  readonly attempt: number;
}

/** Structured data that is being made; `name` is `data`, `error` or `progress`. */
export interface DataEvent {
  readonly type: "data";
  readonly id: string;
  readonly name: "data" | "error" | "progress";
  readonly data: unknown;
  readonly op: string;
  readonly attempt: number;
}

/** An entry of the conversation is durable; it replaces what the agent itself has streamed so far. */
export interface EntryEvent {
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
export interface RetractEvent {
  readonly type: "retract";
  readonly id: string;
  readonly op: string;
}

/** A turn of the run's life or of one of its tasks: `name` is `created`, `waiting`, `task_started`, … */
export interface LifecycleEvent {
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
export interface UsageEvent {
  readonly type: "usage";
  readonly id: string;
  readonly at: Date;
  readonly data: Readonly<Record<string, unknown>>;
}

/** Previews before this place are gone; durable events are not. */
export interface GapEvent {
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
      return preview.attempt === 0;
    case "retract":
      return preview.op === event.op;
    case "lifecycle":
      return event.isTerminal || (ENDS.has(event.name) && preview.op === event.op);
    default:
      return event.type === "gap";
  }
}

/** Makes an event of a run of what the engine gives. */
export function eventOf(parts: unknown[], run: string): Event {
  const [what, id, data, op, attempt] = parts as [string, string, string, string, number];
  switch (what) {
    case "durable":
      return durable(id, facts<DurableFacts>(data));
    case "token":
      return { type: "token", id, text: data, op, attempt };
    case "retract":
      return { type: "retract", id, op: `${run}-${data}` };
    case "gap":
      return { type: "gap", id };
    default:
      return { type: "data", id, name: what as DataEvent["name"], data: JSON.parse(data), op, attempt };
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

function durable(id: string, shown: DurableFacts): Event {
  const { kind, at, segment, sequence } = shown;
  const data = shown.data ?? {};
  const op = shown.op ?? "";
  switch (kind) {
    case "entry":
      return {
        type: "entry",
        id,
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
      return { type: "usage", id, at, data };
    case "retract":
      return { type: "retract", id, op };
    default:
      return {
        type: "lifecycle",
        id,
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
