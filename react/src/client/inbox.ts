// The open questions of all runs, for all who show them: asked for every few seconds for as long as somebody does.
import type { FlovynClient } from "./client.js";
import { patiently } from "./patience.js";
import { asProblem } from "./problem.js";
import type { Problem } from "./problem.js";
import { openQuestions, runsThatAsk } from "./questions.js";
import type { OpenQuestion } from "./questions.js";
import { decide, respond } from "./steer.js";
import type { ApprovalTerms } from "./steer.js";
import type { Run } from "./types.js";

const LIVE_MS = 4_000;
/** How many runs are read at a time; the others follow when some are decided. */
const MOST = 40;
/** An answer that the run refuses comes back as a question; until then it is not shown again. */
const ANSWERED_MS = 5_000;

/** A question to a person, with the run that asks it. */
export interface OpenApproval extends OpenQuestion {
  /** Unique among all open questions. */
  readonly key: string;
  readonly run: Run;
}

/** Has what the inbox knows at one moment. */
export interface InboxState {
  /** The oldest first. */
  readonly open: readonly OpenApproval[];
  /** Nothing has been told yet. */
  readonly isLoading: boolean;
  /** How many runs ask in all; more than are shown where there are very many. */
  readonly runs: number;
  readonly problem: Problem | null;
}

interface Read {
  /** What the run stood at when it was read. */
  readonly at: string;
  readonly questions: readonly OpenQuestion[];
}

/** Reads the questions of all runs. `subscribe` and `current` are what `useSyncExternalStore` takes. */
export class Inbox {
  private state: InboxState = { open: [], isLoading: true, runs: 0, problem: null };
  private readonly listeners = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private asking: Promise<void> | null = null;
  private read = new Map<string, Read>();
  /** Questions that this page has decided, and until when they are not shown. */
  private readonly decided = new Map<string, number>();

  constructor(private readonly client: FlovynClient) {}

  readonly current = (): InboxState => this.state;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    if (this.listeners.size === 1) void this.refresh();
    return () => {
      this.listeners.delete(listener);
      if (!this.listeners.size) clearTimeout(this.timer);
    };
  };

  /** Looks for questions now. */
  readonly refresh = async (): Promise<void> => {
    await (this.asking ??= this.ask().finally(() => (this.asking = null)));
  };

  /** Lets the call of a question run. The first decision stands; another one is refused (409). */
  readonly approve = (question: OpenApproval, terms: ApprovalTerms = {}): Promise<void> => this.decide(question, true, "", terms);

  /** Refuses the call of a question; the model is told the reason. */
  readonly deny = (question: OpenApproval, reason = ""): Promise<void> => this.decide(question, false, reason);

  /** Answers a question that asks for input: by the key of each of its questions, what the protocol of elicitation says. */
  readonly answer = async (question: OpenApproval, responses: Readonly<Record<string, unknown>>): Promise<void> => {
    const { input } = question.block;
    if (!input) throw new Error(`The call ${question.block.call.id} asks for no input.`);
    await respond(this.client, question.run.id, input, responses);
    this.hide(question, Date.now() + ANSWERED_MS);
  };

  private async decide(question: OpenApproval, approved: boolean, reason: string, terms: ApprovalTerms = {}): Promise<void> {
    const { approval } = question.block;
    if (!approval) throw new Error(`The call ${question.block.call.id} asks for no approval.`);
    await patiently(() => decide(this.client, question.run.id, approval, approved, reason.trim(), terms));
    this.hide(question, Infinity);
  }

  private hide(question: OpenApproval, until: number): void {
    this.decided.set(question.key, until);
    this.change({ open: this.state.open.filter((each) => each.key !== question.key) });
  }

  private async ask(): Promise<void> {
    clearTimeout(this.timer);
    try {
      const asking = await runsThatAsk(this.client);
      const shown = asking.slice(0, MOST);
      const read = new Map(await Promise.all(shown.map(async (run) => [run.id, await this.questionsOf(run)] as const)));
      this.read = read;
      const open = shown.flatMap((run) => (read.get(run.id)?.questions ?? []).map((question) => ({ ...question, run, key: keyOf(run, question) })));
      const keys = new Set(open.map((each) => each.key));
      for (const [key, until] of this.decided) if (!keys.has(key) || until < Date.now()) this.decided.delete(key);
      const left = open.filter((each) => !this.decided.has(each.key)).sort((left, right) => (left.at < right.at ? -1 : 1));
      this.change({ open: left, isLoading: false, runs: asking.length, problem: null });
    } catch (error) {
      this.change({ isLoading: false, problem: asProblem(error) });
    }
    if (this.listeners.size) this.timer = setTimeout(() => void this.refresh(), LIVE_MS);
  }

  private async questionsOf(run: Run): Promise<Read> {
    const at = `${run.leaf ?? ""} ${run.updatedAt}`;
    const known = this.read.get(run.id);
    return known?.at === at ? known : { at, questions: await openQuestions(this.client, run) };
  }

  private change(changes: Partial<InboxState>): void {
    this.state = { ...this.state, ...changes };
    for (const listener of this.listeners) listener();
  }
}

function keyOf(run: Run, { block }: OpenQuestion): string {
  return `${run.id} ${block.call.id} ${block.approval?.hash ?? block.input?.hash ?? ""}`;
}

const inboxes = new WeakMap<FlovynClient, Inbox>();

/** The inbox for all who show the questions of a client. */
export function inboxOf(client: FlovynClient): Inbox {
  const found = inboxes.get(client) ?? new Inbox(client);
  inboxes.set(client, found);
  return found;
}
