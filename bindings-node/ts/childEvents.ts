// What the runs of a family tell each other: messages, requests, and what an agent hears of a child.

import type { Activation } from "./activation.js";
import { Child } from "./child.js";
import { ChildFailed, type FailureFacts, InvalidArgument, isA } from "./errors.js";
import type { Delivery } from "./handle.js";
import { encode } from "./serde.js";
import { Step } from "./step.js";

/** What `ctx.spawnAgent` has given, or its id. */
export type AnyChild<R = unknown> = Child<R> | string;

/** What an agent hears of a child: what the child tells it, and at last how it ended. */
export type ChildEvent<R = unknown> =
  /** It has told something by `ctx.signalParent`. */
  | { readonly type: "signal"; readonly name: string; readonly payload: unknown }
  | ChildRequest
  /** It has returned. */
  | { readonly type: "completed"; readonly output: R }
  /** It has failed. */
  | { readonly type: "failed"; readonly error: ChildFailed }
  /** It was cancelled; `output` is what it kept. */
  | { readonly type: "cancelled"; readonly output: unknown }
  | ChildOverrun;

/** A child was asked to stop, since its budget had no room for what it wanted to do. */
export interface ChildOverrun {
  readonly type: "budget_exceeded";
  /** What it and all runs below it have used. */
  readonly used: { readonly tokens: number; readonly costMicros: number; readonly calls: number };
  /** The budget that had no room for more: its own, or the one that it drew from. */
  readonly limit: { readonly maxTokens?: number; readonly maxCostMicros?: number; readonly maxCalls?: number };
  /** What it kept. */
  readonly output: unknown;
}

/** A child asks by `ctx.requestFromParent`, and waits for the answer. */
export interface ChildRequest {
  readonly type: "request";
  readonly name: string;
  readonly payload: unknown;
  /** The id of the child. */
  readonly child: string;
  /** Its own id: with both, `ctx.respond` answers it after a checkpoint. */
  readonly id: string;
  /**
   * Answers it, once; await it to know that the answer is durable. It rejects with `AlreadyExists` where the request was
   * answered before, with another value.
   */
  respond(value?: unknown): Step<void>;
}

/** What the engine tells of a child. */
type Told = [
  kind: string,
  name: string,
  child: string,
  request: string,
  failure: string | undefined,
  overrun: string | undefined,
  value: unknown,
];

/** A wait for what a child tells next. */
class News<R> extends Step<R> {
  protected override get late(): string {
    return `nothing came of child "${this.what}" in time`;
  }
}

/** A wait for the answer to a request. */
class Asked<R> extends Step<R> {
  protected override get late(): string {
    return `no answer to the request "${this.what}" came in time`;
  }
}

function named(child: unknown, call: string): [id: string, kind: string] {
  if (isA(child, Child)) return [child.id, child.kind];
  if (typeof child === "string") return [child, child];
  throw new InvalidArgument(`${call} takes what spawnAgent has given, or the id of a child`);
}

/** Tells the parent something. */
export function toParent(activation: Activation, name: string, payload: unknown): Step<void> {
  const scope = activation.check();
  return activation.step<void>(activation.session.callTell(name, encode(payload), scope.once), scope, name);
}

/** Asks the parent. */
export function asked<R>(activation: Activation, name: string, payload: unknown, timeoutMs?: number): Step<R> {
  const scope = activation.check();
  const op = activation.session.callRequest(name, encode(payload), timeoutMs, scope.once);
  return activation.made(new Asked<R>(activation, op, "", name), scope);
}

/** Sends a child a signal. */
export function toChild(
  activation: Activation,
  child: AnyChild,
  name: string,
  payload: unknown,
  delivery: Delivery = "next_step",
): Step<void> {
  const scope = activation.check();
  const [to] = named(child, "signalChild");
  const op = activation.session.callSend(to, name, encode(payload), delivery, scope.once);
  return activation.step<void>(op, scope, name);
}

/** Asks a child to stop. */
export function stopped(
  activation: Activation,
  child: AnyChild,
  mode: "graceful" | "hard" = "graceful",
  timeoutMs?: number,
): Step<void> {
  const scope = activation.check();
  const [to] = named(child, "cancelChild");
  return activation.step<void>(activation.session.callStop(to, mode, timeoutMs, scope.once), scope, "cancel");
}

/** Waits for what a child tells next, or for its end. */
export function news<R>(activation: Activation, child: AnyChild<R>, timeoutMs?: number): Step<ChildEvent<R>> {
  const scope = activation.check();
  const [of, kind] = named(child, "waitForChildEvent");
  let output: ((value: unknown) => unknown) | undefined;
  if (isA(child, Child)) {
    child.heard = true;
    output = child.read;
  }

  const event = ([what, name, sender, request, failure, overrun, value]: Told): ChildEvent => {
    if (what === "signal") return { type: "signal", name, payload: value };
    if (what === "request") {
      const respond = (answer?: unknown): Step<void> => answered(activation, sender, request, answer);
      return { type: "request", name, payload: value, child: sender, id: request, respond };
    }
    if (what === "failed") {
      const facts = JSON.parse(failure ?? "{}") as FailureFacts;
      const { message, error_type: type, traceback } = facts;
      return { type: "failed", error: new ChildFailed(message, { kind, type, traceback }) };
    }
    if (what === "budget_exceeded") {
      const { used, limit } = JSON.parse(overrun ?? "{}") as Pick<ChildOverrun, "used" | "limit">;
      return { type: "budget_exceeded", used, limit, output: value };
    }
    if (what === "cancelled") return { type: "cancelled", output: value };
    return { type: "completed", output: output === undefined ? value : output(value) };
  };

  const op = activation.session.callChildEvent(of, timeoutMs, scope.once);
  return activation.made(new News<ChildEvent<R>>(activation, op, "", kind, (told) => event(told as Told)), scope);
}

/** Answers a request of a child. */
export function answered(activation: Activation, child: AnyChild, request: string, value: unknown): Step<void> {
  const scope = activation.check();
  const [to] = named(child, "respond");
  const op = activation.session.callAnswer(to, request, encode(value), scope.once);
  return activation.step<void>(op, scope, "answer");
}
