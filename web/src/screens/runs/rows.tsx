// The rows of the list of runs: only those in sight are drawn, and the reader may walk them with the keyboard.
import { addressOf, titleOf, waitingFor } from "@flovyn/react/client";
import { Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useEffect, useRef, useSyncExternalStore } from "react";
import type { KeyboardEvent } from "react";
import type { Run } from "../../api/client";
import { classNames } from "../../parts/class_names";
import { formatCost, formatMoment, formatShort, formatSpan, formatTokens } from "../../parts/format";
import { Status } from "../../parts/status";
import { tokensOf } from "../../parts/usage_table";

const phone = typeof matchMedia === "function" ? matchMedia("(max-width: 767px)") : null;

function useIsPhone(): boolean {
  return useSyncExternalStore(
    (listener) => {
      phone?.addEventListener("change", listener);
      return () => phone?.removeEventListener("change", listener);
    },
    () => phone?.matches ?? false,
  );
}

const columns = "md:grid md:grid-cols-[2rem_7.5rem_minmax(12rem,1fr)_9rem_8.5rem_6.5rem_4.5rem_5rem_10rem] md:items-center md:gap-x-3";

interface RowsProps {
  runs: readonly Run[];
  selected: ReadonlySet<string>;
  onSelect: (id: string, isSelected: boolean) => void;
  onSelectAll: (isSelected: boolean) => void;
  onEnd: () => void;
  isMore: boolean;
}

export function Rows({ runs, selected, onSelect, onSelectAll, onEnd, isMore }: RowsProps) {
  const room = useRef<HTMLDivElement>(null);
  const isPhone = useIsPhone();
  const height = isPhone ? 66 : 37;
  const rows = useVirtualizer({ count: runs.length, getScrollElement: () => room.current, estimateSize: () => height, overscan: 12, getItemKey: (index) => runs[index]?.id ?? index });
  useEffect(() => rows.measure(), [height, rows]);
  const drawn = rows.getVirtualItems();
  const last = drawn.at(-1)?.index ?? 0;
  useEffect(() => {
    if (isMore && last >= runs.length - 20) onEnd();
  }, [isMore, last, onEnd, runs.length]);

  const onKeyDown = (event: KeyboardEvent) => {
    const place = Number((event.target as HTMLElement).closest<HTMLElement>("[data-index]")?.dataset["index"] ?? -1);
    const step = event.key === "ArrowDown" || event.key === "j" ? 1 : event.key === "ArrowUp" || event.key === "k" ? -1 : 0;
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    if (event.key === "x") {
      const run = runs[place];
      if (run) onSelect(run.id, !selected.has(run.id));
      return;
    }
    if (!step) return;
    event.preventDefault();
    const next = Math.min(runs.length - 1, Math.max(0, place + step));
    rows.scrollToIndex(next);
    requestAnimationFrame(() => room.current?.querySelector<HTMLElement>(`[data-index="${next}"] a`)?.focus());
  };

  return (
    <div ref={room} className="min-h-0 flex-1 overflow-auto" onKeyDown={onKeyDown}>
      <div role="table" aria-label="Runs" aria-rowcount={isMore ? -1 : runs.length + 1} className="md:min-w-[64rem]">
        <div role="rowgroup" className="sticky top-0 z-10 hidden border-b border-line bg-raised md:block">
          <div role="row" className={classNames("h-8 px-4 text-xs font-medium text-soft", columns)}>
            <span role="columnheader" className="flex">
              <input
                type="checkbox"
                aria-label="Select all that are loaded"
                checked={runs.length > 0 && selected.size === runs.length}
                onChange={(event) => onSelectAll(event.target.checked)}
                className="size-4 accent-(--accent)"
              />
            </span>
            <span role="columnheader">Status</span>
            <span role="columnheader">Run</span>
            <span role="columnheader">Kind</span>
            <span role="columnheader">Started</span>
            <span role="columnheader">Took</span>
            <span role="columnheader" className="text-right">
              Tokens
            </span>
            <span role="columnheader" className="text-right">
              Cost
            </span>
            <span role="columnheader">Waits for</span>
          </div>
        </div>
        <div role="rowgroup" className="relative" style={{ height: rows.getTotalSize() }}>
          {drawn.map((item) => {
            const run = runs[item.index];
            return run ? <Row key={item.key} run={run} index={item.index} top={item.start} height={height} isSelected={selected.has(run.id)} onSelect={onSelect} /> : null;
          })}
        </div>
      </div>
    </div>
  );
}

