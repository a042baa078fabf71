// One run for all who look at it: what the API tells of it, its stream, and what is done to it. Its stream begins with the first
// who subscribes and ends with the last.
import { conversationOfRun } from "../transcript/index.js";
import { runPath } from "./client.js";
import type { FlovynClient } from "./client.js";
import { entryOf } from "./paging.js";
import { patiently } from "./patience.js";
import { pendingMessage, stillPending } from "./pending.js";
import type { PendingMessage } from "./pending.js";
import { asProblem } from "./problem.js";
import type { Problem } from "./problem.js";
import { questionsIn } from "./questions.js";
import type { OpenQuestion } from "./questions.js";
import { RunStore, emptyView } from "./run_store.js";
import type { RunView } from "./run_store.js";
import { APPROVAL, INPUT, decide, endTurn, respond, resume, retry, sayTo, stop, uniqueKey } from "./steer.js";
import type { ApprovalTerms, Delivery } from "./steer.js";
import type { Run } from "./types.js";

/** Several events of life come together; what is asked for them is asked once. */
const SOON_MS = 150;
/** A run is asked for again so often, for what no event tells: that somebody retries it, for one. */
const CALM_MS = 15_000;
const AWAY_MS = 2_000;
/** How long a run is kept that nobody looks at. */
const KEPT_MS = 60_000;

/** Has what is known of a run at one moment. It is another object whenever something has changed. */
export interface LiveRunState {
  /** Null until the server has told it. */
  readonly run: Run | null;
  readonly view: RunView;
  /** Why the run could not be read; null as soon as it could. */
  readonly problem: Problem | null;
  readonly pending: readonly PendingMessage[];
}

/** A question of a run, or of one below it. */
export interface RunQuestion extends OpenQuestion {
  readonly run: string;
}

const nothing: LiveRunState = { run: null, view: emptyView, problem: null, pending: [] };

/** Looks at one run. `subscribe` and `current` are what `useSyncExternalStore` takes. */
export class LiveRun {
  private state = nothing;
  private readonly listeners = new Set<() => void>();
  private store: RunStore | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private soonTimer: ReturnType<typeof setTimeout> | undefined;
  private ending: ReturnType<typeof setTimeout> | undefined;
  private isOn = false;
  private asking: Promise<void> | null = null;
  private readonly heard = new Set<string>();
  /** The keys of messages that may have arrived although sending them failed. */
  private readonly unsure = new Map<string, string>();

  constructor(
    private readonly client: FlovynClient,
    /** The id of the run: its UUID, or the one it was started with. */
    readonly id: string,
    /** Called when nobody has looked at it for a while. */
    private readonly onIdle: () => void = () => {},
  ) {
    this.idle();
  }

