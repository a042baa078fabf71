// A conversation as the messages of the AI SDK: what `useChat` is given first, before it reads on. The ids are those of the streams.
import type { UIMessage } from "ai";
import { asObject, asText, partsOf } from "../transcript/content.js";
import type { JsonObject, MediaPart } from "../transcript/content.js";
import type { ListedEntry } from "../transcript/types.js";

type Tool = Record<string, unknown> & { toolCallId: string; state: string };

/** The messages of a branch, from the oldest on. */
export function uiMessagesOf(entries: readonly ListedEntry[]): UIMessage[] {
  const messages: { id: string; role: "user" | "assistant"; parts: Record<string, unknown>[] }[] = [];
  const tools = new Map<string, Tool>();
  let turn = "";
  const answer = () => {
    const last = messages.at(-1);
    if (last?.role === "assistant") return last.parts;
    const fresh = { id: `${turn}-answer`, role: "assistant" as const, parts: [] };
    messages.push(fresh);
    return fresh.parts;
  };
  for (const entry of entries) {
    const content = asObject(entry.content);
    turn ||= entry.id;
    if (entry.entryType === "message" && entry.role === "user") {
      turn = entry.id;
      messages.push({ id: entry.id, role: "user", parts: userParts(entry.content) });
    } else if (entry.entryType === "message" && entry.role === "assistant") {
      const parts = answered(entry.content, tools);
      if (parts.length) answer().push({ type: "step-start" }, ...parts);
    } else if (entry.entryType === "message") {
      for (const part of partsOf(entry.content)) {
        const tool = part.type === "result" ? tools.get(part.result.id) : undefined;
        if (part.type === "result" && tool && tool.state !== "output-denied") {
          Object.assign(tool, part.result.isError ? { state: "output-error", errorText: part.result.text } : { state: "output-available", output: part.result.text });
        }
      }
    } else if (content) {
      noteApproval(entry.entryType, content, tools);
    }
  }
  return messages as unknown as UIMessage[];
}

function userParts(content: unknown): Record<string, unknown>[] {
  return partsOf(content).flatMap((part): Record<string, unknown>[] => {
    if (part.type === "text") return [{ type: "text", text: part.text }];
    return part.type === "media" ? fileOf(part.media) : [];
  });
}

/** The parts of an answer: texts and thoughts first, then its calls, as a stream has them. */
function answered(content: unknown, tools: Map<string, Tool>): Record<string, unknown>[] {
  const prose: Record<string, unknown>[] = [];
  const rest: Record<string, unknown>[] = [];
  let isCut = false;
  for (const part of partsOf(content)) {
    if (part.type === "text" || part.type === "thinking") {
      const type = part.type === "text" ? "text" : "reasoning";
      const last = prose.at(-1);
      if (!part.text) continue;
      if (last?.["type"] === type && !isCut) last["text"] = String(last["text"]) + part.text;
      else prose.push({ type, text: part.text, state: "done" });
      isCut = false;
    } else if (part.type === "call") {
      isCut = true;
      const tool: Tool = { type: `tool-${part.call.name}`, toolCallId: part.call.id, state: "input-available", input: part.call.arguments };
      tools.set(part.call.id, tool);
      rest.push(tool);
    } else if (part.type === "media") {
      rest.push(...fileOf(part.media));
    } else if (part.type === "other") {
      prose.push({ type: "text", text: JSON.stringify(part.value), state: "done" });
    }
  }
  return [...prose, ...rest];
}

function fileOf({ mime, name, base64, url }: MediaPart): Record<string, unknown>[] {
  const address = url ?? (base64 === null ? null : `data:${mime};base64,${base64}`);
  return address === null ? [] : [{ type: "file", mediaType: mime, url: address, ...(name === null ? {} : { filename: name }) }];
}

function noteApproval(kind: string, content: JsonObject, tools: ReadonlyMap<string, Tool>): void {
  const call = asText(content["id"]) ?? "";
  const tool = tools.get(call);
  if (!tool) return;
  const id = `${asText(content["hash"]) ?? ""}:${call}`;
  if (kind === "approval_request") Object.assign(tool, { state: "approval-requested", approval: { id } });
  if (kind !== "approval" || asObject(tool["approval"])?.["id"] !== id) return;
  const approved = content["approved"] === true;
  const reason = asText(content["reason"]);
  tool["approval"] = { id, approved, ...(reason === null ? {} : { reason }) };
  tool["state"] = approved ? "approval-responded" : "output-denied";
}
