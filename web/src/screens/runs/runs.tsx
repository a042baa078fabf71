// The list of runs: newest first, live without moving under the reader's eyes.
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { ArrowUp, Ban, Columns2, Plus } from "lucide-react";
import { useCallback, useMemo, useState } from "react";
import { answer, api, currentOrg } from "../../api/client";
import type { Run } from "../../api/client";
import { newestRunsQuery, runsQuery } from "../../api/queries";
import { canGoOn } from "../../api/waiting";
import { Button, buttonClass } from "../../parts/button";
import { Dialog } from "../../parts/dialog";
import { PageHead } from "../../parts/page";
import { Empty, Failed, Loading } from "../../parts/states";
import { say } from "../../parts/toast";
import { Filters, filterOf } from "./filters";
import { QuickStart } from "./quick_start";
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
  const [isAsking, setAsking] = useState(false);

  const { runs, unseen } = useMemo(() => {
    const listed = new Map((list.data?.pages ?? []).flatMap((page) => page.items).map((run) => [run.id, run]));
    let fresh = 0;
    for (const run of newest.data?.items ?? []) {
      // What is listed is brought up to date where it stands; what is new is counted.
      if (listed.has(run.id)) listed.set(run.id, run);
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
  const pair = chosen.length === 2 && chosen[0] && chosen[1] ? ([chosen[0], chosen[1]] as const) : null;
  const isFiltered = Object.keys(search).length > 0;

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
            <Button tone="danger" icon={<Ban size={14} />} disabled={!stoppable.length} onClick={() => setAsking(true)}>
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
      {list.isPending ? (
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
      {isAsking && <CancelMany runs={stoppable} onClose={() => setAsking(false)} onDone={() => setSelected(none)} />}
    </>
  );
}

function CancelMany({ runs, onClose, onDone }: { runs: readonly Run[]; onClose: () => void; onDone: () => void }) {
  const client = useQueryClient();
  const [done, setDone] = useState<number | null>(null);
  const cancel = async () => {
    let failed = 0;
    for (const [index, run] of runs.entries()) {
      setDone(index);
      try {
        await answer(api.POST("/api/orgs/{org}/agent-executions/{id}/cancel", { params: { path: { org: currentOrg(), id: run.id } }, body: { mode: "graceful" } }));
      } catch {
        failed++;
      }
    }
    say(failed ? `${runs.length - failed} were asked to stop, ${failed} refused.` : `${runs.length === 1 ? "It was" : `${runs.length} were`} asked to stop.`, failed > 0);
    await client.invalidateQueries({ queryKey: ["newest runs"] });
    onDone();
    onClose();
  };
  return (
    <Dialog
      title={`Cancel ${runs.length === 1 ? "a run" : `${runs.length} runs`}?`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Keep them</Button>
          <Button tone="danger" busy={done !== null} onClick={() => void cancel()}>
            {done === null ? "Ask them to stop" : `${done + 1} of ${runs.length}`}
          </Button>
        </>
      }
    >
      <p className="text-sm">They may tidy up for 30 seconds, and what runs below them is asked to stop as well.</p>
      <ul className="mt-3 max-h-60 overflow-y-auto text-sm text-soft">
        {runs.slice(0, 50).map((run) => (
          <li key={run.id} className="truncate">
            {run.kind} · {run.key ?? run.id}
          </li>
        ))}
        {runs.length > 50 && <li>and {runs.length - 50} more</li>}
      </ul>
    </Dialog>
  );
}
