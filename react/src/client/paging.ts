// Entries from the newest back, page by page.
import { runPath } from "./client.js";
import type { FlovynClient } from "./client.js";
import type { Entry, Listing } from "./types.js";

/** Is a step back: some entries, the oldest first, and where those before them end. */
export interface Page {
  readonly items: readonly Entry[];
  /** Pass it to `entriesBefore` for the page before; null at the beginning. */
  readonly before: string | null;
}

/** One entry, whole; a caller who knows more of its fields names its type. */
export function entryOf<E extends Entry = Entry>(client: FlovynClient, run: string, entryId: string): Promise<E> {
  return client.get(`${runPath(run)}/messages/${encodeURIComponent(entryId)}`);
}

/** The newest entries of a run. */
export function newestEntries(client: FlovynClient, run: string, count: number): Promise<Page> {
  return entriesBefore(client, run, null, count);
}

/** The entries before a place that an earlier page named; the newest without one. */
export async function entriesBefore(client: FlovynClient, run: string, before: string | null, count: number): Promise<Page> {
  const page: Listing<Entry> = await client.get(`${runPath(run)}/entries`, { order: "desc", limit: count, cursor: before });
  return { items: [...page.items].reverse(), before: page.nextCursor ?? null };
}

/** The whole branch a run stands on, from its root; for forks, whose past belongs to other runs. */
export async function wholeBranch(client: FlovynClient, run: string, onPage: (items: readonly Entry[]) => void): Promise<void> {
  let cursor: string | null = null;
  do {
    const page: Listing<Entry> = await client.get(`${runPath(run)}/messages`, { limit: 1000, cursor });
    onPage(page.items);
    cursor = page.nextCursor ?? null;
  } while (cursor !== null);
}
