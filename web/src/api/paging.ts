// Entries from the newest back. The API lists them from the first, so this steps back by the places that its cursors name.
import { compareSlots, slotOf } from "../transcript";
import { answer, api, currentOrg } from "./client";
import type { Entry } from "./client";

export interface Page {
  readonly items: readonly Entry[];
  /** Pass it to `entriesBefore` for the page before; null at the beginning. */
  readonly before: string | null;
}

const org = () => ({ org: currentOrg() });
/** How many segments to step back at a time where the segments are short. */
const SEGMENTS = 12;

/** One entry, whole. */
export async function entryOf(run: string, entryId: string): Promise<Entry> {
  return answer(api.GET("/api/orgs/{org}/agent-executions/{id}/messages/{entryId}", { params: { path: { ...org(), id: run, entryId } } }));
}

/** The newest entries of a run that has a leaf. */
export async function newestEntries(run: string, leaf: string, count: number): Promise<Page> {
  const newest = await entryOf(run, leaf);
  // Behind its leaf a run may have appended to threads; they are few, and the next page has room.
  const page = await pageBefore(run, slotOf(newest.op), count);
  return page.items.some((item) => item.id === leaf) ? page : { ...page, items: [...page.items, newest] };
}

/** The entries before a place that an earlier page named. */
export async function entriesBefore(run: string, before: string, count: number): Promise<Page> {
  return pageBefore(run, before, count);
}

/** A cursor is the place of the last entry before; with a place further back, listing goes on from there. The place itself
 * is of this page, since the page that named it begins behind it. */
async function pageBefore(run: string, slot: string, count: number): Promise<Page> {
  const start = cursorBefore(slot, count);
  const items: Entry[] = [];
  let cursor = start;
  for (;;) {
    const query = cursor === null ? { limit: count } : { limit: count, cursor };
    const page = await answer(api.GET("/api/orgs/{org}/agent-executions/{id}/entries", { params: { path: { ...org(), id: run }, query } }));
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
export async function wholeBranch(run: string, onPage: (items: readonly Entry[]) => void): Promise<void> {
  let cursor: string | null = null;
  do {
    const query: { limit: number; cursor?: string } = cursor === null ? { limit: 1000 } : { limit: 1000, cursor };
    const page: { items: Entry[]; nextCursor?: string | null } = await answer(
      api.GET("/api/orgs/{org}/agent-executions/{id}/messages", { params: { path: { ...org(), id: run }, query } }),
    );
    onPage(page.items);
    cursor = page.nextCursor ?? null;
  } while (cursor !== null);
}
