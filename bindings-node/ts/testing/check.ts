// Proof by construction: an agent must end the same, whatever happens to its process.
//
// It is run undisturbed first. Then its copy is dropped at every wait, and its process dies at every commit in turn:
// before it, after it, and with only the answer lost. Outcome, conversation and steps must be those of the first run, and
// no step that had its result may run again.

import { setTimeout as sleep } from "node:timers/promises";

import type { Agent, AnyAgent } from "../agent.js";
import type { Client } from "../client.js";
import { lookedAt } from "../debug.js";
import { AgentFailed, FlovynError, Waiting } from "../errors.js";
import type { Execution, Handle } from "../handle.js";
import { hub } from "../hub.js";
import { json } from "../serde.js";
import type { Arguments } from "../task.js";
import type { AnyTask } from "../worker.js";
import { allRuns, difference, entries, type Member, members, ops, shown } from "./family.js";
import { kill, byKind, type Fakes, TestWorld } from "./harness.js";

const KEY = "flovyn-check";
const PAUSE_MS = 2;
const STILL_POLLS = 5;
/** How long nothing may happen before a signal is missed: the code may have a timer of its own. */
const STUCK_MS = 1_000;
const MOST_CALLS = 5;
const NOTHING_SEEN =
  "no clock and no chance was asked in its own code: look for what outlives a run there, such as globals, caches, files and " +
  "the environment; let a task return what is read of them";
const ENDED = new Set(["COMPLETED", "FAILED", "CANCELLED"]);

/** An agent did not end as in its undisturbed run, or that one did not end as it should. */
export class Difference extends Error {
  override readonly name = "Difference";
}

/** How a check is made. */
export interface CheckOptions {
  /** Sent at the start, in order. */
  signals?: readonly (readonly [name: string, payload: unknown])[];
  /** Functions that stand in for tasks; they must give the same result whenever they are called. */
  tasks?: Fakes;
  /**
   * That the agent shall fail: the name of its error's type, what its text must match, or `true` for any error. Without it
   * an agent that fails, or is cancelled, is a `Difference`.
   */
  throws?: string | RegExp | true;
  /** The limit of each run. */
  timeoutMs?: number;
  /** Crashes at no more commits than this. */
  maxCommits?: number;
}

/** What a check has seen. */
export interface Report {
  /** How the undisturbed run ended: its result, or the name and text of its error. */
  readonly outcome: unknown;
  /** Commits of the undisturbed run. */
  readonly commits: number;
  /** Runs that were made. */
  readonly runs: number;
}

/**
 * Runs an agent with forced re-entry and with a crash at every commit; throws `Difference` at the first one.
 *
 * The runs that it starts are compared as it is, where they end of themselves. An `at_most_once` task that a crash leaves in doubt is answered with "run it again", as by a person who found that it
 * did not happen. Durable sleeps cost no time. Where runs differ, the agent is run once more to say which calls in its code
 * differ in every process, such as `Date.now()` at `agents.ts:26`.
 */
export async function check<I, R, S>(
  agent: Agent<I, R, S>,
  ...args: [...Arguments<I>, options?: CheckOptions]
): Promise<Report> {
  const [input, options = {}] = args as unknown as [unknown, CheckOptions?];
  const made = new Case(agent, input, options);
  const expected = await made.run("undisturbed", {});
  checkEnd(expected, options.throws);
  let runs = 2;
  await made.compare(expected, "re-entered at every wait", { maxParked: 0 });
  for (let n = 1; n <= Math.min(expected.commits, options.maxCommits ?? 200); n++) {
    for (const how of ["before", "after", "answer_lost"]) {
      const what = `crash at commit ${n}, ${how}`;
      await made.compare(expected, what, { crash: [n, how] });
      runs += 1;
    }
  }
  return { outcome: expected.outcome, commits: expected.commits, runs };
}

/** Refuses an end that nobody expects. */
function checkEnd({ outcome, failure }: Seen, throws: CheckOptions["throws"]): void {
  if (failure === undefined) {
    if (throws === undefined) return;
    throw new Difference(`undisturbed: the agent gave ${json(outcome)}, but was expected to throw ${String(throws)}`);
  }
  const type = failure instanceof AgentFailed ? failure.type : failure.name;
  const isExpected = throws instanceof RegExp ? throws.test(failure.message) : throws === true || throws === type;
  if (isExpected) return;
  const wanted = throws === undefined ? "" : `, not ${String(throws)}`;
  const stack = failure instanceof AgentFailed && failure.traceback !== undefined ? `\n\n${failure.traceback}` : "";
  const message = `undisturbed: ${failure.message}${wanted}; where that is right, pass throws: "${type}"${stack}`;
  throw new Difference(message, { cause: failure });
}

