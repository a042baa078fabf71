// The branch a run stands on: from the newest entry back to the root, as far as entries are loaded.
import { compareSlots } from "./slots.js";
import type { Transcript, TranscriptEntry } from "./types.js";

/** Types of entries that stand on threads of their own, never in the conversation. */
const ASIDE: ReadonlySet<string> = new Set(["tool_output"]);

/** The newest entry that a run has appended to its conversation; null where none is loaded. */
export function leafOf(transcript: Transcript, run: string): TranscriptEntry | null {
  let leaf: TranscriptEntry | null = null;
  for (const entry of transcript.entries.values()) {
    if (entry.run !== run || ASIDE.has(entry.type)) continue;
    if (!leaf || compareSlots(entry.op, leaf.op) > 0) leaf = entry;
  }
  return leaf;
}

/** Is a line of entries, each the parent of the next. */
export interface Branch {
  /** From the oldest to the newest. */
  readonly entries: readonly TranscriptEntry[];
  /** The parent of the oldest entry, which is not loaded; null where the branch is whole. */
  readonly missing: string | null;
}

/** The branch that ends with an entry. */
export function branchTo(transcript: Transcript, leaf: TranscriptEntry | null): Branch {
  const entries: TranscriptEntry[] = [];
  const seen = new Set<string>();
  let missing: string | null = null;
  for (let at = leaf; at && !seen.has(at.id); ) {
    seen.add(at.id);
    entries.push(at);
    const parent: string | null = at.parent;
    const next: TranscriptEntry | undefined = parent === null ? undefined : transcript.entries.get(parent);
    if (!next) missing = parent;
    at = next ?? null;
  }
  return { entries: entries.reverse(), missing };
}
