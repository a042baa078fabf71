// Messages that were sent and that the run has not heard yet. The API lists no signals, so it is what this page has sent.
import { compareSlots, leafOf, partsOf } from "../transcript/index.js";
import type { Transcript, TranscriptEntry } from "../transcript/index.js";

/** Is a message on its way to a run, or with the server and not heard. */
export interface PendingMessage {
  /** Unique among the messages of a run. */
  readonly key: string;
  readonly text: string;
  /** Whether the server has it. */
  readonly isSent: boolean;
  /** Where the run stood when it was sent: what it hears of it stands behind. */
  readonly after: string | null;
}

/** A message that is on its way. */
export function pendingMessage(transcript: Transcript, run: string, key: string, text: string): PendingMessage {
  return { key, text, isSent: false, after: leafOf(transcript, run)?.op ?? null };
}

/** The messages that no entry of the run says yet. An entry stands for one message; `heard` has those that stand for one. */
export function stillPending(pending: readonly PendingMessage[], transcript: Transcript, run: string, heard: Set<string>): readonly PendingMessage[] {
  if (!pending.length) return pending;
  const left = pending.filter((message) => {
    for (const entry of transcript.entries.values()) {
      if (heard.has(entry.id) || !says(entry, run, message)) continue;
      heard.add(entry.id);
      return false;
    }
    return true;
  });
  return left.length === pending.length ? pending : left;
}

function says(entry: TranscriptEntry, run: string, message: PendingMessage): boolean {
  if (entry.run !== run || entry.role !== "user") return false;
  if (message.after !== null && compareSlots(entry.op, message.after) <= 0) return false;
  return partsOf(entry.content).some((part) => part.type === "text" && part.text.trim() === message.text);
}
