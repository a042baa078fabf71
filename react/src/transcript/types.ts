// The words of a transcript: what comes from a server, and what the reducer keeps of it. No React, no browser.

/** A server-sent event as it came: its id, its name, and its data as JSON. */
export interface ServerEvent {
  readonly id: string;
  readonly type: string;
  readonly data: EventData;
}

/** What every event says, and whatever else its kind says. */
export interface EventData {
  readonly agentExecutionId: string;
  readonly op?: string | null;
  readonly epoch?: number | null;
  readonly attempt?: number | null;
  readonly seq?: number | null;
  readonly [name: string]: unknown;
}

/** A value that is told by reference. */
export interface ContentReference {
  readonly hash: string | null;
  readonly size: number;
}

/** An entry, from an event or from a page: the same either way. */
export interface TranscriptEntry {
  readonly id: string;
  readonly run: string;
  readonly parent: string | null;
  readonly op: string;
  readonly role: string;
  readonly type: string;
  readonly content: unknown;
  readonly reference: ContentReference | null;
  readonly at: string;
}

/** How a task of a run stands, as far as its events have told. */
export interface TranscriptTask {
  readonly op: string;
  readonly kind: string;
  readonly status: "scheduled" | "started" | "retry" | "completed" | "failed" | "cancelled" | "in_doubt" | "quarantined";
  readonly attempt: number;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  readonly seq: number;
}

/** A piece of what a command has printed. */
export interface TerminalPiece {
  readonly stream: "stdout" | "stderr";
  readonly text: string;
}

/** What an attempt of an op has streamed so far. It is void as soon as something durable says otherwise. */
export interface Preview {
  readonly op: string;
  readonly epoch: number;
  readonly attempt: number;
  readonly seq: number;
  readonly text: string;
  readonly thinking: string;
  /** The arguments of the calls that the model is writing, by the number of their part. */
  readonly calls: ReadonlyMap<number, string>;
  readonly terminal: readonly TerminalPiece[];
  /** Everything else that was streamed, the newest last. */
  readonly data: readonly unknown[];
  /** Its task has ended, and its entry is about to come. */
  readonly done: boolean;
}

/** One run of a family. */
export interface RunTranscript {
  readonly id: string;
  readonly kind: string | null;
  /** The status that its last event of life told, or null where none has come. */
  readonly status: string | null;
  readonly waitingFor: readonly string[];
  /** The number of the durable event that told the status. */
  readonly statusSeq: number;
  /** The number of the last durable event. */
  readonly seq: number;
  readonly tasks: ReadonlyMap<string, TranscriptTask>;
  readonly previews: ReadonlyMap<string, Preview>;
  /** Ops whose result is durable: what is streamed for them is late. */
  readonly settled: ReadonlySet<string>;
}

/** All that was told of a run and of the runs below it. */
export interface Transcript {
  readonly entries: ReadonlyMap<string, TranscriptEntry>;
  readonly runs: ReadonlyMap<string, RunTranscript>;
}

/** An entry as the REST API lists it; only what a transcript reads of it. */
export interface ListedEntry {
  readonly id: string;
  readonly execution: string;
  readonly parentId?: string | null;
  readonly op: string;
  readonly role: string;
  readonly entryType: string;
  readonly content?: unknown;
  readonly contentRef?: { readonly hash?: string | null; readonly size: number } | null;
  readonly createdAt: string;
}
