// The provider-neutral message, as entries of conversations store it.

import { InvalidArgument } from "../errors.js";

/** A tool that a model calls. */
export interface ToolCall {
  /** The id that the result has to name. */
  id: string;
  name: string;
  arguments: Record<string, unknown>;
  /**
   * What the model wrote in place of arguments, where that is no JSON object. `arguments` is empty then: do not run the
   * call, and answer it with an error that says so.
   */
  rawArguments?: string;
  /** `provider` where the provider ran it. */
  executedBy?: "provider";
}

/** What a tool gave. */
export interface ToolResult {
  /** The id of the call. */
  id: string;
  name: string;
  /** All that the model sees. */
  content: Part[];
  isError?: boolean;
  /** What people and programs see beside it. */
  details?: unknown;
}

/** An image, a document or another file. */
export interface Media {
  /** Its media type, such as `image/png`. */
  mime: string;
  source: { base64: string } | { url: string } | { providerFile: string };
  name?: string;
}

/** One part of a message. What its provider wants back with it is in `provider`. */
export type Part = (
  | { type: "text"; text: string }
  | { type: "thinking"; text: string; redacted?: boolean }
  | ({ type: "media" } & Media)
  | ({ type: "toolCall" } & ToolCall)
  | ({ type: "toolResult" } & ToolResult)
  | { type: "custom"; [more: string]: unknown }
) & { provider?: unknown; cache?: unknown };

/** A part as it may be given: as it is stored, with bytes for their base64, or as Anthropic, OpenAI and MCP write it. */
export type GivenPart =
  | Part
  | { type: "media"; mime: string; source: { base64: Uint8Array }; name?: string }
  | {
      type: "image" | "document" | "image_url" | "file" | "input_image" | "input_file" | "input_text" | "resource";
      [field: string]: unknown;
    };

/** Tokens of a model call in disjoint buckets, and what they cost. */
export interface Usage {
  /** Fresh prompt tokens. */
  input: number;
  /** Prompt tokens from the provider's cache. */
  cacheRead: number;
  /** Prompt tokens into it. */
  cacheWrite: number;
  /** Those of them that are kept for an hour. */
  cacheWrite1h: number;
  /** Generated tokens. */
  output: number;
  /** Those of them that the model thought with. */
  reasoning: number;
  /** Whether the call ended before its provider had told the counts. */
  estimated?: boolean;
  /** Null where nobody knows, never zero for want of a price. */
  cost: { amountMicros: number; currency: string; basis: string; tableVersion?: string } | null;
}

/** Why a model stopped. */
export type Stop =
  | "end"
  | "length"
  | "toolUse"
  | "refusal"
  | "aborted"
  | "error"
  | "interrupted"
  | "deferred";

/** One message of a conversation with a model: what `ctx.appendEntry` stores and a model is shown. */
export interface ModelMessage {
  role: "system" | "user" | "assistant" | "tool";
  parts: Part[];
  /** Where an assistant's message came from, how it ended and what it cost. */
  assistant?: { provider?: string; model?: string; usage: Usage; stop: Stop; [more: string]: unknown };
}

/** A message as it may be given: as it is stored, with text in place of parts, or what a user says. */
export type MessageLike =
  | ModelMessage
  | { role: ModelMessage["role"]; parts: readonly GivenPart[] }
  | { role: ModelMessage["role"]; content: string }
  | string;

/** @internal A message as it is stored. */
export function messageOf(given: MessageLike): ModelMessage {
  if (typeof given === "string") return { role: "user", parts: [{ type: "text", text: given }] };
  if (typeof given !== "object" || given === null || typeof given.role !== "string") {
    throw new InvalidArgument("a message is a text, { role, content }, or { role, parts }");
  }
  // Parts of other shapes are read by the toolkit.
  return "parts" in given ? (given as ModelMessage) : { role: given.role, parts: [{ type: "text", text: given.content }] };
}

/** The text of all text parts, joined as they are. */
export function textOf(parts: readonly Part[]): string {
  return parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}
