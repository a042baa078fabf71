// One run as it is looked at: its newest entries, its stream from there on, and older entries as they are scrolled to.
import { emptyTranscript, isOver, withEvents, withPage } from "../transcript/index.js";
import type { ListedEntry, ServerEvent, Transcript } from "../transcript/index.js";
import { runPath } from "./client.js";
import type { FlovynClient } from "./client.js";
import { LATEST, follow } from "./follow.js";
import type { Connection } from "./follow.js";
import { entriesBefore, newestEntries, wholeBranch } from "./paging.js";
import type { Page } from "./paging.js";
import { patiently } from "./patience.js";
import { asProblem } from "./problem.js";
import type { Problem } from "./problem.js";
import type { Sent } from "./server_sent.js";
import type { Run } from "./types.js";

/** How many entries are fetched first, and with each step back. */
const FIRST = 60;
const OLDER = 200;
/** A run with more entries than this is not streamed from its start. */
const SHORT = 400;

/** Says how far back the entries of a run are loaded. */
export interface Older {
  /** Where the entries before begin; null at the beginning, undefined before anything is loaded. */
  readonly before: string | null | undefined;
  readonly loading: boolean;
}

/** Has what is read of a run at one moment. It is another object whenever something has changed. */
export interface RunView {
  readonly transcript: Transcript;
  readonly connection: Connection;
  /** By run: how far back entries are loaded. */
  readonly older: ReadonlyMap<string, Older>;
  readonly problem: Problem | null;
}

/** What there is of a run that nobody has read anything of. */
export const emptyView: RunView = { transcript: emptyTranscript, connection: "connecting", older: new Map(), problem: null };

/** Who is told what beside the view. */
export interface RunListeners {
  /** Something about the run itself has changed, or about one below it, such as its status. */
  onLife(run: string): void;
  /** How its stream stands; null while none is wanted. */
  onConnection?(connection: Connection | null): void;
}

/** Follows one run: reads its newest entries, streams from there on, and reads older ones when it is asked to. */
export class RunStore {
  private view: RunView = emptyView;
  private readonly listeners = new Set<() => void>();
  private stopped = new AbortController();
  private waiting: ServerEvent[] = [];
  private frame: (() => void) | null = null;
  private streaming = false;
  /** Whether somebody looks at it. */
  private isWanted = false;
  private readonly loading = new Map<string, Promise<void>>();
  /** Whether entries may be missing that came between the first page and the stream. */
  private isBehind = false;
  /** The id of the last event, for a stream that begins again because the run does. */
  private lastId = "";

  constructor(
    private readonly client: FlovynClient,
    /** Its UUID. */
    private readonly run: string,
    private readonly told: RunListeners,
  ) {}

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  readonly current = (): RunView => this.view;

  /** Loads what there is of a run, once; the root is streamed as long as it may go on. */
  open(run: Run): void {
    this.isWanted = true;
    if (!this.view.older.has(run.id)) this.loading.set(run.id, this.load(run));
    // The newest entry tells how long the run is, and so where its stream is begun.
    if (run.id === this.run && !isEnd(run.status)) void this.loading.get(run.id)?.then(() => this.stream(run));
  }

  /** Ends the stream; `open` begins it again. */
  stop(): void {
    this.stopped.abort();
    this.stopped = new AbortController();
    this.streaming = false;
    this.isWanted = false;
    // What has come is kept: the next stream begins behind it.
    this.frame?.();
    this.take();
    this.told.onConnection?.(null);
  }

  /** Loads the entries before those that are there. */
  async loadOlder(run: string): Promise<void> {
    const known = this.view.older.get(run);
    if (!known || known.loading || !known.before) return;
    this.older(run, { before: known.before, loading: true });
    try {
      const page = await entriesBefore(this.client, run, known.before, OLDER);
      this.page(page.items);
      this.older(run, { before: page.before, loading: false });
      if (this.view.problem) this.change({ problem: null });
    } catch (error) {
      this.older(run, { before: known.before, loading: false });
      this.change({ problem: asProblem(error) });
    }
  }

  /** Entries that were read in another way, such as one whose content was too large to be listed. */
  page(items: readonly ListedEntry[]): void {
    this.change({ transcript: withPage(this.view.transcript, items) });
  }

