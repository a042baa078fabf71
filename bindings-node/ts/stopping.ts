// How code is made to stop that does not hear it: a `Cancelled` that nobody reads, a `Suspended` that is swallowed.
//
// The engine tells the awaits that are open that the run shall stop, once. What becomes of it on its way through promises is
// not the engine's: `Promise.race` keeps what comes late to itself, `Promise.allSettled` throws nothing. So it is kept here
// where each error went. All of it follows from what the code does after the journaled moment in which the engine told it,
// so replay comes to the same.

import type { Activation } from "./activation.js";
import { OnceCode } from "./codes.js";
import { Cancelled, isA } from "./errors.js";
import { hub } from "./hub.js";
import type { NativeHub, NativeSession } from "./native.js";
import { scopes } from "./scope.js";
import { Step } from "./step.js";

// ── Cancelled ─────────────────────────────────────────────────────────────────────────────────────────────────────

/** Where an error is: on its way, kept by what nobody reads any more, or perhaps so. */
type Place = "open" | "kept" | "left";

/** The errors by which the code of a run is told to stop, and whether it has heard of any. */
export class Untold {
  private readonly places: { error: unknown; place: Place }[] = [];
  private readonly listings: { errors: readonly unknown[]; end: (told: unknown) => void }[] = [];
  /** Whether the code that the errors have reached still runs. */
  private spreading = true;
  /** Whether the code has done anything since, which may be tidying up. */
  private active = false;
  private due = false;

  /** How many errors any code may have heard of: not one that was raised in this very run of it. */
  heard = 0;

  /** Notes an error that is raised now. */
  raises(error: Cancelled, kept: boolean): void {
    this.due = false;
    const count = this.places.push({ error, place: kept ? "kept" : "open" });
    queueMicrotask(() => void (this.heard = count));
  }

  /** Notes that the code calls or awaits something; an await of what it calls raises what is due before. */
  acts(): void {
    this.due ||= this.isLost;
    this.active = true;
  }

  /** Notes that the code is quiet; true if that lets more of it run. */
  quiet(): boolean {
    const listings = this.listings.splice(0);
    if (listings.length === 0) {
      this.spreading = false;
      return false;
    }
    const listed = new Set(listings.flatMap(({ errors }) => errors));
    const isOnlyThere = this.places.every(({ error, place }) => place !== "open" || listed.has(error));
    for (const { errors, end } of listings) {
      for (const error of errors) this.puts(error, isOnlyThere ? "kept" : "left");
      const [told] = errors;
      if (isOnlyThere) this.passes(told);
      end(isOnlyThere ? told : undefined);
    }
    return true;
  }

  /**
   * Those of the results of an await that are errors raised since it began, when `before` of them may have been heard of:
   * nothing throws these.
   */
  since(results: readonly PromiseSettledResult<unknown>[], before: number): unknown[] {
    const raised = this.places.slice(before).map(({ error }) => error);
    return results.flatMap((each) => (each.status === "rejected" && raised.includes(each.reason) ? [each.reason] : []));
  }

  /** Ends such an await once all errors are where they go: with one of them if nobody has heard of any else. */
  lists(errors: readonly unknown[], end: (told: unknown) => void): void {
    this.listings.push({ errors, end });
  }

  /** Notes that an error is thrown on by what joins promises. */
  passes(error: unknown): void {
    for (const each of this.places) if (each.error === error) each.place = "open";
  }

  /** Notes that nobody reads an error any more: `Promise.any` waits for the others, and one of them has won. */
  keeps(error: unknown): void {
    this.puts(error, "kept");
  }

  /** Notes that an error came to a promise that had its outcome already. Whether others read that promise is not known. */
  leaves(error: unknown): void {
    this.puts(error, "left");
  }

  private puts(error: unknown, place: Place): void {
    for (const each of this.places) if (each.error === error && each.place === "open") each.place = place;
  }

  /** Whether the next await shall raise it. */
  get isDue(): boolean {
    return this.due || this.isLost;
  }

  /**
   * Whether none of the errors was read by anybody. What runs as they spread may have heard of them, and what has done
   * something since may be tidying up.
   */
  private get isLost(): boolean {
    const lost = ({ place }: { place: Place }): boolean => place === "kept" || (place === "left" && !this.active);
    return !this.spreading && this.places.every(lost);
  }
}

type Combine = (members: Iterable<unknown>) => Promise<unknown>;
type Name = "all" | "allSettled" | "any" | "race";
type End = (activation: Activation, joined: Promise<unknown>, members: Members, before: number) => Promise<unknown>;

/** What is joined: as it was given, and as promises. */
interface Members {
  readonly given: readonly unknown[];
  readonly promises: readonly Promise<unknown>[];
}

const ENDS: Readonly<Record<Name, End>> = { all: failing, allSettled: settled, any: trying, race: winning };

let users = 0;
let replaced: { name: Name; original: unknown; put: unknown }[] = [];

/** Follows from now on what becomes of `Cancelled` where agents join promises. */
export function follow(): void {
  users += 1;
  if (users > 1) return;
  for (const name of Object.keys(ENDS) as Name[]) {
    const original = Promise[name] as Combine;
    const put = joining(name, original);
    // Where the process has frozen it, nothing is followed.
    if (Reflect.set(Promise, name, put)) replaced.push({ name, original, put });
  }
}

/** Leaves the process as it was found, once nobody serves agents any more. */
export function unfollow(): void {
  users -= 1;
  if (users > 0) return;
  for (const { name, original, put } of replaced) {
    if (Promise[name] === put) Reflect.set(Promise, name, original);
  }
  replaced = [];
}

