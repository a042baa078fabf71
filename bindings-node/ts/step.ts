// What an op of an agent gives back: a promise that takes its place in the journal when it is made.

import type { AsyncResource } from "node:async_hooks";
import type { Activation } from "./activation.js";
import { OutcomeCode } from "./codes.js";
import {
  Cancelled,
  type FailureFacts,
  fromText,
  messageOf,
  OutsideAgent,
  SignalTimeout,
  taskFailed,
} from "./errors.js";
import type { NativeTaskSpec, Wire } from "./native.js";
import type { Results } from "./results.js";
import type { RetryIf } from "./retry.js";
import { decode } from "./serde.js";

/** What an inline attempt of a step needs. */
export interface StepTask {
  readonly kind: string;
  readonly spec: NativeTaskSpec;
  readonly fn: (input: never, ctx: never) => unknown;
  readonly detached: boolean;
  readonly retries: number;
  readonly results: Results;
  readonly retryIf: RetryIf | undefined;
  execute(fn: (input: never, ctx: never) => unknown, input: unknown, ctx: unknown): Promise<unknown>;
}

type Outcome = { ok: true; value: unknown } | { ok: false; error: unknown };

/**
 * One op of an agent on its way to its outcome: a promise. It takes its place in the journal when it is made, awaited or
 * not; awaiting it again gives the same outcome, unless a `select` has given it up: then it rejects with
 * `InvalidTransition`.
 */
export class Step<R> implements Promise<R> {
  readonly [Symbol.toStringTag] = "Step";
  /** The UUID of the task behind it, its idempotency key; empty where there is none. */
  readonly id: string;
  /** @internal */
  task: StepTask | undefined;
  /** @internal */
  input: Wire = "null";
  /** @internal The context to run an attempt in. */
  inContext: AsyncResource | undefined;
  /** @internal Where the code calls it. */
  made: Error | undefined;
  /** @internal What its last attempt in this process threw. */
  cause: unknown;
  /** @internal */
  protected readers = 0;
  private left = 0;
  private readonly activation: Activation | undefined;
  /** @internal */
  readonly op: number;
  /** @internal */
  protected readonly what: string;
  private promise: Promise<R> | undefined;
  private resolve: ((value: R) => void) | undefined;
  private reject: ((error: unknown) => void) | undefined;
  private outcome: Outcome | undefined;
  /** @internal */
  protected readonly rebuild: ((value: unknown) => unknown) | undefined;

  /** @internal */
  constructor(
    activation: Activation | undefined,
    op: number,
    id = "",
    what = "",
    rebuild?: (value: unknown) => unknown,
  ) {
    this.activation = activation;
    this.op = op;
    this.id = id;
    this.what = what;
    this.rebuild = rebuild;
  }

  /** @internal A task called outside an agent: it just runs. */
  static local<R>(running: Promise<R>): Step<R> {
    const step = new Step<R>(undefined, 0);
    step.promise = running;
    return step;
  }

  /** The name by which `ctx.attach` joins a detached task again. */
  get ref(): string {
    if (this.activation === undefined) throw new OutsideAgent("a task called outside an agent has no ref");
    return this.id;
  }

  then<A = R, B = never>(
    fulfilled?: ((value: R) => A | PromiseLike<A>) | null,
    // eslint-disable-next-line @typescript-eslint/no-explicit-any
    rejected?: ((reason: any) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.readers += 1;
    return this.awaited().then(fulfilled, rejected);
  }

  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  catch<B = never>(rejected?: ((reason: any) => B | PromiseLike<B>) | null): Promise<R | B> {
    return this.then(undefined, rejected);
  }

  finally(ended?: (() => void) | null): Promise<R> {
    this.readers += 1;
    return this.awaited().finally(ended);
  }

  /** @internal Says that nothing came in time. */
  protected get late(): string {
    return `no signal "${this.what}" came in time`;
  }

  /** @internal Takes the outcome and wakes whoever awaits it; the engine calls this, once. */
  deliver(code: number, value: unknown): void {
    let outcome: Outcome;
    if (code === OutcomeCode.Value) {
      try {
        const decoded = decode(value);
        outcome = { ok: true, value: this.rebuild === undefined ? decoded : this.rebuild(decoded) };
      } catch (error) {
        outcome = { ok: false, error };
      }
    } else if (code === OutcomeCode.Event) {
      try {
        const parts = value as unknown[];
        const told = [...parts.slice(0, -1), decode(parts.at(-1))];
        outcome = { ok: true, value: this.rebuild === undefined ? told : this.rebuild(told) };
      } catch (error) {
        outcome = { ok: false, error };
      }
    } else if (code === OutcomeCode.Failed) {
      const facts = JSON.parse(value as string) as FailureFacts;
      // The last attempt may have ended elsewhere, or by its time limit: then what this process knows is not the cause.
      const known = this.cause !== undefined && messageOf(this.cause) === facts.message;
      outcome = { ok: false, error: taskFailed(facts, known ? this.cause : undefined, this.made) };
    } else if (code === OutcomeCode.TimedOut) {
      outcome = { ok: false, error: new SignalTimeout(this.late) };
    } else if (code === OutcomeCode.Unreadable) {
      outcome = { ok: false, error: fromText(value as string) };
    } else {
      const error = new Cancelled("the run was asked to stop");
      this.activation?.told(error, this.isUnread);
      outcome = { ok: false, error };
    }
    this.outcome = outcome;
    this.task = undefined;
    this.inContext = undefined;
    this.made = undefined;
    this.cause = undefined;
    this.end(outcome);
  }

  /** @internal One of those who await it goes on without it, as `Promise.race` does; whether that was the last. */
  isLeft(): boolean {
    this.left += 1;
    return this.isUnread;
  }

  private get isUnread(): boolean {
    return this.readers > 0 && this.readers <= this.left;
  }

  /** @internal Whether anybody has awaited it. */
  get isAwaited(): boolean {
    return this.readers > 0;
  }

  /** @internal What it waits for. */
  get named(): string {
    return this.what === "" ? "a step of its context" : `signal "${this.what}"`;
  }

  /** @internal Whether what it waits for could have been called so that it outlives the run. */
  get canOutlive(): boolean {
    return true;
  }

  /** @internal Whether the code minds what becomes of it, though nobody awaits it. */
  get isLookedAfter(): boolean {
    return false;
  }

  /** @internal What it has failed with. */
  get failure(): unknown {
    return this.outcome?.ok === false ? this.outcome.error : undefined;
  }

  /** @internal Stops awaiting it; true if somebody did. */
  giveUp(): boolean {
    if (this.outcome !== undefined || this.promise === undefined || this.activation === undefined) return false;
    this.promise = this.resolve = this.reject = undefined;
    this.activation.giveUp(this as unknown as Step<unknown>);
    return true;
  }

  private awaited(): Promise<R> {
    if (this.promise === undefined) {
      this.promise = new Promise<R>((resolve, reject) => {
        this.resolve = resolve;
        this.reject = reject;
      });
      if (this.outcome !== undefined) this.end(this.outcome);
      else {
        try {
          this.activation?.beginAwait(this as unknown as Step<unknown>);
        } catch (error) {
          this.outcome = { ok: false, error };
          this.end(this.outcome);
        }
      }
    }
    return this.promise;
  }

  private end(outcome: Outcome): void {
    if (outcome.ok) this.resolve?.(outcome.value as R);
    else this.reject?.(outcome.error);
    this.resolve = this.reject = undefined;
  }
}
