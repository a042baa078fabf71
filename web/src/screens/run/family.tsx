// The family of a run: all below it as a tree, with what each has cost by itself and with all below.
import { titleOf, waitingFor } from "@flovyn/react/client";
import { useQuery } from "@tanstack/react-query";
import { ChevronRight } from "lucide-react";
import { useState } from "react";
import { treeQuery } from "../../api/queries";
import type { RunTree } from "../../api/client";
import { classNames } from "../../parts/class_names";
import { formatCost, formatSpan, formatTokens } from "../../parts/format";
import { Empty, Failed, Loading } from "../../parts/states";
import { Status } from "../../parts/status";
import { Cell, Table } from "../../parts/table";
import { useShown } from "./shown";

export function Family() {
  const { run } = useShown();
  const found = useQuery(treeQuery(run.id));
  if (found.isLoadingError) return <Failed error={found.error} onRetry={() => void found.refetch()} />;
  if (!found.data) return <Loading what="Loading the family" />;
  if (!found.data.children.length) return <Empty title="It has started no other runs">Children of a run stand here, with what they cost.</Empty>;
  return (
    <div className="min-h-0 flex-1 overflow-y-auto p-4">
      <Table label="Family" head={["Run", "Status", "Took", <Right key="own">Own tokens</Right>, <Right key="all">With all below</Right>, <Right key="cost">Cost</Right>]}>
        <Member member={found.data} depth={0} path={[]} />
      </Table>
    </div>
  );
}

function Right({ children }: { children: React.ReactNode }) {
  return <span className="block text-right">{children}</span>;
}

function Member({ member, depth, path }: { member: RunTree; depth: number; path: readonly string[] }) {
  const { openChild } = useShown();
  const [isOpen, setOpen] = useState(depth < 3);
  const own = member.summary.tokens;
  const total = member.totalUsage;
  const all = total ? total.inputTokens + total.outputTokens + total.cacheReadTokens + total.cacheWriteTokens : own;
  const waits = waitingFor(member);
  return (
    <>
      <tr className="hover:bg-hover">
        <Cell className="max-w-md">
          <span className="flex items-center gap-1" style={{ paddingLeft: depth * 18 }}>
            {member.children.length > 0 ? (
              <button type="button" aria-expanded={isOpen} aria-label={isOpen ? "Fold" : "Unfold"} onClick={() => setOpen(!isOpen)} className="flex size-6 shrink-0 items-center justify-center rounded hover:bg-raised">
                <ChevronRight size={13} className={classNames("transition-transform", isOpen && "rotate-90")} aria-hidden />
              </button>
            ) : (
              <span className="w-6 shrink-0" />
            )}
            {depth === 0 ? (
              <span className="truncate font-medium">{member.kind}</span>
            ) : (
              <button type="button" className="truncate text-left font-medium hover:underline" onClick={() => openChild([...path, member.id].join("."))}>
                {member.kind}
              </button>
            )}
            <span className="min-w-0 truncate text-xs text-faint">{titleOf(member) === member.id ? "" : titleOf(member)}</span>
          </span>
        </Cell>
        <Cell>
          <Status status={member.status} /> {waits && <span className="text-xs text-soft">for {waits}</span>}
        </Cell>
        <Cell className="whitespace-nowrap tabular-nums">{formatSpan(member.duration)}</Cell>
        <Cell number>{formatTokens(own)}</Cell>
        <Cell number>{formatTokens(all)}</Cell>
        <Cell number>{all ? formatCost(total?.costMicros == null ? null : total.costMicros / 1e6) : "–"}</Cell>
      </tr>
      {isOpen && member.children.map((child) => <Member key={child.id} member={child} depth={depth + 1} path={depth === 0 ? [] : [...path, member.id]} />)}
      {isOpen && member.leftOff > 0 && (
        <tr>
          <td colSpan={6} className="px-3 py-1.5 text-xs text-faint">
            {member.leftOff} more below {member.kind} are not shown.
          </td>
        </tr>
      )}
    </>
  );
}
