// The reducer: events and pages in, a transcript out. It is pure and keyed by what things are called, so that order,
// repetition, cuts and resumes make no difference to what is durable.
import { Batch } from "./batch.js";
import { entryOfEvent, entryOfPage, richer } from "./entries.js";
import { withPiece } from "./previews.js";
import { compareSlots, slotOf } from "./slots.js";
import type {
  EventData,
  ListedEntry,
  Preview,
  RunTranscript,
  ServerEvent,
  Transcript,
  TranscriptEntry,
  TranscriptTask,
} from "./types.js";

/** A transcript of which nothing was told. */
export const emptyTranscript: Transcript = { entries: new Map(), runs: new Map() };

const ENDS: ReadonlySet<string> = new Set(["agent.completed", "agent.failed", "agent.cancelled"]);

function emptyRun(id: string): RunTranscript {
  return {
    id,
    kind: null,
    status: null,
    waitingFor: [],
    statusSeq: 0,
    seq: 0,
    tasks: new Map(),
    previews: new Map(),
    settled: new Set(),
  };
}

/** The transcript with these events, which are of one stream and in its order. */
export function withEvents(transcript: Transcript, events: readonly ServerEvent[]): Transcript {
  const batch = new Batch();
  let entries = transcript.entries;
  const runs = new Map(transcript.runs);
  for (const event of events) {
    const id = event.data.agentExecutionId;
    if (typeof id !== "string") continue;
    runs.set(id, runWith(batch, runs.get(id) ?? emptyRun(id), event));
    if (event.type !== "entry") continue;
    const entry = entryOfEvent(event.data);
    if (entry) entries = withEntry(batch, entries, entry);
  }
  return { entries, runs };
}

/** The transcript with the entries of a page, of whatever place. */
export function withPage(transcript: Transcript, page: readonly ListedEntry[]): Transcript {
  const batch = new Batch();
  let entries = transcript.entries;
  for (const listed of page) entries = withEntry(batch, entries, entryOfPage(listed));
  return entries === transcript.entries ? transcript : { ...transcript, entries };
}

type Entries = Transcript["entries"];

function withEntry(batch: Batch, entries: Entries, told: TranscriptEntry): Entries {
  const known = entries.get(told.id);
  const kept = richer(known, told);
  return kept === known ? entries : batch.map(entries).set(kept.id, kept);
}

function runWith(batch: Batch, run: RunTranscript, event: ServerEvent): RunTranscript {
  const { type, data } = event;
  if (type === "token" || type === "data" || type === "progress") return withPreview(batch, run, type, data);
  if (type === "retract") return withoutPreview(batch, run, data.op ?? "");
  // What is shown of ops in the making is void. What still counts follows again.
  if (type === "gap") return run.previews.size ? { ...run, previews: new Map() } : run;
  if (type === "stream_error") return run;
  const seq = typeof data.seq === "number" ? data.seq : 0;
  if (type.startsWith("task.")) return withTask(batch, run, type.slice("task.".length), data, seq);
  if (type === "entry") return withEntryOf(batch, run, data, seq);
  return withLife(run, type, data, seq);
}

function withPreview(batch: Batch, run: RunTranscript, type: string, data: EventData): RunTranscript {
  const op = data.op;
  if (typeof op !== "string" || run.settled.has(op) || isOver(run)) return run;
  const known = run.previews.get(op);
  const grown = withPiece(known, type, data);
  if (!grown || grown === known) return run;
  return { ...run, previews: batch.map(run.previews).set(op, grown) };
}

function withoutPreview(batch: Batch, run: RunTranscript, op: string): RunTranscript {
  if (!run.previews.has(op)) return run;
  const previews = batch.map(run.previews);
  previews.delete(op);
  return { ...run, previews };
}

function withTask(batch: Batch, run: RunTranscript, word: string, data: EventData, seq: number): RunTranscript {
  const op = data.op;
  if (typeof op !== "string") return run;
  const known = run.tasks.get(op);
  let changed: RunTranscript = { ...run, seq: Math.max(run.seq, seq) };
  if (!known || known.seq < seq) changed = { ...changed, tasks: batch.map(run.tasks).set(op, taskOf(known, word, data, seq)) };
  if (word === "completed") return settle(batch, changed, op, true);
  if (word === "failed" || word === "cancelled") return settle(batch, changed, op, false);
  // A retry that is told again says nothing of the attempts after it.
  if (word === "retry" && (run.previews.get(op)?.attempt ?? 0) <= (data.attempt ?? 0)) return withoutPreview(batch, changed, op);
  return changed;
}

function taskOf(known: TranscriptTask | undefined, word: string, data: EventData, seq: number): TranscriptTask {
  const at = typeof data["at"] === "string" ? data["at"] : null;
  const ended = word === "completed" || word === "failed" || word === "cancelled";
  return {
    op: slotOf(data.op ?? ""),
    kind: typeof data["kind"] === "string" ? data["kind"] : (known?.kind ?? ""),
    status: word as TranscriptTask["status"],
    attempt: data.attempt ?? known?.attempt ?? 1,
    startedAt: word === "started" ? at : (known?.startedAt ?? null),
    endedAt: ended ? at : null,
    seq,
  };
}

/** An op has its result. What it has streamed stays in sight until the entry that follows, so that nothing flickers. */
function settle(batch: Batch, run: RunTranscript, op: string, stays: boolean): RunTranscript {
  const settled = run.settled.has(op) ? run.settled : batch.set(run.settled).add(op);
  const preview = run.previews.get(op);
  if (!preview) return { ...run, settled };
  const previews = batch.map(run.previews);
  if (stays && preview.text + preview.thinking !== "") previews.set(op, { ...preview, done: true });
  else previews.delete(op);
  return { ...run, settled, previews };
}

function withEntryOf(batch: Batch, run: RunTranscript, data: EventData, seq: number): RunTranscript {
  const op = slotOf(data.op ?? "");
  const settled = run.settled.has(op) ? run.settled : batch.set(run.settled).add(op);
  return { ...run, seq: Math.max(run.seq, seq), settled, previews: replaced(batch, run.previews, op) };
}

/** Previews without that of the op, and without those of ended tasks that the entry stands behind. */
function replaced(batch: Batch, previews: ReadonlyMap<string, Preview>, op: string): ReadonlyMap<string, Preview> {
  const gone = [...previews.values()].filter((each) => each.op === op || (each.done && compareSlots(each.op, op) < 0));
  if (!gone.length) return previews;
  const left = batch.map(previews);
  for (const each of gone) left.delete(each.op);
  return left;
}

function withLife(run: RunTranscript, type: string, data: EventData, seq: number): RunTranscript {
  if (seq <= run.seq) return run;
  let changed: RunTranscript = { ...run, seq };
  if (typeof data["kind"] === "string" && type === "agent.started") changed = { ...changed, kind: data["kind"] };
  const status = data["status"];
  if (typeof status === "string" && seq > run.statusSeq) {
    const signals = type === "agent.waiting" && Array.isArray(data["signals"]) ? data["signals"].map(String) : [];
    changed = { ...changed, status, statusSeq: seq, waitingFor: signals };
  }
  if (!changed.previews.size) return changed;
  if (ENDS.has(type)) return { ...changed, previews: new Map() };
  const left = new Map([...changed.previews].filter(([, preview]) => !preview.done));
  return left.size === changed.previews.size ? changed : { ...changed, previews: left };
}

/** Whether the run has ended, by its own word. */
export function isOver(run: RunTranscript): boolean {
  return run.status === "COMPLETED" || run.status === "FAILED" || run.status === "CANCELLED";
}