function joining(name: Name, original: Combine): unknown {
  const join = function (this: unknown, members: Iterable<unknown>): Promise<unknown> {
    const activation = scopes.getStore()?.activation;
    if (activation == null || this !== Promise) return Reflect.apply(original, this, [members]);
    let given: unknown[];
    try {
      given = [...members];
    } catch (error) {
      return Promise.reject(error as Error);
    }
    const promises = given.map((each) => Promise.resolve(each));
    const before = activation.untold?.heard ?? 0;
    return ENDS[name](activation, Reflect.apply(original, Promise, [promises]), { given, promises }, before);
  };
  return Object.defineProperties(join, { name: { value: name }, length: { value: 1 } });
}

/** `all` ends with the first failure, and keeps the others to itself. */
function failing(activation: Activation, joined: Promise<unknown>, members: Members): Promise<unknown> {
  return joined.catch((error: unknown) => {
    activation.untold?.passes(error);
    leave(activation, members, error);
    throw error;
  });
}

/** `race` ends with one of its promises, and keeps to itself what comes of the others. */
function winning(activation: Activation, joined: Promise<unknown>, members: Members): Promise<unknown> {
  const ended = joined.then((value) => {
    leave(activation, members, undefined);
    return value;
  });
  return failing(activation, ended, members);
}

/** None of `any` has won, because the run shall stop: then it throws that. */
function trying(activation: Activation, joined: Promise<unknown>, members: Members): Promise<unknown> {
  const ended = joined.catch((error: unknown) => {
    const errors: unknown[] = isA(error, AggregateError) ? error.errors : [];
    throw errors.find((each) => isA(each, Cancelled)) ?? error;
  });
  return winning(activation, ended, members);
}

/** Notes promises whose outcome is read by nobody who has joined them. */
function leave(activation: Activation, { given, promises }: Members, told: unknown): void {
  promises.forEach((promise, at) => {
    const member = given[at];
    if (member instanceof Step) {
      const left = member.isLeft() && member.failure !== told;
      if (left && isA(member.failure, Cancelled)) activation.untold?.keeps(member.failure);
    } else if (!followed.has(promise)) {
      followed.add(promise);
      promise.then(undefined, (error: unknown) => {
        if (error !== told && isA(error, Cancelled)) activation.untold?.leaves(error);
      });
    }
  });
}

const followed = new WeakSet<Promise<unknown>>();

/** `allSettled` throws nothing: where its results are all that hears of the errors, it throws one. */
function settled(
  activation: Activation,
  joined: Promise<unknown>,
  _: Members,
  before: number,
): Promise<unknown> {
  return joined.then((results) => {
    const { untold } = activation;
    const errors = untold?.since(results as PromiseSettledResult<unknown>[], before) ?? [];
    if (errors.length === 0) return results;
    return new Promise((resolve, reject) => {
      untold?.lists(errors, (told) => (told === undefined ? resolve(results) : reject(told as Error)));
      activation.awaitQuiet();
    });
  });
}

/** The op of a call that is not made, because its await shall raise `Cancelled`. */
export const NO_OP = 0xffff_fffe;

const noOp = (): number => NO_OP;

// Generated by `make gen`: calls that are not made.
/** Calls whose step throws, or never ends. */
const STEPS: Readonly<Record<string, unknown>> = {
  callTell: noOp,
  callRequest: noOp,
  callSend: noOp,
  callAnswer: noOp,
  callStop: noOp,
  callChildEvent: noOp,
  callTask: () => [NO_OP, ""],
  callSignal: noOp,
  callTimer: noOp,
  callChild: () => [NO_OP, ""],
  callAttach: noOp,
  callStep: noOp,
  callFlush: noOp,
  callPersist: noOp,
};

/** What calls answer that make no step. */
const ANSWERS: Readonly<Record<string, unknown>> = {
  callEntry: "00000000-0000-0000-0000-000000000000",
  callUsage: undefined,
  hasSignal: false,
  drainSignals: [],
  checkCancellation: false,
  remainingBudget: null,
};
// End of what is generated.

/**
 * The session for one call whose await shall raise `Cancelled`: the journal is to know nothing of it, for what hears in time
 * does not call it.
 */
export function unmade(session: NativeSession): NativeSession {
  return instead(session, STEPS);
}

function instead(session: NativeSession, own: Readonly<Record<string, unknown>>): NativeSession {
  return new Proxy(session, {
    get(target, name): unknown {
      const other = own[name as string];
      if (other !== undefined) return other;
      const known: unknown = Reflect.get(target, name, target);
      return typeof known === "function" ? known.bind(target) : known;
    },
  });
}

// ── Suspended ─────────────────────────────────────────────────────────────────────────────────────────────────────

/** How often the code of a copy that was put away may go on after `Suspended`: a `finally` or two may make a call. */
export const PATIENCE = 3;

/**
 * The session of a copy that was put away. What can be awaited never ends. Other calls are refused while there is patience,
 * and then do nothing, so that the code comes to an await: a loop that catches every `Suspended` would spin, and nothing
 * else of the process would run.
 */
export function nowhere(session: NativeSession, refuse: () => void): NativeSession {
  const refusing =
    (answer: unknown) =>
    (): unknown => {
      refuse();
      return answer;
    };
  const answers = Object.entries(ANSWERS).map(([name, answer]) => [name, refusing(answer)]);
  const never = (_: NativeHub, token: number): void => hub.dismiss(token);
  return instead(session, {
    ...STEPS,
    ...(Object.fromEntries(answers) as Record<string, unknown>),
    abandon: () => null,
    branch: never,
    checkpoint: noOp,
    // What these give is awaited.
    drainSignals: () => new Promise(() => undefined),
    hasSignal: () => new Promise(() => undefined),
    onceBegin: () => [OnceCode.Recorded, NO_OP],
    onceEnd: noOp,
  });
}
