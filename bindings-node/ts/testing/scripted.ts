// A scripted model server on loopback, in this process: the real wires, without a model, with the faults that models have.

import { InvalidArgument } from "../errors.js";
import { native, natively, type NativeFakeLlm } from "../native.js";
import { json } from "../serde.js";
import { type Provider, scripted } from "../toolkit/kit.js";

/** Something that goes wrong, once or on so many plays of its turn. Made by `status`, `cut`, `stall`, `malformed`. */
export type Fault = { readonly [kind: string]: unknown; readonly times?: number };

/** A tool that a scripted model calls. */
export interface ScriptedCall {
  name: string;
  arguments?: Record<string, unknown>;
  /** The call's id; one made of the turn and the place unless given. */
  id?: string;
  /** The arguments as text, for what is no JSON. */
  rawArguments?: string;
}

/** Which requests a turn is for; all that is named has to hold. */
export interface When {
  /** The number of the request since the start, from 1. */
  nth?: number;
  /** Answers in the conversation, plus one. */
  turn?: number;
  lastUserContains?: string;
  hasToolResult?: boolean;
  toolCallId?: string;
  header?: Record<string, string>;
  model?: string;
}

/** How fast an answer comes. */
export interface Pace {
  /** Milliseconds before the first event. */
  ttftMs?: number;
  /** Milliseconds between events. */
  chunkMs?: number;
  /** Characters of text in one event. */
  chunkChars?: number;
}

/** One answer. Texts and arguments may hold `{{turn}}`, `{{lastUser}}`, `{{result}}`, `{{pad:1000}}`. */
export interface Turn {
  text?: string;
  thinking?: string;
  toolCalls?: ScriptedCall[];
  when?: When;
  /** How many places in the order it takes. */
  repeat?: number;
  /** Tokens that are said to be used; what is left out is a quarter of the characters. */
  usage?: { input?: number; output?: number; cacheRead?: number; cacheWrite?: number; reasoning?: number };
  stop?: string;
  pace?: Pace;
  /** What goes wrong first: the first play of the turn has the first fault, and so on. */
  faults?: Fault[];
}

/** More about a scripted model. */
export interface FakeLlmOptions {
  /** What is answered where no turn is left; without it such a request is refused. */
  otherwise?: Turn;
  /** How fast answers come, where a turn does not say so. */
  pace?: Pace;
  /** `conversation`: with n answers in it turn n + 1 is played, however often it is asked for; or in order of `arrival`. */
  order?: "conversation" | "arrival";
  /** The key that is demanded. */
  key?: string;
}

/** A request, and what became of it. */
export interface RecordedCall {
  /** Its number since the start, from 1. */
  nth: number;
  /** The wire. */
  api: string;
  model: string;
  headers: Record<string, string>;
  /** Its body, as the wire has it. */
  body: Record<string, unknown>;
  /** Answers in its conversation, plus one. */
  turn: number;
  /** The number of the scripted turn that answered, from 0. */
  played: number | null;
  /** `completed` is what a provider would charge. */
  outcome: "answering" | "completed" | "faulted" | "disconnected" | { refused: { status: number; reason: string } };
}

/** A turn that says something. */
export function turn(text: string, more: Turn = {}): Turn {
  return { text, ...more };
}

/** A turn that calls a tool; more calls go into `toolCalls` of `more`. */
export function toolCall(name: string, args: Record<string, unknown> = {}, more: Turn = {}): Turn {
  return { ...more, toolCalls: [{ name, arguments: args }, ...(more.toolCalls ?? [])] };
}

/** A refusal in place of a response, such as 429 or 529. */
export function status(code: number, more: { retryAfter?: number; message?: string; times?: number } = {}): Fault {
  const { times, ...rest } = more;
  return fault({ status: { code, ...rest } }, times);
}

/** The stream breaks off after so many events. */
export function cut(afterEvents = 3, times?: number): Fault {
  return fault({ cut: { afterEvents } }, times);
}

/** Nothing comes for a while, or until the client leaves. */
export function stall(options: { afterEvents?: number; ms?: number; times?: number } = {}): Fault {
  const { times, ...rest } = options;
  return fault({ stall: rest }, times);
}

/** An event that is no JSON. */
export function malformed(afterEvents = 1, times?: number): Fault {
  return fault({ malformed: { afterEvents } }, times);
}

function fault(kind: Fault, times: number | undefined): Fault {
  return times === undefined ? kind : { ...kind, times };
}

/** A running scripted model: the provider `fake` of this process. Close it, or declare it with `using`. */
export class FakeLlm {
  /** Its address, as Anthropic's clients take it. */
  readonly url: string;
  /** Its address, as OpenAI's clients take it. */
  readonly openaiUrl: string;
  /** Itself as a provider, for other processes and places; in this process workers know it while it is open. */
  readonly providers: { readonly fake: Provider };
  private readonly server: NativeFakeLlm;

  /** @internal */
  constructor(turns: readonly Turn[], options: FakeLlmOptions) {
    const { key, ...rest } = options;
    const script = { ...rest, turns, ...(key === undefined ? {} : { require: { key } }) };
    const text = json(JSON.parse(JSON.stringify(script)));
    this.server = natively(() => new native.FakeLlm(text));
    this.url = this.server.url;
    this.openaiUrl = this.server.openaiUrl;
    this.providers = { fake: { api: "anthropic-messages", baseUrl: this.url, images: true } };
    scripted.set("fake", this.providers.fake);
  }

  /** All requests so far, in the order of their arrival. */
  get calls(): RecordedCall[] {
    return JSON.parse(this.server.requests()) as RecordedCall[];
  }

  /** How many responses were sent to their end: what a provider would have charged. */
  get paid(): number {
    return this.server.paid;
  }

  /** Ends it, with all its connections. */
  close(): void {
    if (scripted.get("fake") === this.providers.fake) scripted.delete("fake");
    this.server.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/**
 * Starts a scripted model on loopback. It speaks Anthropic Messages, OpenAI Chat Completions and Responses, refuses what
 * the real ones would refuse, and records every request.
 *
 * ```ts
 * const fake = fakeLlm([toolCall("search", { query: "otters" }), turn("Otters hold hands.")]);
 * const assistant = reactAgent("assistant", { model: "fake/any", tools: [search] });
 * ```
 */
export function fakeLlm(turns: readonly Turn[], options: FakeLlmOptions = {}): FakeLlm {
  if (!Array.isArray(turns)) throw new InvalidArgument("fakeLlm takes a list of turns: [turn(\"…\"), toolCall(\"…\", {})]");
  return new FakeLlm(turns, options);
}
