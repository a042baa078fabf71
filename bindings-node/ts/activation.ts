// One activation of an agent on the event loop: runs its function, carries out what the engine asks.
//
// The engine decides; this file only runs code. Its one duty beside that is to tell the engine when the agent's code is
// quiet, so that outcomes are handed over one at a time, in the same order live and on replay. A copy that is put away is
// left alone: its promises never end, and the garbage collector takes it.

import { AsyncResource } from "node:async_hooks";

import { Agent, type AnyAgent, UnreadableState } from "./agent.js";
import { Child, type HandoffOptions, type SpawnOptions } from "./child.js";
import { CHECKPOINT_OP, EffectCode } from "./codes.js";
import { AgentContext } from "./context.js";
import {
  Cancelled,
  codeOf,
  consistsOf,
  InvalidArgument,
  isA,
  isMisfit,
  messageOf,
  misfit,
  OutsideAgent,
  placeOf,
  stackOf,
  Suspended,
  typeName,
  unwrapped,
} from "./errors.js";
import { hub } from "./hub.js";
import { agentFailed, attemptFailed, lost, neverAwaited, warned } from "./log.js";
import type { Effects, NativeSession, Wire } from "./native.js";
import { queueOf } from "./mode.js";
import { onceQuiet } from "./quiet.js";
import { unwritable } from "./results.js";
import { failureOf } from "./retry.js";
import { type Scope, scopes } from "./scope.js";
import { decode, encode, json } from "./serde.js";
import { Step } from "./step.js";
import { Stop } from "./stop.js";
import { NO_OP, nowhere, PATIENCE, unmade, Untold } from "./stopping.js";
import { type Declared, TaskContext, type TaskLink } from "./task.js";
import { outside } from "./outside.js";
import type { Worker } from "./worker.js";

const PUT_AWAY = "this copy of the agent was put away; its run goes on from its journal";

/** Rounds of empty queues after which code counts as quiet; one would do, but for code that uses `nextTick` itself. */
const QUIET_ROUNDS = 2;

/** How an inline attempt speaks with the engine: through its run's session. */
class InlineLink implements TaskLink {
  constructor(
    private readonly session: NativeSession,
    private readonly op: number,
    private readonly attempt: number,
  ) {}

  heartbeat(): void {
    this.session.taskHeartbeat(this.op);
  }

  progress(fraction: number, message: string): void {
    this.session.taskProgress(this.op, this.attempt, fraction, message);
  }

  stream(kind: number, data: string): void {
    this.session.stream(kind, data, this.op, this.attempt);
  }
}

/** One copy of an agent in memory. Thousands may wait, so it is kept small. */
export class Activation {
  /** Takes nothing more of the agent's code; its run goes on from its journal. */
  sealed = false;
  state: unknown;
  input: unknown;
  /** Once its run was told to stop: who has heard of it. */
  untold: Untold | undefined;
  private readonly steps = new Map<number, Step<unknown>>();
  private readonly attempts = new Map<number, Stop>();
  private awaiting = 0;
  private concurrent = false;
  private armed = false;
  private stirred = false;
  private rounds = 0;
  private over = false;
  /** Calls since one was taken; a copy that was put away takes none. */
  private refused = 0;
  /** How often such a copy was refused a call. */
  private refusals: number | undefined;
  /** What the agent's code calls: another one where its calls shall not reach the engine. */
  session: NativeSession;

  constructor(
    readonly worker: Worker,
    readonly id: number,
    private readonly own: NativeSession,
    readonly agent: AnyAgent,
  ) {
    this.session = own;
  }

