// A run as a file: its entries line by line as JSON, or its conversation as Markdown.
import { titleOf } from "@flovyn/react/client";
import { conversationOf, emptyTranscript, withPage } from "@flovyn/react/transcript";
import type { Block } from "@flovyn/react/transcript";
import { answer, api, currentOrg } from "../../api/client";
import type { Entry, Run } from "../../api/client";
import { saveText } from "../../parts/save";

async function allOf(run: Run): Promise<readonly Entry[]> {
  const found: Entry[] = [];
  let cursor: string | null = null;
  do {
    const query: { limit: number; cursor?: string } = cursor === null ? { limit: 1000 } : { limit: 1000, cursor };
    const page: { items: Entry[]; nextCursor?: string | null } = await answer(
      api.GET("/api/orgs/{org}/agent-executions/{id}/messages", { params: { path: { org: currentOrg(), id: run.id }, query } }),
    );
    for (const item of page.items) found.push(await whole(item));
    cursor = page.nextCursor ?? null;
  } while (cursor !== null);
  return found;
}

async function whole(entry: Entry): Promise<Entry> {
  const reference = entry.contentRef;
  if (!reference?.href) return entry;
  const response = await fetch(reference.href, { credentials: "same-origin" });
  const text = await response.text();
  const { contentRef: _, ...rest } = entry;
  try {
    return { ...rest, content: JSON.parse(text) as never };
  } catch {
    return { ...rest, content: text as never };
  }
}

export async function exportRun(run: Run, form: "jsonl" | "markdown"): Promise<void> {
  const entries = await allOf(run);
  const name = (run.key ?? run.id).replace(/[^\w.-]+/g, "_").slice(0, 80);
  if (form === "jsonl") saveText(`${name}.jsonl`, "application/jsonl", entries.map((entry) => JSON.stringify(entry)).join("\n") + "\n");
  else saveText(`${name}.md`, "text/markdown", markdownOf(run, entries));
}

export function markdownOf(run: Run, entries: readonly Entry[]): string {
  const transcript = withPage(emptyTranscript, entries);
  const blocks = conversationOf([...transcript.entries.values()]);
  const head = `# ${titleOf(run)}\n\n${run.kind} · ${run.status} · ${run.createdAt} · ${run.id}\n`;
  return `${head}\n${blocks.map(blockAsMarkdown).filter(Boolean).join("\n\n")}\n`;
}

function blockAsMarkdown(block: Block): string {
  switch (block.kind) {
    case "message":
      return `## ${block.role === "user" ? "User" : block.role === "system" ? "System" : "Agent"}\n\n${block.text}`;
    case "thinking":
      return `<!-- thought -->\n${block.text.replace(/^/gm, "> ")}`;
    case "call":
      return `**${block.call.name}**\n\n${fenced(JSON.stringify(block.call.arguments, null, 2), "json")}${block.result ? `\n\n${fenced(block.result.text, "")}` : ""}`;
    case "note":
      return `_${block.word}_`;
    case "value":
      return fenced(typeof block.value === "string" ? block.value : JSON.stringify(block.value, null, 2), "json");
    default:
      return "";
  }
}

/** Code in a fence that is longer than any in it. */
function fenced(text: string, language: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map((found) => found[0].length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}`;
}
