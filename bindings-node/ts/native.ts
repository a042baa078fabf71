// The native half: conversion, and the bridge between the engine's threads and the event loop. Loads it, and declares it.

import { existsSync } from "node:fs";
import { join } from "node:path";

import { fromNative } from "./errors.js";

/** A value as it crosses: JSON text, raw bytes, or a blob. */
export type Wire = string | Buffer | NativeSource;

/** The end of a call is told to the hub under its token. */
type Call<A extends unknown[]> = (hub: NativeHub, token: number, ...args: A) => NativeAbort | void;

export interface NativeAbort {
  abort(): void;
}

export interface NativeSource {
  readonly size: number;
  read(offset: number, length?: number): Buffer;
  save(path: string): void;
}

export interface NativeHub {
  /** Token, whether it worked, value or error text, and so on. */
  drain(): unknown[];
}

export interface StartSettings {
  id?: string;
  queue?: string;
  metadata?: Record<string, string>;
  maxSteps?: number;
  maxTotalSteps?: number;
  maxTail?: number;
  budget?: string;
  timeoutMs?: number;
  priority?: number;
  concurrencyKey?: string;
  concurrencyLimit?: number;
  delayMs?: number;
  traceparent?: string;
}

export interface NativeRuntime {
  readonly url: string;
  start: Call<[kind: string, input: Wire, settings: StartSettings]>;
  handle: Call<[id: string]>;
  ask: Call<[question: string]>;
  backup: Call<[path: string]>;
  close: Call<[withinMs: number]>;
  crashAt(n: number, how: string): void;
  commits(): number;
  ended: Call<[]>;
  bury: Call<[]>;
  journal: Call<[id: string]>;
}

export interface NativeStage {
  advance(ms: number): void;
  now(): number;
  passed: Call<[]>;
  life(): NativeRuntime;
}

export interface WorkerSettings {
  queue: string;
  maxAgents: number;
  maxTasks?: number;
  maxParked?: number;
  only?: string;
}

export type Activated =
  | [0, id: number, session: NativeSession, kind: string]
  | [1, id: number]
  | [2, id: number, ticket: NativeTicket, kind: string, input: Wire, task: string, attempt: number, reconcile: boolean]
  | [3, id: number];

export interface NativeFakeLlm {
  readonly url: string;
  readonly openaiUrl: string;
  readonly paid: number;
  requests(): string;
  close(): void;
}

export interface NativeWorker {
  serveAgent(
    kind: string,
    settings: {
      stateful: boolean;
      code?: string;
      onDivergence: string;
      onError?: string;
      cancellable: boolean;
      replayTimeoutMs?: number;
    },
  ): void;
  serveTask(kind: string): void;
  serveToolkit: Call<[runtime: NativeRuntime, descriptions: string[], replaces: boolean]>;
  toolkitTask(kind: string, queue: string): NativeTaskSpec | null;
  start: Call<[runtime: NativeRuntime, settings: WorkerSettings]>;
  poll(): Activated[];
  nudge(): void;
  evict(): void;
  close: Call<[graceMs: number]>;
}

export interface FailureDraft {
  code: string;
  errorType: string;
  message: string;
  traceback?: string;
}

export interface NativeTicket {
  readonly isCancelled: boolean;
  heartbeat(): void;
  progress(fraction: number, message: string): void;
  stream(kind: number, data: string): void;
  completed(output: Wire): void;
  failed(failure: FailureDraft, retryable: boolean, pauseMs?: number): void;
  cancelled(): void;
  notDone(): void;
  released(): void;
}

export interface NativeHandle {
  readonly id: string;
  readonly key: string | null;
  describe: Call<[]>;
  status: Call<[]>;
  outcome: Call<[timeoutMs?: number]>;
  outcomeOrWait: Call<[]>;
  late: Call<[limitMs: number]>;
  stream(after?: string): NativeWatching;
  signal: Call<[name: string, value: Wire, delivery: string, idempotencyKey?: string]>;
  cancel: Call<[mode: string, timeoutMs?: number]>;
  resume: Call<[settings: { retry: boolean; maxSteps?: number; maxTail?: number; budget?: string }, message?: Wire]>;
  fork: Call<[place: { checkpoint?: number; entry?: string; op?: string; id?: string }, state?: Wire, input?: Wire]>;
  resolve: Call<[op: string, result?: Wire, failure?: FailureDraft]>;
  resolveDivergence: Call<[decision: string]>;
  messages: Call<[]>;
  value: Call<[what: string, checkpoint?: number]>;
  entries: Call<[limit: number, after?: string]>;
  checkpoints: Call<[limit: number, after?: string]>;
  tasks: Call<[limit: number, after?: string]>;
}

export interface NativeWatching {
  next: Call<[]>;
  nextSent: Call<[]>;
}

export interface TaskSettings {
  retries: number;
  retry?: { delayMs?: number; factor?: number; maxDelayMs?: number; jitter?: number };
  timeoutMs?: number;
  heartbeatTimeoutMs?: number;
  deadlineMs?: number;
  maxLosses?: number;
  noRetry: string[];
  queue?: string;
  sideEffects: string;
  detached: boolean;
  interruptible: boolean;
  inPlace: boolean;
  inline: boolean;
  aliases: string[];
}