  // ── life ──────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Enters the agent's function at its top. */
  async start(): Promise<void> {
    let report: () => Effects;
    try {
      const [input, ...state] = await hub.call<Wire[]>((hub, token) => this.own.load(hub, token));
      if (this.sealed) return;
      this.input = this.agent.own.load(decode(input));
      this.state = this.agent.readState(state[0]);
      const given = await this.given(state.length > 0);
      if (this.sealed) return;
      const ctx = new AgentContext<never>(this);
      const scope: Scope = { activation: this };
      this.stir();
      const output = await scopes.run(scope, () => this.agent.fn(ctx, given as never));
      this.over = true;
      if (this.sealed) return;
      this.tellUnawaited();
      const wire = this.agent.results.written(output);
      report = () => this.own.completed(wire);
    } catch (error) {
      this.over = true;
      if (this.sealed || consistsOf(error, Suspended)) return;
      report = consistsOf(error, Cancelled) ? () => this.own.cancelled() : () => this.failed(error);
    }
    this.tell(report, (error) => this.failed(misfit(unwritable(error))));
  }

  /** What the function gets; a schema that is stricter by now is not heard where the run has begun. */
  private async given(hasBegun: boolean): Promise<unknown> {
    try {
      return await this.agent.entered(this.input);
    } catch (error) {
      if (hasBegun || (await this.hasBegun())) return this.input;
      throw error;
    }
  }

  /** Whether an earlier copy of the run has got as far as to have something recorded. */
  private async hasBegun(): Promise<boolean> {
    try {
      const { native } = this.worker.client;
      const text = await hub.call<string>((hub, token) => native.journal(hub, token, this.own.executionId));
      return (JSON.parse(text) as unknown[]).length > 0;
    } catch {
      // Then it is as if it had not: who reads what is wrong with the input can mend that.
      return false;
    }
  }

  /** Says which steps the code has not awaited. */
  private tellUnawaited(): void {
    for (const step of this.steps.values()) {
      if (step.isAwaited || step.isLookedAfter || step.task?.detached === true) continue;
      const what = step.task === undefined ? step.named : `task "${step.task.kind}"`;
      neverAwaited(this.agent.kind, this.own.executionId, what, placeOf(step.made), step.canOutlive);
    }
  }

  private failed(thrown: unknown): Effects {
    const error = unwrapped(thrown);
    agentFailed(this.agent.kind, this.own.executionId, error);
    const code = codeOf(error) ?? "AgentFailed";
    const failure = {
      code,
      // The class of an unreadable state is known by its code alone.
      errorType: isA(error, UnreadableState) ? code : typeName(error),
      message: messageOf(error),
      traceback: stackOf(error),
    };
    return this.own.failed(failure, isMisfit(error) || isMisfit(thrown));
  }

  /** Tells how something ended, or what came of telling it: nobody waits for an error that is thrown here. */
  private tell(report: () => Effects, otherwise: (error: unknown) => Effects): void {
    let effects: Effects;
    try {
      effects = report();
    } catch (error) {
      effects = otherwise(error);
    }
    this.act(effects);
  }

  /** Stops what of its tasks is claimed here: its run has ended, and nobody waits for them. */
  private leave(): void {
    for (const step of this.steps.values()) {
      if (step.task?.detached === false) this.worker.unwanted(step, new Cancelled("the run has ended"));
    }
  }

  /** Puts the copy away. */
  drop(): void {
    this.sealed = true;
    for (const step of this.steps.values()) this.worker.forget(step);
    this.steps.clear();
    for (const attempt of this.attempts.values()) attempt.ask(new Suspended("the run was put away"));
    this.attempts.clear();
    this.worker.closed(this);
  }

  // ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Refuses ops that are not made by the agent's own code; gives the scope. */
  check(): Scope {
    const scope = scopes.getStore();
    if (scope?.activation !== this) {
      throw new OutsideAgent(
        "a context was used by code that is not its agent's, such as a task; let the task return what the agent " +
          "needs, and make the call in the agent",
      );
    }
    this.refused += 1;
    if (this.refused > PATIENCE && !this.sealed) this.ask();
    if (this.sealed) this.stand();
    else this.session = this.untold?.isDue === true ? unmade(this.own) : this.own;
    return scope;
  }

