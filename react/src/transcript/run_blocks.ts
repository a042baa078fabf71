// The conversation of one run of a transcript, made once for as long as its entries are the same.
import { branchTo, leafOf } from "./branch.js";
import { conversationOf } from "./conversation.js";
import type { Block } from "./conversation.js";
import type { Transcript } from "./types.js";

type Entries = Transcript["entries"];

const made = new WeakMap<Entries, Map<string, readonly Block[]>>();

/**
 * The blocks of the branch that a run stands on, from the oldest to the newest. `leaf` is where it stands as the API tells it:
 * a fork that has appended nothing yet stands on an entry of another run.
 */
export function conversationOfRun(entries: Entries, run: string, leaf: string | null = null): readonly Block[] {
  const known = made.get(entries) ?? new Map<string, readonly Block[]>();
  made.set(entries, known);
  const name = `${run} ${leaf ?? ""}`;
  const blocks = known.get(name);
  if (blocks) return blocks;
  const transcript = { entries, runs: new Map() };
  const newest = leafOf(transcript, run) ?? (leaf === null ? null : (entries.get(leaf) ?? null));
  const fresh = conversationOf(branchTo(transcript, newest).entries);
  known.set(name, fresh);
  return fresh;
}
