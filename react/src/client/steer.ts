// What people do to a run: decide, answer, say something, stop it, let it go on.
import { runPath } from "./client.js";
import type { FlovynClient } from "./client.js";

/** What the built-in agent calls the signal that decides a call. */
export const APPROVAL = "approval";
/** What the built-in agent calls the signal that answers the questions of a server. */
export const INPUT = "input";
/** What the built-in agent calls the signal that says something to it. */
export const USER_MESSAGE = "userMessage";

/**
 * When a message is heard: before the next model call (`next_step`), when the model has nothing left to do (`next_turn`),
 * or at once, so that what is being written or run ends with what it has (`now`).
 */
export type Delivery = "next_step" | "next_turn" | "now";

/** Names a question: the id of the call it is about, and the hash of what is asked. */
export interface Asked {
  readonly id: string;
  readonly hash: string;
}

/** Says when a signal is heard, and what makes it one however often it is sent. */
export interface SignalOptions {
  readonly delivery?: Delivery | undefined;
  /** With a key the signal is sent once, however often it is asked for; another value under the key is refused (409). */
  readonly key?: string | undefined;
}

/** Sends a signal. */
export async function sendSignal(client: FlovynClient, run: string, name: string, value: unknown, options: SignalOptions = {}): Promise<void> {
  await client.post(`${runPath(run)}/signal`, { signalName: name, signalValue: value, delivery: options.delivery, idempotencyKey: options.key });
}

/** What a person says with an approval, beside yes. */
export interface ApprovalTerms {
  /** The arguments with which the call runs, in place of those that the model has written; it is told of them. */
  readonly arguments?: Readonly<Record<string, unknown>>;
  /** `run`: later calls of the run that are alike are not asked about. `once`, which is the default: this call alone. */
  readonly scope?: "once" | "run";
}

/** Decides whether a call may run. The key is that of the question, so the first decision stands and another one is refused. */
export function decide(client: FlovynClient, run: string, asked: Asked, approved: boolean, reason = "", terms: ApprovalTerms = {}): Promise<void> {
  const value = { id: asked.id, hash: asked.hash, approved, ...(reason ? { reason } : {}), ...(approved ? terms : {}) };
  return sendSignal(client, run, APPROVAL, value, { key: `approval ${asked.id} ${asked.hash}`.slice(0, 200) });
}

/** Answers the questions of a server or of an agent. A refused answer may be given again, so this has no key. */
export function respond(client: FlovynClient, run: string, asked: Asked, responses: Readonly<Record<string, unknown>>): Promise<void> {
  return sendSignal(client, run, INPUT, { id: asked.id, hash: asked.hash, responses });
}

/** Says something to a run of the built-in agent. The same key again is the same message. */
export function sayTo(client: FlovynClient, run: string, text: string, delivery: Delivery, key = uniqueKey()): Promise<void> {
  return sendSignal(client, run, USER_MESSAGE, { text, delivery }, { delivery, key });
}

/** Ends the turn of a run of the built-in agent: what is being written or run ends with what it has. */
export function endTurn(client: FlovynClient, run: string): Promise<void> {
  return sendSignal(client, run, USER_MESSAGE, { delivery: "now" }, { delivery: "now", key: uniqueKey() });
}

/** Asks a run to stop, at its next step (`graceful`) or at once (`hard`). */
export function stop<T = unknown>(client: FlovynClient, run: string, mode: "graceful" | "hard"): Promise<T> {
  return client.post(`${runPath(run)}/cancel`, { mode });
}

/** Lets a paused run go on. */
export function resume<T = unknown>(client: FlovynClient, run: string, body: object = {}): Promise<T> {
  return client.post(`${runPath(run)}/resume`, body);
}

/** Lets a run that has failed go on from its last commit. */
export function retry<T = unknown>(client: FlovynClient, run: string, body: object = {}): Promise<T> {
  return client.post(`${runPath(run)}/retry`, body);
}

/** A key that nobody else has. `randomUUID` is there in secure contexts alone. */
export function uniqueKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