  /** Asks whether the copy was put away: code that calls again and again in vain may not let the loop hear of it. */
  private ask(): void {
    this.refused = 0;
    try {
      this.own.onceBegin("", "null");
    } catch (error) {
      if (!isA(error, Suspended)) return;
      this.stand();
      this.complain();
    }
  }

  /** Lets a copy that was put away stand where it next awaits. */
  private stand(): void {
    this.sealed = true;
    if (this.refusals !== undefined) return;
    this.refusals = 0;
    this.session = nowhere(this.own, () => this.refuse());
  }

  private refuse(): void {
    this.refusals = (this.refusals ?? 0) + 1;
    if (this.refusals <= PATIENCE) throw new Suspended(PUT_AWAY);
    if (this.refusals === PATIENCE + 1) this.complain();
  }

  private complain(): void {
    if (this.over) return;
    const { executionId } = this.own;
    process.emitWarning(
      `agent "${this.agent.kind}" goes on after Suspended was thrown in it, so this copy of run ${executionId} is left ` +
        "where it next awaits; let Suspended pass",
      "FlovynSuspended",
    );
  }

  /** Schedules a task: takes its slot now, starts once the code is quiet. */
  schedule(task: Declared, input: unknown, rebuild?: (value: unknown) => unknown): Step<unknown> {
    const scope = this.check();
    if (task.settings.origin !== undefined) task = task.calledBy(this.own.executionId);
    const wire = encode(task.own.dump(input));
    if (!task.results.arePlain) rebuild = (value) => task.results.read(value);
    let called: [op: number, id: string];
    try {
      called = this.session.callTask(task.spec, wire, task.key, scope.once);
    } catch (error) {
      if (!isA(error, Suspended)) throw error;
      this.stand();
      called = [NO_OP, ""];
    }
    const [op, id] = called;
    const step = new Step<unknown>(this, op, id, "", rebuild);
    if (op === NO_OP) return this.made(step, scope);
    step.task = task;
    step.input = wire;
    step.inContext = new AsyncResource("flovyn.task");
    if (task.inline || task.isOfRun) this.worker.callers.set(id, step);
    this.worker.meet(task);
    return this.made(step, scope);
  }

  /** Gives the run away; the engine drops this copy of its code once that is durable. */
  handOff(agent: AnyAgent | string, input: unknown, options: HandoffOptions, thread: string): Child<unknown> {
    const { conversation = true, completion = "wait_for_child", ...rest } = options;
    const shared = conversation ? ({ sharedContext: "read_only" } as const) : {};
    // What is no completion is refused in words; null would start a child that is waited for.
    const child = this.spawn(agent, input, { ...rest, ...shared }, thread, String(completion));
    child.heard = true;
    return child;
  }

  /** Starts a child: takes its slot now, and is born with the next commit. */
  spawn(
    agent: AnyAgent | string,
    input: unknown,
    options: SpawnOptions,
    thread: string,
    handOff?: string,
  ): Child<unknown> {
    const scope = this.check();
    if (typeof agent !== "string" && !isA(agent, Agent)) {
      const call = handOff === undefined ? "spawnAgent" : "handoffToAgent";
      throw new InvalidArgument(`${call} takes what agent(…) gave, or a kind`);
    }
    const declared = typeof agent === "string" ? undefined : agent;
    declared?.checkTaken(input);
    const { timeoutMs = declared?.options.timeoutMs, budget, sharedContext, mode, ...rest } = options;
    rest.queue = queueOf(mode, rest.queue, handOff === undefined ? "spawnAgent" : "handoffToAgent");
    const text = (value: unknown) => (value === undefined ? undefined : json(value));
    const settings = { ...rest, timeoutMs, budget: text(budget), sharedContext: text(sharedContext), thread, handOff };
    const wire = encode(declared === undefined ? input : declared.own.dump(input));
    const kind = declared?.kind ?? (agent as string);
    const [op, id] = this.session.callChild(kind, wire, settings, scope.once);
    if (declared !== undefined && rest.queue === undefined) this.worker.meetAgent(declared);
    const rebuild = declared?.results.arePlain === false ? (value: unknown) => declared.results.read(value) : undefined;
    const child = new Child<unknown>(this, op, id, kind, rebuild);
    child.hasId = options.id !== undefined;
    child.heard = options.onParentEnd === "detach";
    this.made(child, scope);
    return child;
  }

