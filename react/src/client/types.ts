// What the REST API tells of a run, as far as this package reads it; the server's OpenAPI document has the rest.
import type { ListedEntry } from "../transcript/index.js";

/** Is where a run is in its life; the last three are ends. */
export type RunStatus = "PENDING" | "RUNNING" | "WAITING" | "PAUSED" | "CANCELLING" | "COMPLETED" | "FAILED" | "CANCELLED";

/** A run, as `GET …/agent-executions/{id}` and its lists tell it. */
export interface Run {
  /** Its UUID. */
  readonly id: string;
  /** The id it was started with, where that is no UUID. */
  readonly key?: string | null;
  /** The agent. */
  readonly kind: string;
  /** A `RunStatus`, or a word that a newer server has added. */
  readonly status: string;
  readonly createdAt: string;
  readonly updatedAt: string;
  /** The version of the code that ran it last, as that code says it. */
  readonly code?: string | null;
  readonly input?: unknown;
  readonly output?: unknown;
  readonly failure?: { readonly code: string; readonly message: string } | null;
  /** The entry where the conversation stands. */
  readonly leaf?: string | null;
  /** How many checkpoints it has. */
  readonly segment: number;
  readonly forkedFrom?: object | null;
  /** The signals it waits for. */
  readonly waitsFor: readonly string[];
  /** Why it waits or is paused. */
  readonly waitReason?: string | null;
  readonly waits?: { readonly signals: readonly string[] } | null;
}

/** A part of a listing. */
export interface Listing<T> {
  readonly items: T[];
  /** Pass it as `cursor` for the next part; null at the end. */
  readonly nextCursor?: string | null;
}

/** An entry with the address of its content, where that is told by reference. */
export interface Entry extends ListedEntry {
  readonly contentRef?: { readonly hash?: string | null; readonly size: number; readonly href?: string | null } | null;
}
