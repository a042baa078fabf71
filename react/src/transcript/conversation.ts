// The conversation as people read it: the entries of a branch as blocks, each call with its result and its approval.
import { asObject, asText, factsOf, partsOf } from "./content.js";
import type { AnswerFacts, CallPart, MediaPart, ResultPart } from "./content.js";
import type { Preview, RunTranscript, TranscriptEntry } from "./types.js";

/** A person is asked whether a call may run. */
export interface ApprovalAsked {
  readonly id: string;
  readonly name: string;
  readonly arguments: unknown;
  readonly effect: string;
  readonly hash: string;
  readonly at: string;
  readonly decision: { readonly approved: boolean; readonly reason: string | null; readonly at: string; readonly arguments?: unknown; readonly scope?: string | null } | null;
}

/** A person is asked the questions of a server, or of an agent. */
export interface InputAsked {
  readonly id: string;
  readonly name: string;
  readonly server: string;
  readonly hash: string;
  readonly questions: Readonly<Record<string, unknown>>;
  readonly refusal: string | null;
  readonly answered: boolean;
}

interface Placed {
  /** Stable: the same thing has the same key however the transcript came about. */
  readonly key: string;
  readonly entry: TranscriptEntry;
}

/** Is one thing that a reader sees: a message, a thought, a call with all that is known of it, a note, or a value. */
export type Block = Placed &
  (
    | { readonly kind: "message"; readonly role: string; readonly text: string; readonly media: readonly MediaPart[]; readonly facts: AnswerFacts | null }
    | { readonly kind: "thinking"; readonly text: string; readonly redacted: boolean; readonly durationMs: number | null }
    | {
        readonly kind: "call";
        readonly call: CallPart;
        readonly result: ResultPart | null;
        readonly resultEntry: TranscriptEntry | null;
        readonly approval: ApprovalAsked | null;
        readonly input: InputAsked | null;
        readonly child: string | null;
      }
    | { readonly kind: "note"; readonly word: string; readonly value: unknown }
    | { readonly kind: "deferred" }
    | { readonly kind: "value"; readonly value: unknown }
  );

/** Is a call with its result, its approval, its questions and its child, as far as there are any. */
export type CallBlock = Extract<Block, { kind: "call" }>;

/** Entries that say nothing to a reader of the conversation; the tree of entries has them. */
const SILENT: ReadonlySet<string> = new Set(["llm_call", "tools", "agent_begin", "approval", "input", "approval_request", "input_request", "agent_spawn", "input_refused"]);
const NOTES: ReadonlySet<string> = new Set(["compaction", "context_edit", "warning", "budget_low", "answer_end"]);

/** What later entries say of a call, by the id of the call. */
interface About {
  result?: { part: ResultPart; entry: TranscriptEntry };
  approval?: ApprovalAsked;
  input?: InputAsked;
  child?: string;
}

/** The blocks of a branch, from the oldest to the newest. */
export function conversationOf(branch: readonly TranscriptEntry[]): readonly Block[] {
  const about = aboutCalls(branch);
  const blocks: Block[] = [];
  for (const entry of branch) {
    if (SILENT.has(entry.type)) continue;
    if (entry.reference) blocks.push({ kind: "deferred", key: entry.id, entry });
    else if (NOTES.has(entry.type)) note(blocks, entry);
    else message(blocks, entry, about);
  }
  return blocks;
}

function note(blocks: Block[], entry: TranscriptEntry): void {
  const stop = asText(asObject(entry.content)?.["stopReason"]);
  if (entry.type === "answer_end" && (stop === null || stop === "end")) return;
  blocks.push({ kind: "note", key: entry.id, entry, word: entry.type, value: entry.content });
}

