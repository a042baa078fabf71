// The list of runs: newest first, live without moving under the reader's eyes.
import { canGoOn } from "@flovyn/react/client";
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { ArrowUp, Ban, Columns2, Plus, RotateCcw } from "lucide-react";
import { useCallback, useEffect, useMemo, useState } from "react";
import { newestRunsQuery, runsQuery } from "../../api/queries";
import { Button, buttonClass } from "../../parts/button";
import { PageHead } from "../../parts/page";
import { Empty, Failed, Loading } from "../../parts/states";
import { Filters, filterOf } from "./filters";
import { QuickStart } from "./quick_start";
import { ManyDialog } from "./many_dialog";
import { Rows } from "./rows";

const none: ReadonlySet<string> = new Set();

export function Runs() {
  const search = useSearch({ from: "/frame/runs" });
  // The span of an address is counted from when it was opened, not from each drawing.
  const filter = useMemo(() => filterOf(search), [search]);
  const client = useQueryClient();
  const list = useInfiniteQuery(runsQuery(filter));
  const newest = useQuery({ ...newestRunsQuery(filter), enabled: list.isSuccess });
  const [selected, setSelected] = useState(none);
  const [isAsking, setAsking] = useState<"cancel" | "retry" | null>(null);

  const { runs, unseen } = useMemo(() => {
    const listed = new Map((list.data?.pages ?? []).flatMap((page) => page.items).map((run) => [run.id, run]));
    let fresh = 0;
    for (const run of newest.data?.items ?? []) {
      // What is listed is brought up to date where it stands; what is new is counted.
      const before = listed.get(run.id);
      if (before) listed.set(run.id, before.totalUsage ? { ...run, totalUsage: before.totalUsage } : run);
      else if (!list.isPlaceholderData && run.createdAt >= (list.data?.pages[0]?.items[0]?.createdAt ?? "")) fresh++;
    }
    return { runs: [...listed.values()], unseen: fresh };
  }, [list.data, list.isPlaceholderData, newest.data]);

  const showNew = useCallback(() => void client.resetQueries({ queryKey: runsQuery(filter).queryKey }), [client, filter]);
  const onSelect = useCallback((id: string, isSelected: boolean) => {
    setSelected((before) => {
      const after = new Set(before);
      if (isSelected) after.add(id);
      else after.delete(id);
      return after;
    });
  }, []);
  const onEnd = useCallback(() => {
    if (!list.isFetchingNextPage) void list.fetchNextPage();
  }, [list]);
  const stoppable = runs.filter((run) => selected.has(run.id) && canGoOn(run));
  const chosen = runs.filter((run) => selected.has(run.id));
  const failed = chosen.filter((run) => run.status === "FAILED");
  const pair = chosen.length === 2 && chosen[0] && chosen[1] ? ([chosen[0], chosen[1]] as const) : null;
  const isFiltered = Object.keys(search).length > 0;
  // The server looks at so many runs for a page; where it finds none among them, there are more to look at.
  const isLooking = !runs.length && list.hasNextPage;
  useEffect(() => {
    if (isLooking && !list.isFetchingNextPage && !list.isError) void list.fetchNextPage();
  }, [isLooking, list]);

  return (
    <>
      <PageHead title="Runs" below={<Filters search={search} />}>
        {selected.size > 0 && (
          <>
            <span className="text-sm text-soft">{selected.size} selected</span>
            {pair && (
              <Link to="/compare" search={{ left: pair[1].id, right: pair[0].id }} className={buttonClass("plain")}>
                <Columns2 size={14} aria-hidden />
                Compare
              </Link>
            )}
            {failed.length > 0 && (
              <Button icon={<RotateCcw size={14} />} onClick={() => setAsking("retry")}>
                Retry {failed.length}
              </Button>
            )}
            <Button tone="danger" icon={<Ban size={14} />} disabled={!stoppable.length} onClick={() => setAsking("cancel")}>
              Cancel {stoppable.length || ""}
            </Button>
            <Button tone="quiet" onClick={() => setSelected(none)}>
              Select none
            </Button>
          </>
        )}
        <Link to="/runs/new" search={{}} className={buttonClass("primary")}>
          <Plus size={14} aria-hidden />
          New run
        </Link>
      </PageHead>
      {list.isPending || isLooking ? (
        <Loading what="Loading runs" />
      ) : list.isLoadingError && !runs.length ? (
        <Failed error={list.error} onRetry={() => void list.refetch()} />
      ) : !runs.length && !unseen ? (
        isFiltered ? (
          <Empty title="No run is like that">Change the filters, or clear them.</Empty>
        ) : (
          <QuickStart />
        )
      ) : (
        <div className="relative flex min-h-0 flex-1 flex-col">
          {unseen > 0 && (
            <Button small tone="primary" icon={<ArrowUp size={13} />} onClick={showNew} className="absolute top-10 left-1/2 z-20 -translate-x-1/2 rounded-full! shadow-md">
              {unseen === 100 ? "100 or more new" : `${unseen} new`}
            </Button>
          )}
          <Rows
            runs={runs}
            selected={selected}
            onSelect={onSelect}
            onSelectAll={(all) => setSelected(all ? new Set(runs.map((run) => run.id)) : none)}
            onEnd={onEnd}
            isMore={list.hasNextPage}
          />
        </div>
      )}
      {isAsking && <ManyDialog what={isAsking} runs={isAsking === "retry" ? failed : stoppable} onClose={() => setAsking(null)} onDone={() => setSelected(none)} />}
    </>
  );
}