  /** The step of an op that was just called. */
  step<R>(op: number, scope: Scope, what = "", id = "", rebuild?: (value: unknown) => unknown): Step<R> {
    return this.made(new Step<R>(this, op, id, what, rebuild), scope);
  }

  /** Knows the step of an op that was just called. */
  made<R>(step: Step<R>, scope: Scope): Step<R> {
    if (this.sealed) return step;
    if (step.op === NO_OP) {
      this.session = this.own;
      this.stir();
      return step;
    }
    this.untold?.acts();
    step.made = new Error();
    this.steps.set(step.op, step as Step<unknown>);
    scope.group?.add(step as Step<unknown>);
    this.stir();
    return step;
  }

  /** Notes a call that has no outcome. */
  touched(): void {
    if (this.sealed) return;
    this.session = this.own;
    this.untold?.acts();
    this.stir();
  }

  /** Notes that something waits for the code to be quiet. */
  awaitQuiet(): void {
    if (!this.sealed) this.stir();
  }

  /** Registers an await with the engine; in a copy that was put away it never ends. */
  beginAwait(step: Step<unknown>): void {
    if (this.sealed) return;
    if (step.op === NO_OP || (this.untold?.isDue === true && step.op !== CHECKPOINT_OP)) {
      const error = new Cancelled("the run was asked to stop");
      this.untold?.raises(error, false);
      this.stir();
      throw error;
    }
    this.untold?.acts();
    if (step.op !== CHECKPOINT_OP) {
      try {
        this.own.awaitOp(step.op);
      } catch (error) {
        if (!isA(error, Suspended)) throw error;
        this.stand();
        return;
      }
    }
    this.steps.set(step.op, step);
    this.awaiting += 1;
    if (this.awaiting > 1) this.concurrent = true;
    this.stir();
  }

  /** Records that an await was given up. */
  giveUp(step: Step<unknown>): void {
    if (this.sealed) return;
    this.awaiting -= 1;
    this.worker.unwanted(step, new Cancelled("the run has given this task up"));
    this.act(this.own.abandon(step.op));
    this.stir();
  }

  /** Before a checkpoint: gives up what only looks for children that a later segment can join. */
  leaveChildren(): void {
    for (const step of this.steps.values()) if (step instanceof Child) step.leave();
  }

  /** Forgets the steps of the segment that a checkpoint ended. */
  saved(): void {
    for (const step of this.steps.values()) this.worker.forget(step);
    this.steps.clear();
  }

  // ── quiet ─────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Something may run now: look for quiet from here. */
  private stir(): void {
    this.refused = 0;
    this.stirred = true;
    if (!this.armed) this.arm();
  }

  private arm(): void {
    this.armed = true;
    onceQuiet(this);
  }

  /** @internal */
  look(): void {
    this.armed = false;
    if (this.sealed) return;
    if (this.stirred) {
      this.stirred = false;
      this.rounds = QUIET_ROUNDS;
    }
    this.rounds -= 1;
    if (this.rounds > 0) {
      this.arm();
      return;
    }
    if (this.untold?.quiet() === true) {
      this.stir();
      return;
    }
    this.act(this.own.settle(this.concurrent, outside(this)));
  }

  /** Notes an error that tells the code to stop; whether those who awaited it have gone on without it. */
  told(error: Cancelled, kept: boolean): void {
    this.untold ??= new Untold();
    this.untold.raises(error, kept);
  }

  /** Notes an error that tells the code to stop because it has asked. */
  hears(error: Cancelled): void {
    if (this.agent.options.cancellable !== false) this.told(error, false);
  }

