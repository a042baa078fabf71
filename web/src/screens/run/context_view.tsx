// What the model saw when it wrote an answer: the conversation up to there as the agent sends it, and what was new since the call before.
import { asObject, asText, branchTo, factsOf, partsOf } from "@flovyn/react/transcript";
import type { TranscriptEntry } from "@flovyn/react/transcript";
import { useMemo } from "react";
import type { Entry } from "../../api/client";
import { formatTokens } from "../../parts/format";
import { JsonView } from "../../parts/json_view";
import { useShown } from "./shown";

interface Seen {
  readonly entry: TranscriptEntry;
  readonly text: string;
  readonly isNew: boolean;
}

/** The messages before an answer, after compactions and edits; those since the answer before are new to the model. */
export function seenBy(branch: readonly TranscriptEntry[]): { messages: readonly Seen[]; tools: readonly string[]; summary: string | null } {
  let messages: TranscriptEntry[] = [];
  let tools: readonly string[] = [];
  let summary: string | null = null;
  let known = new Set<string>();
  for (const entry of branch) {
    const content = asObject(entry.content);
    if (entry.type === "message") {
      if (entry.role === "assistant") known = new Set(messages.map((each) => each.id));
      messages.push(entry);
    } else if (entry.type === "tools" && Array.isArray(content?.["tools"])) tools = content["tools"].map((each) => asText(asObject(each)?.["name"]) ?? "?");
    else if (entry.type === "agent_begin") messages = messages.filter((each) => each.role !== "system");
    else if (entry.type === "compaction") {
      const kept = messages.findIndex((each) => each.id === content?.["firstKeptEntryId"]);
      messages = [...messages.filter((each) => each.role === "system"), ...(kept < 0 ? [] : messages.slice(kept).filter((each) => each.role !== "system"))];
      summary = asText(content?.["summary"]);
    } else if (entry.type === "context_edit") {
      const replacement = content?.["replacement"] ?? null;
      messages = messages.flatMap((each) => (each.id !== content?.["targetId"] ? [each] : replacement === null ? [] : [{ ...each, content: replacement }]));
    }
  }
  return { messages: messages.map((entry) => ({ entry, text: lineOf(entry), isNew: !known.has(entry.id) })), tools, summary };
}

function lineOf(entry: TranscriptEntry): string {
  if (entry.reference) return `${entry.reference.size} bytes`;
  return partsOf(entry.content)
    .map((part) => (part.type === "text" || part.type === "thinking" ? part.text : part.type === "call" ? `→ ${part.call.name}(${JSON.stringify(part.call.arguments)})` : part.type === "result" ? `← ${part.result.text}` : part.type === "media" ? `[${part.media.mime}]` : ""))
    .join(" ")
    .replace(/\s+/g, " ");
}

export function ContextView({ entry }: { entry: Entry }) {
  const { view } = useShown();
  const { transcript } = view;
  const branch = useMemo(() => branchTo(transcript, entry.parentId ? (transcript.entries.get(entry.parentId) ?? null) : null), [transcript, entry.parentId]);
  const seen = useMemo(() => seenBy(branch.entries), [branch]);
  const facts = factsOf(entry.content);
  return (
    <div className="flex flex-col gap-2 rounded-md border border-line p-3 text-sm">
      {facts && (
        <p className="text-xs text-soft tabular-nums">
          {facts.model} · {formatTokens(facts.inputTokens)} tokens sent, {formatTokens(facts.cachedTokens)} of them cached · {formatTokens(facts.outputTokens)} written
        </p>
      )}
      {branch.missing && <p className="text-xs text-amber">Older entries are not loaded yet: scroll up in the conversation to load them.</p>}
      {seen.summary && <p className="text-xs text-soft">Before these stands a summary of {seen.summary.length} characters.</p>}
      <ol className="flex flex-col gap-1">
        {seen.messages.map(({ entry: each, text, isNew }) => (
          <li key={each.id} className={isNew ? "rounded bg-green-ground px-1.5" : "px-1.5"}>
            <details>
              <summary className="truncate text-xs">
                <span className="font-medium">{each.role}</span> {isNew && <span className="text-green">new</span>} {text.slice(0, 200)}
              </summary>
              <JsonView value={each.content} />
            </details>
          </li>
        ))}
      </ol>
      {seen.tools.length > 0 && <p className="text-xs text-faint">Tools: {seen.tools.join(", ")}</p>}
    </div>
  );
}
