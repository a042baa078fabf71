// Entries from the newest back. The API lists them from the first, so this steps back by the places that its cursors name.
import { compareSlots, slotOf } from "../transcript/index.js";
import { runPath } from "./client.js";
import type { FlovynClient } from "./client.js";
import type { Entry, Listing } from "./types.js";

/** Is a step back: some entries, and where those before them end. */
export interface Page {
  readonly items: readonly Entry[];
  /** Pass it to `entriesBefore` for the page before; null at the beginning. */
  readonly before: string | null;
}

/** How many segments to step back at a time where the segments are short. */
const SEGMENTS = 12;

/** One entry, whole; a caller who knows more of its fields names its type. */
export function entryOf<E extends Entry = Entry>(client: FlovynClient, run: string, entryId: string): Promise<E> {
  return client.get(`${runPath(run)}/messages/${encodeURIComponent(entryId)}`);
}

/** The newest entries of a run that has a leaf. */
export async function newestEntries(client: FlovynClient, run: string, leaf: string, count: number): Promise<Page> {
  const newest = await entryOf(client, run, leaf);
  // Behind its leaf a run may have appended to threads; they are few, and the next page has room.
  const page = await pageBefore(client, run, slotOf(newest.op), count);
  return page.items.some((item) => item.id === leaf) ? page : { ...page, items: [...page.items, newest] };
}

/** The entries before a place that an earlier page named. */
export async function entriesBefore(client: FlovynClient, run: string, before: string, count: number): Promise<Page> {
  return pageBefore(client, run, before, count);
}

/** A cursor is the place of the last entry before; with a place further back, listing goes on from there. The place itself
 * is of this page, since the page that named it begins behind it. */
async function pageBefore(client: FlovynClient, run: string, slot: string, count: number): Promise<Page> {
  const start = cursorBefore(slot, count);
  const items: Entry[] = [];
  let cursor: string | null = start;
  for (;;) {
    const page: Listing<Entry> = await client.get(`${runPath(run)}/entries`, { limit: count, cursor });
    const wanted = page.items.filter((item) => compareSlots(slotOf(item.op), slot) <= 0);
    items.push(...wanted);
    cursor = page.nextCursor ?? null;
    if (cursor === null || wanted.length < page.items.length) break;
  }
  return { items, before: start };
}

function cursorBefore(slot: string, count: number): string | null {
  const [segment = 0, number = 0] = slot.split("-").map(Number);
  if (number > count) return `${segment}-${number - count}`;
  return segment > SEGMENTS ? `${segment - SEGMENTS}-0` : null;
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