interface RowProps {
  run: Run;
  index: number;
  top: number;
  height: number;
  isSelected: boolean;
  onSelect: (id: string, isSelected: boolean) => void;
}

/** What a run has used with all runs below it, as far as that has been counted. */
function usageOf(run: Run): { tokens: number; cost: number | null } {
  const own = { tokens: run.summary.tokens, cost: run.summary.costUsd ?? null };
  const total = run.totalUsage;
  if (!total || tokensOf(total) <= own.tokens) return own;
  return { tokens: tokensOf(total), cost: total.costMicros == null ? null : total.costMicros / 1e6 };
}

const Row = memo(function Row({ run, index, top, height, isSelected, onSelect }: RowProps) {
  const title = titleOf(run);
  const waits = waitingFor(run);
  const failure = run.summary.lastError;
  const { tokens, cost } = usageOf(run);
  return (
    <div
      role="row"
      data-index={index}
      aria-rowindex={index + 2}
      aria-selected={isSelected}
      style={{ transform: `translateY(${top}px)`, height }}
      className={classNames("absolute inset-x-0 border-b border-line px-4 hover:bg-hover", isSelected && "bg-accent-ground", "flex flex-col justify-center", columns)}
    >
      <span role="cell" className="hidden md:flex">
        <input type="checkbox" aria-label={`Select ${title}`} checked={isSelected} onChange={(event) => onSelect(run.id, event.target.checked)} className="relative z-[1] size-4 accent-(--accent)" />
      </span>
      <span role="cell" className="hidden md:block">
        <Status status={run.status} />
      </span>
      <span role="cell" className="min-w-0 truncate">
        <Link to="/runs/$id" params={{ id: addressOf(run) }} title={title} className="font-medium after:absolute after:inset-0">
          {title}
        </Link>
        {run.depth > 0 && <span className="ml-2 text-xs text-faint">child</span>}
      </span>
      <span role="cell" className="hidden min-w-0 truncate text-sm text-soft md:block" title={run.kind}>
        {run.kind}
      </span>
      <span role="cell" className="hidden text-sm whitespace-nowrap text-soft tabular-nums md:block" title={formatMoment(run.createdAt)}>
        {formatShort(run.createdAt)}
      </span>
      <span role="cell" className="hidden text-sm whitespace-nowrap text-soft tabular-nums md:block">
        {formatSpan(run.duration)}
      </span>
      <span role="cell" className="hidden text-right text-sm text-soft tabular-nums md:block">
        {tokens ? formatTokens(tokens) : "–"}
      </span>
      <span role="cell" className="hidden text-right text-sm text-soft tabular-nums md:block" title={cost === null ? "The price of a model is not known" : undefined}>
        {tokens ? formatCost(cost) : "–"}
      </span>
      <span role="cell" className={classNames("hidden min-w-0 truncate text-sm md:block", failure && run.status === "FAILED" ? "text-red" : "text-soft")} title={failure ?? waits ?? undefined}>
        {run.status === "FAILED" ? failure : waits}
      </span>
      <span className="flex min-w-0 items-center gap-2 text-xs text-soft md:hidden">
        <Status status={run.status} className="text-xs" />
        <span className="min-w-0 truncate">{run.status === "FAILED" ? failure : waits ? `for ${waits}` : run.kind}</span>
        <span className="ml-auto shrink-0 tabular-nums">{formatShort(run.createdAt)}</span>
      </span>
    </div>
  );
});