  private async load(run: Run): Promise<void> {
    this.older(run.id, { before: undefined, loading: true });
    try {
      if (run.forkedFrom) {
        await wholeBranch(this.client, run.id, (items) => this.page(items));
        this.older(run.id, { before: null, loading: false });
      } else {
        const page = await newestEntries(this.client, run.id, FIRST);
        this.page(page.items);
        this.older(run.id, { before: page.before, loading: false });
      }
      if (this.view.problem) this.change({ problem: null });
    } catch (error) {
      // The next `open` reads it again.
      const older = new Map(this.view.older);
      older.delete(run.id);
      this.change({ older, problem: asProblem(error) });
    }
  }

  private async stream(run: Run): Promise<void> {
    const signal = this.stopped.signal;
    if (this.streaming || !this.isWanted) return;
    this.streaming = true;
    const path = `${runPath(run.id)}/stream/consolidated`;
    const place = Number((run.leaf && this.view.transcript.entries.get(run.leaf)?.op.split("-")[1]) ?? 0);
    const isLong = place > SHORT || run.segment > SHORT / 10;
    const after = this.lastId || (isLong ? LATEST : "");
    this.isBehind ||= after === LATEST;
    await follow({
      client: this.client,
      path,
      after,
      signal,
      onPosition: (id) => {
        this.lastId = id;
      },
      onEvents: (events) => this.receive(events),
      onConnection: (connection) => {
        if (connection === "live" && this.isBehind) void this.catchUp(run.id);
        this.change({ connection });
        this.told.onConnection?.(connection);
      },
    });
    // A stream that was stopped is no longer this one's to end.
    if (!signal.aborted) this.streaming = false;
  }

  /** Reads the newest entries until one is known: those that came between the first page and the stream. */
  private async catchUp(run: string): Promise<void> {
    try {
      let before: string | null = null;
      do {
        const from: string | null = before;
        const page: Page = await patiently(() => entriesBefore(this.client, run, from, OLDER));
        const isKnown = page.items.some((item) => this.view.transcript.entries.has(item.id));
        this.page(page.items);
        before = isKnown ? null : page.before;
      } while (before !== null);
      this.isBehind = false;
    } catch (error) {
      // It is tried again as soon as the stream is read again.
      this.change({ problem: asProblem(error) });
    }
  }

  private receive(events: readonly Sent[]): void {
    for (const event of events) {
      try {
        this.waiting.push({ id: event.id, type: event.type, data: JSON.parse(event.data) as ServerEvent["data"] });
      } catch {
        // What is no JSON is of a version that this page does not know.
      }
    }
    this.frame ??= nextFrame(() => {
      const lives = new Set(this.take().filter((event) => event.type.startsWith("agent.") || event.type === "usage").map((event) => event.data.agentExecutionId));
      for (const run of lives) this.told.onLife(run);
      const root = this.view.transcript.runs.get(this.run);
      if (root && isOver(root)) this.told.onLife(this.run);
    });
  }

  /** Takes what has come into the transcript. */
  private take(): readonly ServerEvent[] {
    this.frame = null;
    const arrived = this.waiting.splice(0);
    if (arrived.length) this.change({ transcript: withEvents(this.view.transcript, arrived) });
    return arrived;
  }

  private older(run: string, older: Older): void {
    this.change({ older: new Map(this.view.older).set(run, older) });
  }

  private change(changes: Partial<RunView>): void {
    this.view = { ...this.view, ...changes };
    for (const listener of this.listeners) listener();
  }
}

function isEnd(status: string): boolean {
  return status === "COMPLETED" || status === "FAILED" || status === "CANCELLED";
}

/** Calls once before the next picture is drawn, or soon where nothing is drawn: the tab is hidden, or there is no browser. */
function nextFrame(call: () => void): () => void {
  const frame = globalThis.requestAnimationFrame?.(once);
  const timer = setTimeout(once, frame === undefined ? 16 : 250);
  function cancel() {
    if (frame !== undefined) cancelAnimationFrame(frame);
    clearTimeout(timer);
  }
  function once() {
    cancel();
    call();
  }
  return cancel;
}
