// The tree of entries: what every branch has said, where they part, and a fork from any point.
import { asObject, asText, partsOf } from "@flovyn/react/transcript";
import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { GitBranch } from "lucide-react";
import { useMemo, useRef } from "react";
import { entriesQuery } from "../../api/queries";
import type { Entry } from "../../api/client";
import { classNames } from "../../parts/class_names";
import { formatClock } from "../../parts/format";
import { Empty, Failed, Loading } from "../../parts/states";
import { useShown } from "./shown";

interface Row {
  readonly entry: Entry;
  /** How many branches stand beside it to its left. */
  readonly column: number;
  readonly isCurrent: boolean;
  readonly partings: number;
}

/** The entries in the order in which they were appended, each with the column of its branch. */
export function treeRows(entries: readonly Entry[], leaf: string | null): readonly Row[] {
  const byId = new Map(entries.map((entry) => [entry.id, entry]));
  const current = new Set<string>();
  // Where the leaf is not loaded, nobody knows which of the branches is gone on with.
  const isKnown = leaf !== null && byId.has(leaf);
  for (let at = leaf; at !== null && !current.has(at); ) {
    current.add(at);
    at = byId.get(at)?.parentId ?? null;
  }
  const children = new Map<string | null, string[]>();
  for (const entry of entries) {
    const parent = entry.parentId ?? null;
    children.set(parent, [...(children.get(parent) ?? []), entry.id]);
  }
  const columns = new Map<string, number>();
  let next = 1;
  return entries.map((entry) => {
    const beside = children.get(entry.parentId ?? null) ?? [];
    // The branch the run stands on goes straight on; the others get a column each where they part.
    const straight = beside.find((each) => current.has(each)) ?? beside[0];
    const column = entry.id === straight ? (columns.get(entry.parentId ?? "") ?? 0) : next++;
    columns.set(entry.id, column);
    return { entry, column, isCurrent: !isKnown || current.has(entry.id), partings: (children.get(entry.id) ?? []).length };
  });
}

function lineOf(entry: Entry): string {
  if (entry.contentRef) return `${entry.contentRef.size} bytes`;
  const content = asObject(entry.content);
  if (entry.entryType === "message") {
    return partsOf(entry.content)
      .map((part) => (part.type === "call" ? `→ ${part.call.name} ${JSON.stringify(part.call.arguments)}` : part.type === "result" ? `← ${part.result.name}: ${part.result.text}` : part.type === "text" || part.type === "thinking" ? part.text : part.type))
      .join(" ");
  }
  if (entry.entryType === "tools" && Array.isArray(content?.["tools"])) return content["tools"].map((each) => asText(asObject(each)?.["name"]) ?? "?").join(", ");
  const model = asObject(content?.["model"]);
  const usage = asObject(content?.["usage"]);
  if (entry.entryType === "llm_call" && usage) return `${asText(model?.["provider"]) ?? ""}/${asText(model?.["modelId"]) ?? ""}: ${String(usage["input"])} tokens sent, ${String(usage["output"])} written`;
  if (entry.entryType === "approval_request") return `${asText(content?.["name"]) ?? ""} ${JSON.stringify(content?.["arguments"] ?? null)}`;
  if (entry.entryType === "approval") return `${content?.["approved"] === true ? "approved" : "denied"} ${asText(content?.["reason"]) ?? ""}`;
  if (entry.entryType === "agent_spawn") return `${asText(content?.["kind"]) ?? ""} ${asText(content?.["child"]) ?? ""}`;
  return JSON.stringify(entry.content ?? null);
}

export function EntryTree() {
  const { run, inspect } = useShown();
  const found = useQuery(entriesQuery(run.id));
  const rows = useMemo(() => treeRows(found.data?.items ?? [], run.leaf ?? null), [found.data, run.leaf]);
  const room = useRef<HTMLDivElement>(null);
  const list = useVirtualizer({ count: rows.length, getScrollElement: () => room.current, estimateSize: () => 30, overscan: 20 });
  if (found.isLoadingError) return <Failed error={found.error} onRetry={() => void found.refetch()} />;
  if (!found.data) return <Loading what="Loading the entries" />;
  if (!rows.length) return <Empty title="No entries">{run.forkedFrom ? "Its past belongs to the run that it was forked from." : "It has appended nothing yet."}</Empty>;
  return (
    <div className="flex min-h-0 flex-1 flex-col">
      <p className="border-b border-line px-4 py-1.5 text-xs text-faint">
        {found.data.more ? `The first ${rows.length} entries.` : `${rows.length} entries.`} Open one to see all of it, or to fork the run there.
      </p>
      <div ref={room} className="min-h-0 flex-1 overflow-auto" tabIndex={0} role="region" aria-label="Entries">
        <div className="relative" style={{ height: list.getTotalSize() }}>
          {list.getVirtualItems().map((item) => {
            const row = rows[item.index];
            if (!row) return null;
            const { entry } = row;
            return (
              <button
                key={entry.id}
                type="button"
                onClick={() => inspect(entry.id)}
                style={{ transform: `translateY(${item.start}px)`, paddingLeft: 16 + Math.min(row.column, 12) * 16 }}
                className={classNames("absolute inset-x-0 flex h-[30px] items-center gap-2.5 pr-4 text-left text-sm hover:bg-hover", !row.isCurrent && "text-faint")}
              >
                <span aria-hidden className={classNames("size-2 shrink-0 rounded-full", row.isCurrent ? "bg-accent" : "border-[1.5px] border-line-strong")} />
                <span className="w-28 shrink-0 truncate text-xs font-medium sm:w-40">
                  {entry.entryType === "message" ? entry.role.replace("_", " ") : entry.entryType.replaceAll("_", " ")}
                  {entry.thread && <span className="text-faint"> · {entry.thread.slice(0, 12)}</span>}
                </span>
                <span className="min-w-0 flex-1 truncate">{lineOf(entry).slice(0, 300)}</span>
                {row.partings > 1 && (
                  <span className="flex shrink-0 items-center gap-1 text-xs text-violet">
                    <GitBranch size={12} aria-hidden />
                    {row.partings} branches
                  </span>
                )}
                <span className="hidden shrink-0 text-xs text-faint tabular-nums sm:inline">{formatClock(entry.createdAt)}</span>
              </button>
            );
          })}
        </div>
      </div>
    </div>
  );
}