  // ── what the engine asks ──────────────────────────────────────────────────────────────────────────────────────

  /** Takes what the engine asks; a run whose outcomes cannot be read fails with that. */
  take(): void {
    this.tell(
      () => this.own.takeEffects(),
      (error) => this.failed(error),
    );
  }

  /** Carries out what the engine asks. */
  act(effects: Effects): void {
    if (effects === null) return;
    const putAway = effects.at(-4) === EffectCode.Close && effects.at(-2) !== "finished";
    for (let at = 0; at < effects.length; at += 4) {
      const op = effects[at + 1] as number;
      switch (effects[at]) {
        case EffectCode.Deliver:
          this.deliver(op, effects[at + 2] as number, effects[at + 3]);
          break;
        case EffectCode.Start:
          this.startAttempt(op, effects[at + 2] as number, effects[at + 3] as string);
          break;
        case EffectCode.CancelTask:
          // A copy that is put away stops its attempts itself, and tells them why.
          if (!putAway) this.stopAttempt(op);
          break;
        case EffectCode.Ask:
          this.stir();
          break;
        case EffectCode.Warn:
          warned(this.agent.kind, this.own.executionId, String(effects[at + 2]));
          break;
        case EffectCode.Close:
          if (effects[at + 2] === "finished" && effects[at + 3] !== "PAUSED") this.leave();
          this.tellClose(effects[at + 2], effects[at + 3]);
          this.drop();
          return;
      }
    }
  }

  private tellClose(reason: unknown, detail: unknown): void {
    if (reason === "lost") lost(this.agent.kind, this.own.executionId, String(detail));
    else if (reason === "finished" && detail === "PAUSED") this.worker.tellPaused(this.own.executionId);
  }

  private deliver(op: number, tag: number, value: unknown): void {
    const step = this.steps.get(op);
    if (step === undefined) return;
    this.steps.delete(op);
    this.awaiting -= 1;
    step.deliver(tag, value);
    if (step.id !== "") this.worker.unwanted(step, step.failure);
    this.stir();
  }

  private stopAttempt(op: number): void {
    const running = this.attempts.get(op);
    this.attempts.delete(op);
    running?.ask(new Cancelled("the run wants this attempt to stop"));
  }

  private startAttempt(op: number, attempt: number, id: string): void {
    const step = this.steps.get(op);
    const { task, inContext } = step ?? {};
    if (step === undefined || task === undefined || inContext === undefined) {
      const failure = { code: "TaskFailed", errorType: "LookupError", message: "nothing here runs this task" };
      this.act(this.own.taskFailed(op, attempt, failure, false));
      return;
    }
    const stop = new Stop();
    this.attempts.set(op, stop);
    const ended = (report: () => Effects): void => {
      if (this.sealed || this.attempts.get(op) !== stop) return;
      this.attempts.delete(op);
      this.tell(report, (error) => this.own.taskFailed(op, attempt, ...failureOf(unwritable(error))));
    };
    const failed = (error: unknown): void => {
      ended(() => {
        step.cause = error;
        const failure = failureOf(error, task.retryIf);
        attemptFailed(task.kind, attempt, task.retries, error, failure[1]);
        return this.own.taskFailed(op, attempt, ...failure);
      });
    };
    const completed = (output: unknown): void => {
      let wire: Wire;
      try {
        wire = task.results.written(output);
      } catch (error) {
        failed(error);
        return;
      }
      ended(() => this.own.taskCompleted(op, attempt, wire));
    };
    try {
      const ctx = new TaskContext(id, attempt, stop, new InlineLink(this.own, op, attempt));
      const fn = this.worker.functionOf(task.kind, task.fn, id);
      const input = decode(step.input);
      inContext.runInAsyncScope(() => task.execute(fn, input, ctx)).then(completed, failed);
    } catch (error) {
      failed(error);
    }
  }
}