export interface NativeTaskSpec {
  readonly queue: string;
}

/** Four places for each effect: its number, and three that depend on it. */
export type Effects = unknown[] | null;

export interface NativeSession {
  readonly executionId: string;
  readonly orgId: string;
  readonly key: string | null;
  readonly isCancelRequested: boolean;
  load: Call<[]>;
  callTask(spec: NativeTaskSpec, input: Wire, key?: string, once?: string): [op: number, task: string];
  callEntry(
    draft: { role: string; entryType: string; turnId?: string; metadata?: string; thread: string },
    content: Wire,
    once?: string,
  ): string;
  callSignal(name: string, timeoutMs?: number, once?: string): number;
  callTimer(ms: number, once?: string): number;
  callAttach(task: string, once?: string): number;
  callUsage(
    model: string,
    usage: {
      inputTokens: number;
      outputTokens: number;
      cacheReadTokens: number;
      cacheWriteTokens: number;
      costMicros?: number;
    },
    once?: string,
  ): void;
  callStep(once?: string): number;
  callFlush(once?: string): number;
  onceBegin(name: string, input: Wire): [how: number, value: unknown];
  onceEnd(name: string, input: Wire, value: Wire): number;
  checkpoint(state: Wire, metadata: string): number;
  hasSignal(name: string, once?: string): boolean;
  drainSignals(name: string, turn: boolean, once?: string): Wire[];
  checkCancellation(once?: string): boolean;
  remainingBudget(once?: string): Wire | null;
  time(): number;
  randomNumber(): number;
  random(): Buffer;
  openThread(thread: string): void;
  leaf(thread: string): string | null;
  branch: Call<[thread: string]>;
  branchNow(thread: string): unknown[][];
  taskProgress(op: number, attempt: number, fraction: number, message: string): void;
  stream(kind: number, data: string, op?: number, attempt?: number): void;
  awaitOp(op: number): void;
  abandon(op: number): Effects;
  settle(concurrent: boolean, outside: number): Effects;
  takeEffects(): Effects;
  completed(output: Wire): Effects;
  failed(failure: FailureDraft, unfit: boolean): Effects;
  cancelled(): Effects;
  taskCompleted(op: number, attempt: number, output: Wire): Effects;
  taskFailed(op: number, attempt: number, failure: FailureDraft, retryable: boolean, pauseMs?: number): Effects;
  taskHeartbeat(op: number): void;
}

interface Native {
  version(): string;
  cli(words: string[]): number;
  Hub: new (ring: () => void) => NativeHub;
  Runtime: { open(hub: NativeHub, token: number, url?: string): void };
  Stage: new () => NativeStage;
  Worker: new (runtime: NativeRuntime, hub: NativeHub) => NativeWorker;
  TaskSpec: new (kind: string, settings: TaskSettings) => NativeTaskSpec;
  FakeLlm: new (script: string) => NativeFakeLlm;
  toolkitTask(kind: string, queue: string): NativeTaskSpec | null;
  askModel(hub: NativeHub, token: number, description: string, input: string): NativeAbort;
  Source: { fromPath(path: string): NativeSource; fromBytes(bytes: Buffer): NativeSource };
}

/** The name of this platform's addon, as npm's packages of it are named. */
function platform(): string {
  if (process.platform !== "linux") return `${process.platform}-${process.arch}`;
  const header = (process.report?.getReport() as { header?: { glibcVersionRuntime?: string } } | undefined)?.header;
  return `linux-${process.arch}-${header?.glibcVersionRuntime === undefined ? "musl" : "gnu"}`;
}

function load(): Native {
  const given = process.env["FLOVYN_NATIVE"];
  const built = join(__dirname, "..", "native", `flovyn.${platform()}.node`);
  if (given !== undefined || existsSync(built)) return require(given ?? built) as Native;
  const name = `@flovyn/sdk-${platform()}`;
  try {
    return require(name) as Native;
  } catch (error) {
    throw new Error(
      `@flovyn/sdk has no native part for ${platform()}: ${name} is not installed. Where optional dependencies were left ` +
        `out, install it beside this package, of the same version`,
      { cause: error },
    );
  }
}

/** Does something natively; what it throws is thrown as our error. */
export function natively<T>(ask: () => T): T {
  try {
    return ask();
  } catch (error) {
    throw fromNative(error);
  }
}

/** Makes every method of an object throw our errors instead of the text that carries them. */
function translate(owner: object): void {
  for (const [name, known] of Object.entries(Object.getOwnPropertyDescriptors(owner))) {
    const original: unknown = known.value;
    if (name === "constructor" || typeof original !== "function") continue;
    Object.defineProperty(owner, name, {
      ...known,
      value: function (this: unknown, ...args: unknown[]): unknown {
        try {
          return Reflect.apply(original, this, args);
        } catch (error) {
          throw fromNative(error);
        }
      },
    });
  }
}

export const native: Native = load();
for (const made of Object.values(native) as { prototype?: object }[]) {
  if (made.prototype !== undefined && Object.getOwnPropertyNames(made.prototype).length > 1) {
    translate(made.prototype);
  }
}