  readonly current = (): LiveRunState => this.state;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    clearTimeout(this.ending);
    if (!this.isOn) this.begin();
    return () => {
      if (!this.listeners.delete(listener) || this.listeners.size) return;
      // React's strict mode, and a component that takes the place of another one, come back in the same moment.
      this.ending = setTimeout(() => this.end(), 0);
    };
  };

  /** Asks for the run again. */
  readonly refresh = async (): Promise<void> => {
    await (this.asking ??= this.ask().finally(() => (this.asking = null)));
  };

  /** The open questions of the run, and of those below it that its stream has told of. */
  questions(): readonly RunQuestion[] {
    const { run, view } = this.state;
    if (!run) return [];
    const { entries, runs } = view.transcript;
    const asks = [...runs.values()].filter((each) => each.id !== run.id && each.status === "WAITING" && each.waitingFor.some((name) => name === APPROVAL || name === INPUT));
    const ids = [run.id, ...asks.map((each) => each.id)];
    return ids.flatMap((id) => questionsIn(conversationOfRun(entries, id, id === run.id ? (run.leaf ?? null) : null)).map((question) => ({ ...question, run: id })));
  }

  /** Says something to the run. It is sent once, however often the connection is cut meanwhile, and when it is sent again after it failed. */
  readonly send = async (text: string, options: { readonly delivery?: Delivery } = {}): Promise<void> => {
    const said = text.trim();
    if (!said) return;
    const delivery = options.delivery ?? "next_step";
    const again = `${delivery} ${said}`;
    const key = this.unsure.get(again) ?? uniqueKey();
    this.unsure.delete(again);
    const message = pendingMessage(this.state.view.transcript, this.state.run?.id ?? "", key, said);
    this.change({ pending: [...this.state.pending, message] });
    try {
      await patiently(() => sayTo(this.client, this.id, said, delivery, key));
      this.change({ pending: this.state.pending.map((each) => (each.key === key ? { ...each, isSent: true } : each)) });
      this.soon();
    } catch (error) {
      this.unsure.set(again, key);
      this.change({ pending: this.state.pending.filter((each) => each.key !== key) });
      throw error;
    }
  };

  /** Lets a call run that waits for an approval. The first decision stands; another one is refused (409). */
  readonly approve = (callId: string, terms: ApprovalTerms = {}): Promise<void> => this.decide(callId, true, "", terms);

  /** Refuses a call that waits for an approval; the model is told the reason. */
  readonly deny = (callId: string, reason = ""): Promise<void> => this.decide(callId, false, reason);

  /** Answers the questions of a call that waits for input: by the key of each question, what the protocol of elicitation says. */
  readonly answer = async (callId: string, responses: Readonly<Record<string, unknown>>): Promise<void> => {
    const asked = this.questions().find((each) => each.block.call.id === callId && each.block.input && !each.block.input.answered);
    if (!asked?.block.input) throw new Error(`No call ${callId} waits for an answer.`);
    await respond(this.client, asked.run, asked.block.input, responses);
    this.soon();
  };

  /** Ends the turn of the built-in agent: what is being written or run ends with what it has. */
  readonly interrupt = (): Promise<void> => this.steer(() => endTurn(this.client, this.id));
  /** Asks the run to stop: at its next step, or at once with `hard`. */
  readonly stop = (mode: "graceful" | "hard" = "graceful"): Promise<void> => this.steer(() => stop(this.client, this.id, mode));
  /** Lets a paused run go on. */
  readonly resume = (options: object = {}): Promise<void> => this.steer(() => resume(this.client, this.id, options));
  /** Lets a run that has failed go on from its last commit. */
  readonly retry = (options: object = {}): Promise<void> => this.steer(() => retry(this.client, this.id, options));

  /** Loads the entries before the oldest that is loaded. */
  readonly loadOlder = async (): Promise<void> => {
    if (this.state.run) await this.store?.loadOlder(this.state.run.id);
  };

  /** Reads the content of an entry that was told by reference, for its size. */
  readonly loadEntry = async (run: string, entryId: string): Promise<void> => {
    const entry = await entryOf(this.client, run, entryId);
    const href = entry.contentRef?.href;
    const content = href ? parsed(await this.client.text(href)) : entry.content;
    this.store?.page([{ ...entry, contentRef: null, content }]);
  };

  private async decide(callId: string, approved: boolean, reason: string, terms: ApprovalTerms = {}): Promise<void> {
    const asked = this.questions().find((each) => each.block.call.id === callId && each.block.approval && !each.block.approval.decision);
    const approval = asked?.block.approval;
    if (!approval) throw new Error(`No call ${callId} waits for an approval.`);
    await patiently(() => decide(this.client, asked.run, approval, approved, reason.trim(), terms));
    this.soon();
  }

  private async steer(ask: () => Promise<unknown>): Promise<void> {
    await ask();
    this.soon();
  }

  private begin(): void {
    this.isOn = true;
    void this.refresh();
  }

  private end(): void {
    this.isOn = false;
    clearTimeout(this.timer);
    this.store?.stop();
    this.idle();
  }

  private idle(): void {
    this.ending = setTimeout(this.onIdle, KEPT_MS);
    // Nobody waits for this, a process neither.
    (this.ending as { unref?: () => void }).unref?.();
  }

  private async ask(): Promise<void> {
    clearTimeout(this.timer);
    try {
      const run = await this.client.get<Run>(runPath(this.id));
      this.change({ run, problem: null });
      if (this.isOn) this.followed(run.id).open(run);
    } catch (error) {
      this.change({ problem: asProblem(error) });
    }
    const { problem } = this.state;
    const isAway = problem !== null && (problem.status === 0 || problem.status >= 500);
    if (this.isOn) this.timer = setTimeout(() => void this.refresh(), isAway ? AWAY_MS : CALM_MS);
  }

  private soon(): void {
    if (!this.isOn) return;
    this.soonTimer ??= setTimeout(() => {
      this.soonTimer = undefined;
      // An answer that is under way may be of before.
      if (this.isOn) void (this.asking ?? Promise.resolve()).then(this.refresh);
    }, SOON_MS);
  }

  private followed(run: string): RunStore {
    if (this.store) return this.store;
    const store = new RunStore(this.client, run, { onLife: (id) => id === run && this.soon() });
    store.subscribe(() => {
      const view = store.current();
      this.change({ view, pending: stillPending(this.state.pending, view.transcript, run, this.heard) });
    });
    return (this.store = store);
  }

  private change(changes: Partial<LiveRunState>): void {
    this.state = { ...this.state, ...changes };
    for (const listener of this.listeners) listener();
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const runs = new WeakMap<FlovynClient, Map<string, LiveRun>>();

/** The run for all who look at it by the same client and id: they share its stream. */
export function liveRunOf(client: FlovynClient, id: string): LiveRun {
  const known = runs.get(client) ?? new Map<string, LiveRun>();
  runs.set(client, known);
  const found = known.get(id);
  if (found) return found;
  const fresh = new LiveRun(client, id, () => known.get(id) === fresh && known.delete(id));
  known.set(id, fresh);
  return fresh;
}