interface Seen {
  failure: FlovynError | undefined;
  outcome: unknown;
  entries: unknown[];
  ops: string[];
  family: Member[];
  commits: number;
}

interface Disturbance {
  maxParked?: number;
  crash?: [n: number, how: string];
}

/** One agent with one input, run again and again. */
class Case {
  private repeated: string | undefined;
  /** What the present life serves of the toolkit. */
  private opened: ReadonlySet<string> = new Set();
  /** The agents of children that the present life has met. */
  private metAgents: ReadonlyMap<string, AnyAgent> = new Map();
  /** The tasks that a life has met; the next one serves them, as a program that lists its tasks would. */
  private readonly met = new Map<string, AnyTask>();
  /** The agents of children likewise. */
  private readonly children = new Map<string, AnyAgent>();
  /** The tasks of the toolkit among them, by kind. */
  private readonly ofToolkit = new Set<string>();

  constructor(
    private readonly agent: AnyAgent,
    private readonly input: unknown,
    private readonly options: CheckOptions,
  ) {}

  /** Runs once more and throws the first difference, with what may be its cause. */
  async compare(expected: Seen, what: string, disturbance: Disturbance): Promise<void> {
    try {
      compare(expected, await this.run(what, disturbance), what);
    } catch (error) {
      if (!(error instanceof Difference)) throw error;
      throw new Difference(`${error.message}; ${await this.why()}`);
    }
  }

  private async why(): Promise<string> {
    const found = new Map<string, string>();
    const told = (call: string, place: string, advice: string): void => {
      found.set(`${call} at ${place.replace(/^.*[/\\]/, "").replace(/:\d+$/, "")}`, advice);
    };
    // What is seen until it fails may still be the cause.
    await lookedAt(told, () => this.run("looked at", {})).catch(() => undefined);
    if (found.size === 0) return NOTHING_SEEN;
    const calls = [...found].slice(0, MOST_CALLS).map(([call, advice]) => `${call}, so ${advice}`);
    return `its code calls what differs in every process: ${calls.join("; ")}`;
  }

  async run(what: string, disturbance: Disturbance): Promise<Seen> {
    const { timeoutMs = 60_000 } = this.options;
    const limit = performance.now() + timeoutMs;
    const world = new TestWorld();
    const lives: Client[] = [];
    const begin = (): Client => {
      const client = world.startProcess();
      lives.push(client);
      return client;
    };
    try {
      return await this.live(world, begin, disturbance, limit);
    } catch (error) {
      if (error instanceof Difference) throw new Difference(`${what}: ${error.message}`);
      throw error;
    } finally {
      for (const client of lives) if (client.isOpen) await client.close();
    }
  }

  private async live(world: TestWorld, begin: () => Client, disturbance: Disturbance, limit: number): Promise<Seen> {
    let client = begin();
    if (disturbance.crash !== undefined) client.native.crashAt(...disturbance.crash);
    let handle: Handle = await client.start(this.agent as Agent, this.input, { id: KEY });
    for (const [number, [name, value]] of (this.options.signals ?? []).entries()) {
      await handle.signal(name, value, { idempotencyKey: `check-${number}` });
    }
    for (let commits = 0; ; ) {
      await this.serve(client, disturbance.maxParked);
      const ended = await this.drive(world, client, handle, limit);
      this.opened.forEach((kind) => this.ofToolkit.add(kind));
      this.metAgents.forEach((agent, kind) => this.children.set(kind, agent));
      commits += client.native.commits();
      // What is stored is compared; a serializer may have made of it what has no JSON form.
      if (ended) return { ...(await seen(client, await client.handle(KEY))), commits };
      await kill(client);
      client = begin();
      handle = await client.handle(KEY);
    }
  }

  private async serve(client: Client, maxParked: number | undefined): Promise<void> {
    const worker = client.worker({
      agents: [this.agent, ...this.children.values()],
      tasks: [...this.met.values()],
      maxParked,
    });
    this.metAgents = worker.metAgents;
    for (const [kind, fake] of byKind(this.options.tasks, [this.agent])) worker.fakes.set(kind, fake);
    const done = new Set<string>();
    for (const run of await allRuns(client)) {
      const tasks = await (await client.handle(run.id)).tasks();
      for (const task of tasks) if (task.status === "COMPLETED") done.add(task.id);
    }
    this.repeated = undefined;
    this.opened = worker.opened;
    worker.onAttempt = (kind, id) => {
      const task = worker.met.get(kind);
      if (task !== undefined) this.met.set(kind, task.task());
      if (done.has(id)) this.repeated ??= kind;
    };
    await worker.start();
    for (const kind of this.ofToolkit) worker.meetToolkit(kind);
  }