function message(blocks: Block[], entry: TranscriptEntry, about: ReadonlyMap<string, About>): void {
  const parts = partsOf(entry.content);
  const facts = factsOf(entry.content);
  const text: string[] = [];
  const media: MediaPart[] = [];
  const flush = (key: string) => {
    if (!text.length && !media.length) return;
    blocks.push({ kind: "message", key, entry, role: entry.role, text: text.join("\n\n"), media: media.splice(0), facts });
    text.length = 0;
  };
  parts.forEach((part, index) => {
    const key = `${entry.id}:${index}`;
    switch (part.type) {
      case "text":
        if (part.text.trim()) text.push(part.text);
        return;
      case "media":
        media.push(part.media);
        return;
      case "thinking":
        flush(`${key}:before`);
        if (part.text || part.redacted) blocks.push({ kind: "thinking", key, entry, text: part.text, redacted: part.redacted, durationMs: facts?.durationMs ?? null });
        return;
      case "call": {
        flush(`${key}:before`);
        const known = about.get(part.call.id);
        blocks.push({
          kind: "call",
          key,
          entry,
          call: part.call,
          result: known?.result?.part ?? null,
          resultEntry: known?.result?.entry ?? null,
          approval: known?.approval ?? null,
          input: known?.input ?? null,
          child: known?.child ?? null,
        });
        return;
      }
      case "result":
        // It is shown with its call; one whose call is not loaded is shown by itself.
        if (about.get(part.result.id)?.result?.entry !== entry) return;
        if (!calls.get(about)?.has(part.result.id)) blocks.push({ kind: "value", key, entry, value: part.result.text });
        return;
      default:
        flush(`${key}:before`);
        blocks.push({ kind: "value", key, entry, value: part.value });
    }
  });
  flush(`${entry.id}:text`);
}

/** The ids of the calls of a branch, beside what is said about them. */
const calls = new WeakMap<ReadonlyMap<string, About>, ReadonlySet<string>>();

function aboutCalls(branch: readonly TranscriptEntry[]): ReadonlyMap<string, About> {
  const about = new Map<string, About>();
  const asked = new Set<string>();
  const of = (id: string): About => {
    const known = about.get(id) ?? {};
    about.set(id, known);
    return known;
  };
  for (const entry of branch) {
    const content = asObject(entry.content);
    const id = asText(content?.["id"]);
    if (entry.type === "message" && (entry.role === "tool_result" || entry.role === "tool" || entry.role === "assistant")) {
      for (const part of partsOf(entry.content)) {
        if (part.type === "call") asked.add(part.call.id);
        else if (part.type === "result") of(part.result.id).result = { part: part.result, entry };
      }
    } else if (content && id !== null) {
      noteAbout(of(id), entry, content, id);
    }
  }
  calls.set(about, asked);
  return about;
}

function noteAbout(known: About, entry: TranscriptEntry, content: Readonly<Record<string, unknown>>, id: string): void {
  const text = (name: string) => asText(content[name]) ?? "";
  switch (entry.type) {
    case "approval_request":
      known.approval = { id, name: text("name"), arguments: content["arguments"], effect: text("effect"), hash: text("hash"), at: entry.at, decision: null };
      return;
    case "approval":
      if (known.approval?.hash !== text("hash")) return;
      known.approval = { ...known.approval, decision: { approved: content["approved"] === true, reason: asText(content["reason"]), at: entry.at, arguments: content["arguments"], scope: asText(content["scope"]) } };
      return;
    case "input_request":
      known.input = { id, name: text("name"), server: text("server"), hash: text("hash"), questions: asObject(content["questions"]) ?? {}, refusal: null, answered: false };
      return;
    case "input_refused":
      if (known.input) known.input = { ...known.input, refusal: text("message"), answered: false };
      return;
    case "input":
      if (known.input) known.input = { ...known.input, answered: true, refusal: null };
      return;
    case "agent_spawn":
      known.child = text("child");
  }
}

/** Whether a call waits for the decision of a person. */
export function isUndecided(block: CallBlock): boolean {
  if (block.result) return false;
  return (block.approval !== null && !block.approval.decision) || (block.input !== null && !block.input.answered);
}

/** What is being made of a run, oldest first: the previews that have something to show. */
export function inTheMaking(run: RunTranscript | undefined): readonly Preview[] {
  if (!run) return [];
  return [...run.previews.values()].filter((each) => each.text || each.thinking || each.calls.size > 0);
}

/** The last word of the agent about what it does, such as `compacting`; null where it has said none. */
export function activityOf(run: RunTranscript | undefined): { readonly status: string; readonly value: Readonly<Record<string, unknown>> } | null {
  let found: { status: string; value: Readonly<Record<string, unknown>>; seq: number } | null = null;
  for (const preview of run?.previews.values() ?? []) {
    for (const piece of preview.data) {
      const value = asObject(piece);
      const status = value?.["type"] === "status" ? asText(value["status"]) : value?.["type"] === "retrying" ? "retrying" : null;
      if (value && status && preview.seq >= (found?.seq ?? 0)) found = { status, value, seq: preview.seq };
    }
  }
  return found;
}
