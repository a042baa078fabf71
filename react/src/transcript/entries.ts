// How an entry is read, from an event and from a page, into the one form that a transcript keeps.
import { slotOf } from "./slots.js";
import type { EventData, ListedEntry, TranscriptEntry } from "./types.js";

/** The entry of an `entry` event; null where it lacks what makes one. */
export function entryOfEvent(data: EventData): TranscriptEntry | null {
  const { entryId, entryType, role, parentId, at, content, contentHash, contentSize } = data;
  if (typeof entryId !== "string" || typeof entryType !== "string") return null;
  const byReference = typeof contentSize === "number";
  return {
    id: entryId,
    run: data.agentExecutionId,
    parent: typeof parentId === "string" ? parentId : null,
    op: slotOf(data.op ?? "0-0"),
    role: typeof role === "string" ? role : "",
    type: entryType,
    content: byReference ? undefined : content,
    reference: byReference ? { hash: typeof contentHash === "string" ? contentHash : null, size: contentSize } : null,
    at: typeof at === "string" ? at : "",
  };
}

/** The entry of a page. */
export function entryOfPage(listed: ListedEntry): TranscriptEntry {
  const reference = listed.contentRef ?? null;
  return {
    id: listed.id,
    run: listed.execution,
    parent: listed.parentId ?? null,
    op: slotOf(listed.op),
    role: listed.role,
    type: listed.entryType,
    content: reference ? undefined : listed.content,
    reference: reference && { hash: reference.hash ?? null, size: reference.size },
    at: listed.createdAt,
  };
}

/** Of two tellings of one entry, the one that has its content; they say the same otherwise. */
export function richer(known: TranscriptEntry | undefined, told: TranscriptEntry): TranscriptEntry {
  if (!known) return told;
  return known.reference && !told.reference ? told : known;
}
