// What a watcher of a run is told: previews, entries, and the turns of its life, each with an id to resume after.

/** A piece of text that is being made; void when its op is retracted, replaced by the entry or result. */
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

/** An entry of the conversation is durable; what was streamed for its op is replaced by it. */
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

/** Makes an event of what the engine gives. */
export function eventOf(parts: unknown[]): Event {
  const [what, id, data, op, attempt] = parts as [string, string, string, string, number];
  switch (what) {
    case "durable":
      return durable(id, JSON.parse(data) as DurableFacts);
    case "token":
      return { type: "token", id, text: data, op, attempt };
    case "retract":
      return { type: "retract", id, op: data };
    case "gap":
      return { type: "gap", id };
    default:
      return { type: "data", id, name: what as DataEvent["name"], data: JSON.parse(data), op, attempt };
  }
}

interface DurableFacts {
  kind: string;
  at: number;
  segment: number;
  sequence: number | null;
  data: Record<string, unknown> | null;
}

function durable(id: string, facts: DurableFacts): Event {
  const at = new Date(facts.at * 1000);
  const data = facts.data ?? {};
  const op = `${facts.segment}-${facts.sequence}`;
  switch (facts.kind) {
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
        name: facts.kind,
        at,
        segment: facts.segment,
        sequence: facts.sequence,
        data,
        isTerminal: TERMINAL.has(facts.kind),
      };
  }
}
