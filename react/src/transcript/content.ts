// What entries say: messages of the built-in agent, and whatever else an agent appends, read without trusting its form.

/** Is a value of JSON. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };
/** Is an object of which nothing is known. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** Answers with the value where it is an object, and with null otherwise. */
export function asObject(value: unknown): JsonObject | null {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as JsonObject) : null;
}

/** Answers with the value where it is a text, and with null otherwise. */
export function asText(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

/** A file in a message. */
export interface MediaPart {
  readonly mime: string;
  readonly name: string | null;
  /** As base64; null where it is elsewhere. */
  readonly base64: string | null;
  readonly url: string | null;
}

/** Is a call of a tool, as the model wrote it. */
export interface CallPart {
  readonly id: string;
  readonly name: string;
  readonly arguments: unknown;
  /** What the model wrote in place of arguments, where that is no JSON object. */
  readonly raw: string | null;
}

/** Is what a call has come to, as the model is told it. */
export interface ResultPart {
  readonly id: string;
  readonly name: string;
  readonly text: string;
  readonly media: readonly MediaPart[];
  readonly isError: boolean;
  readonly details: unknown;
}

/** Is a part of a message. */
export type Part =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "thinking"; readonly text: string; readonly redacted: boolean }
  | { readonly type: "media"; readonly media: MediaPart }
  | { readonly type: "call"; readonly call: CallPart }
  | { readonly type: "result"; readonly result: ResultPart }
  | { readonly type: "other"; readonly value: unknown };

/** What the model said of its own answer. */
export interface AnswerFacts {
  readonly model: string | null;
  readonly inputTokens: number;
  readonly cachedTokens: number;
  readonly outputTokens: number;
  readonly costMicros: number | null;
  readonly durationMs: number | null;
  readonly stop: string | null;
}

/** The parts of a message: a text is one part, the built-in agent's messages say theirs, anything else is shown as it is. */
export function partsOf(content: unknown): readonly Part[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  const message = asObject(content);
  const parts = message?.["parts"] ?? message?.["content"];
  if (typeof parts === "string") return [{ type: "text", text: parts }];
  if (Array.isArray(parts)) return parts.map(partOf);
  const text = asText(message?.["text"]);
  if (text !== null) return [{ type: "text", text }];
  return [{ type: "other", value: content }];
}

function partOf(value: unknown): Part {
  const part = asObject(value);
  if (!part) return typeof value === "string" ? { type: "text", text: value } : { type: "other", value };
  switch (part["type"]) {
    case "text":
      return { type: "text", text: asText(part["text"]) ?? "" };
    case "thinking":
      return { type: "thinking", text: asText(part["text"]) ?? "", redacted: part["redacted"] === true };
    case "media":
      return { type: "media", media: mediaOf(part) };
    case "toolCall":
      return {
        type: "call",
        call: {
          id: asText(part["id"]) ?? "",
          name: asText(part["name"]) ?? "",
          arguments: part["arguments"] ?? null,
          raw: asText(part["rawArguments"]),
        },
      };
    case "toolResult":
      return { type: "result", result: resultOf(part) };
    default:
      return { type: "other", value };
  }
}

function resultOf(part: JsonObject): ResultPart {
  const inner = Array.isArray(part["content"]) ? part["content"].map(partOf) : partsOf(part["content"]);
  return {
    id: asText(part["id"]) ?? "",
    name: asText(part["name"]) ?? "",
    text: inner.flatMap((each) => (each.type === "text" ? [each.text] : [])).join("\n"),
    media: inner.flatMap((each) => (each.type === "media" ? [each.media] : [])),
    isError: part["isError"] === true,
    details: part["details"] ?? null,
  };
}

function mediaOf(part: JsonObject): MediaPart {
  const source = asObject(part["source"]);
  return {
    mime: asText(part["mime"]) ?? "application/octet-stream",
    name: asText(part["name"]),
    base64: asText(source?.["base64"]),
    url: asText(source?.["url"]),
  };
}

/** What a message says of the call that made it; null where no model did. */
export function factsOf(content: unknown): AnswerFacts | null {
  const facts = asObject(asObject(content)?.["assistant"]);
  if (!facts) return null;
  const usage = asObject(facts["usage"]);
  const count = (name: string) => (typeof usage?.[name] === "number" ? usage[name] : 0);
  const provider = asText(facts["provider"]);
  const model = asText(facts["model"]);
  const micros = asObject(usage?.["cost"])?.["amountMicros"];
  return {
    model: model && provider ? `${provider}/${model}` : model,
    inputTokens: count("input") + count("cacheRead") + count("cacheWrite"),
    cachedTokens: count("cacheRead"),
    outputTokens: count("output"),
    costMicros: typeof micros === "number" ? micros : null,
    durationMs: typeof facts["durationMs"] === "number" ? facts["durationMs"] : null,
    stop: asText(facts["stop"]),
  };
}
