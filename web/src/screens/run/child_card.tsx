// A run that another one has started, as a card: how it stands, what it and all below it cost, and the way into it.
import { waitingFor } from "@flovyn/react/client";
import { asObject, asText } from "@flovyn/react/transcript";
import { useQuery } from "@tanstack/react-query";
import { ArrowRight, Bot } from "lucide-react";
import { runQuery } from "../../api/queries";
import { Button } from "../../parts/button";
import { formatCost, formatSpan, formatTokens } from "../../parts/format";
import { Status } from "../../parts/status";
import { plainOf } from "../../parts/plain";
import { useShown } from "./shown";

export function ChildCard({ id }: { id: string }) {
  const { openChild } = useShown();
  const found = useQuery(runQuery(id));
  const child = found.data;
  if (!child) return <p className="text-xs text-faint">{found.isLoadingError ? "This run is no longer there." : "Loading the child…"}</p>;
  const tokens = child.totalUsage ? child.totalUsage.inputTokens + child.totalUsage.outputTokens + child.totalUsage.cacheReadTokens + child.totalUsage.cacheWriteTokens : child.summary.tokens;
  const waits = waitingFor(child);
  const answer = asText(asObject(child.output)?.["text"]) ?? asText(child.output);
  return (
    <div className="flex flex-wrap items-center gap-x-3 gap-y-1 rounded-md border border-line bg-raised px-3 py-2 text-sm">
      <Bot size={15} aria-hidden className="text-soft" />
      <span className="font-medium">{child.kind}</span>
      <Status status={child.status} />
      {waits && <span className="text-soft">for {waits}</span>}
      <span className="text-xs text-faint tabular-nums">
        {formatSpan(child.duration)} · {formatTokens(tokens)} tokens
        {child.totalUsage?.costMicros != null && <> · {formatCost(child.totalUsage.costMicros / 1e6)}</>}
        {(child.descendantCount ?? 0) > 0 && <> · {child.descendantCount} below</>}
      </span>
      <Button small className="ml-auto" onClick={() => openChild(child.id)} icon={<ArrowRight size={13} />}>
        Open
      </Button>
      {answer && <p className="line-clamp-2 w-full text-soft [overflow-wrap:anywhere]">{plainOf(answer)}</p>}
    </div>
  );
}
