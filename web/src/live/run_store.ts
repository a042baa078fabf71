// One run as it is looked at: its newest entries, its stream from there on, and older entries as they are scrolled to.
import { follow } from "../api/follow";
import type { Connection } from "../api/follow";
import { currentOrg } from "../api/client";
import type { Run } from "../api/client";
import { entriesBefore, newestEntries, wholeBranch } from "../api/paging";
import { lastPosition } from "../api/position";
import { asProblem } from "../api/problem";
import type { Problem } from "../api/problem";
import type { Sent } from "../api/server_sent";
import { emptyTranscript, isOver, withEvents, withPage } from "../transcript";
import type { ListedEntry, ServerEvent, Transcript } from "../transcript";
import { setConnection } from "./connection";

/** How many entries are fetched first, and with each step back. */
const FIRST = 60;
const OLDER = 200;
/** A run with more entries than this is not streamed from its start. */
const SHORT = 400;

export interface Older {
  /** Where the entries before begin; null at the beginning, undefined before anything is loaded. */
  readonly before: string | null | undefined;
  readonly loading: boolean;
}

export interface RunView {
  readonly transcript: Transcript;
  readonly connection: Connection;
  /** By run: how far back entries are loaded. */
  readonly older: ReadonlyMap<string, Older>;
  readonly problem: Problem | null;
}

export class RunStore {
  private view: RunView = { transcript: emptyTranscript, connection: "connecting", older: new Map(), problem: null };
  private readonly listeners = new Set<() => void>();
  private stopped = new AbortController();
  private waiting: ServerEvent[] = [];
  private frame: (() => void) | null = null;
  private streaming = false;
  /** Whether somebody looks at it. */
  private isWanted = false;
  private readonly loading = new Map<string, Promise<void>>();
  /** The id of the last event, for a stream that begins again because the run does. */
  private lastId = "";

  constructor(
    private readonly run: string,
    /** Called when something about the run itself has changed, such as its status. */
    private readonly onLife: (run: string) => void,
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
    this.frame?.();
    this.frame = null;
    setConnection(null);
  }

  /** Loads the entries before those that are there. */
  async loadOlder(run: string): Promise<void> {
    const known = this.view.older.get(run);
    if (!known || known.loading || !known.before) return;
    this.older(run, { before: known.before, loading: true });
    try {
      const page = await entriesBefore(run, known.before, OLDER);
      this.page(page.items);
      this.older(run, { before: page.before, loading: false });
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
        await wholeBranch(run.id, (items) => this.page(items));
        this.older(run.id, { before: null, loading: false });
      } else if (run.leaf) {
        const page = await newestEntries(run.id, run.leaf, FIRST);
        this.page(page.items);
        this.older(run.id, { before: page.before, loading: false });
      } else {
        this.older(run.id, { before: null, loading: false });
      }
    } catch (error) {
      this.older(run.id, { before: null, loading: false });
      this.change({ problem: asProblem(error) });
    }
  }

  private async stream(run: Run): Promise<void> {
    const signal = this.stopped.signal;
    if (this.streaming || !this.isWanted) return;
    this.streaming = true;
    const url = `${location.origin}/api/orgs/${encodeURIComponent(currentOrg())}/agent-executions/${run.id}/stream/consolidated`;
    let after = this.lastId;
    const place = Number((run.leaf && this.view.transcript.entries.get(run.leaf)?.op.split("-")[1]) ?? 0);
    try {
      if (after === "" && (place > SHORT || run.segment > SHORT / 10)) after = String(await lastPosition(url, place + run.segment, signal));
    } catch {
      after = "";
    }
    await follow({
      url,
      after,
      signal,
      onEvents: (events) => this.receive(events),
      onConnection: (connection) => {
        this.change({ connection });
        setConnection(connection);
      },
    });
    // A stream that was stopped is no longer this one's to end.
    if (!signal.aborted) this.streaming = false;
  }

  private receive(events: readonly Sent[]): void {
    this.lastId = events.at(-1)?.id ?? this.lastId;
    for (const event of events) {
      try {
        this.waiting.push({ id: event.id, type: event.type, data: JSON.parse(event.data) as ServerEvent["data"] });
      } catch {
        // What is no JSON is of a version that this page does not know.
      }
    }
    this.frame ??= nextFrame(() => {
      this.frame = null;
      const arrived = this.waiting.splice(0);
      const transcript = withEvents(this.view.transcript, arrived);
      this.change({ transcript });
      const lives = new Set(arrived.filter((event) => event.type.startsWith("agent.") || event.type === "usage").map((event) => event.data.agentExecutionId));
      for (const run of lives) this.onLife(run);
      const root = transcript.runs.get(this.run);
      if (root && isOver(root)) this.onLife(this.run);
    });
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

/** Calls once before the next picture is drawn, or soon where nothing is drawn because the tab is hidden. */
function nextFrame(call: () => void): () => void {
  const frame = requestAnimationFrame(once);
  const timer = setTimeout(once, 250);
  function cancel() {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
  }
  function once() {
    cancel();
    call();
  }
  return cancel;
}