  /** Lets the life go on until the run or the life has ended; true for the run. Time passes when all wait. */
  private async drive(world: TestWorld, client: Client, handle: Handle, limit: number): Promise<boolean> {
    const over = new AbortController();
    let dead = false;
    const end = hub
      .call((hub, token) => client.native.crashed(hub, token), over.signal)
      .then(
        () => void (dead = true),
        () => undefined,
      );
    let still = 0;
    let since = performance.now();
    let last = "";
    try {
      for (;;) {
        const runs = await Promise.race([allRuns(client), end.then(() => undefined)]);
        const run = runs?.find(({ id }) => id === handle.id);
        if (dead || runs === undefined || run === undefined) return false;
        if (this.repeated !== undefined) {
          throw new Difference(`task "${this.repeated}" ran again although it had its result`);
        }
        if (ENDED.has(run.status)) return true;
        const paused = runs.find(({ status }) => status === "PAUSED");
        if (paused !== undefined) {
          const which = paused === run ? "the run" : `its child "${paused.kind}"`;
          throw new Difference(`${which} was paused: ${paused.waitReason}, ${JSON.stringify(paused.failure)}`);
        }
        const now = performance.now();
        if (now > limit) throw new Difference("the run has not ended within the time limit");
        const looks = json(runs.map((one) => [one.id, one.status, one["epoch"], one.updatedAt.getTime()]));
        if (looks !== last || runs.some(({ status }) => status === "RUNNING")) {
          still = 0;
          since = now;
          last = looks;
        }
        still += 1;
        if (still > STILL_POLLS) {
          still = 0;
          if (await world.jump()) since = now;
          else if (runs.some(({ waitReason }) => waitReason === "in_doubt")) await answer(client);
          else if (now - since > STUCK_MS) checkWaits(run, runs);
        }
        await Promise.race([sleep(PAUSE_MS), end]);
      }
    } finally {
      over.abort(new Error("the check goes on"));
    }
  }
}

/** Is the person who is asked about tasks in doubt: they did not happen, so they shall run. */
async function answer(client: Client): Promise<void> {
  for (const run of await allRuns(client)) {
    const handle = await client.handle(run.id);
    for (const task of await handle.tasks()) {
      if (task.status === "IN_DOUBT") await handle.resolve(task.op, { retry: true });
    }
  }
}

/** Says for which signal of nobody the run waits, or a child of it. */
function checkWaits(root: Execution, runs: readonly Execution[]): void {
  for (const one of [root, ...runs.filter((run) => run !== root)]) {
    if (one.waitReason !== "signal") continue;
    const [who, how] =
      one === root ? ["the agent", "pass it in signals"] : [`its child "${one.kind}"`, "let its parent send it"];
    throw new Waiting(`${who} waits for signal "${(one.waitsFor ?? []).join(", ")}"; ${how}`);
  }
}

async function seen(client: Client, handle: Handle): Promise<Omit<Seen, "commits">> {
  let outcome: unknown;
  let failure: FlovynError | undefined;
  try {
    outcome = shown(await handle.result({ timeoutMs: 10_000 }));
  } catch (error) {
    if (!(error instanceof FlovynError)) throw error;
    outcome = [error.name, error.message];
    failure = error;
  }
  const left = { entries: await entries(handle), ops: await ops(client, handle), family: await members(client, handle) };
  return { outcome, failure, ...left };
}

function compare(expected: Seen, found: Seen, what: string): void {
  const same = (name: string, one: unknown, other: unknown): void => {
    if (json(one) !== json(other)) {
      throw new Difference(`${what}: the ${name} is ${json(one)}, but undisturbed it is ${json(other)}`);
    }
  };
  same("outcome", found.outcome, expected.outcome);
  same("conversation", found.entries, expected.entries);
  const family = difference(expected.family, found.family);
  if (family !== undefined) throw new Difference(`${what}: ${family}`);
  // Which of several branches calls first depends on which outcome comes first; what they call may not.
  same("list of ops", [...found.ops].sort(), [...expected.ops].sort());
}
