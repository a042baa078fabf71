// The screen of a run: its head, the pane that the address names, and the inspector beside it.
import { useQueries } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Suspense, lazy, useCallback, useEffect, useMemo, useRef } from "react";
import { runQuery } from "../../api/queries";
import { useRun } from "../../live/use_run";
import { Failed, Loading } from "../../parts/states";
import { Composer } from "./composer";
import { Conversation } from "./conversation";
import { Header } from "./header";
import { ShownRun } from "./shown";
import type { Shown } from "./shown";

const Inspector = lazy(() => import("./inspector").then((found) => ({ default: found.Inspector })));
const Timeline = lazy(() => import("./timeline").then((found) => ({ default: found.Timeline })));
const Files = lazy(() => import("./files").then((found) => ({ default: found.Files })));
const EntryTree = lazy(() => import("./entry_tree").then((found) => ({ default: found.EntryTree })));
const StatePane = lazy(() => import("./state_pane").then((found) => ({ default: found.StatePane })));
const Family = lazy(() => import("./family").then((found) => ({ default: found.Family })));
const RunUsage = lazy(() => import("./run_usage").then((found) => ({ default: found.RunUsage })));

export function RunScreen() {
  const { id } = useParams({ from: "/frame/runs/$id" });
  return <Screen key={id} id={id} />;
}

function Screen({ id }: { id: string }) {
  const search = useSearch({ from: "/frame/runs/$id" });
  const navigate = useNavigate({ from: "/runs/$id" });
  const { run: root, error, view, store, refresh } = useRun(id);
  const below = useMemo(() => search.child?.split(".").filter(Boolean) ?? [], [search.child]);
  const children = useQueries({ queries: below.map((child) => runQuery(child)) });
  const innermost = children.at(-1);
  const run = below.length ? innermost?.data : root;
  const unfolded = useRef(new Map<string, boolean>());

  useEffect(() => {
    if (run && root && run.id !== root.id) store.open(run);
  }, [root, run, store]);

  const openChild = useCallback((child: string) => void navigate({ search: ({ inspect: _, tab: __, ...rest }) => ({ ...rest, child: [...(rest.child?.split(".") ?? []), child].join(".") }) }), [navigate]);
  const inspect = useCallback((what: string | null) => void navigate({ search: ({ inspect: _, ...rest }) => (what === null ? rest : { ...rest, inspect: what }) }), [navigate]);

  // Escape leaves what was opened last: the inspector, then the child.
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || document.querySelector("dialog[open]") || event.defaultPrevented) return;
      if (search.inspect) inspect(null);
      else if (below.length) void navigate({ search: ({ child: _, ...rest }) => (below.length === 1 ? rest : { ...rest, child: below.slice(0, -1).join(".") }) });
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [below, inspect, navigate, search.inspect]);

  const shown = useMemo<Shown | null>(
    () => (root && run ? { root, run, store, view, unfolded: unfolded.current, openChild, inspect } : null),
    [root, run, store, view, openChild, inspect],
  );

  if (error && !root) return <Failed error={error} onRetry={refresh} />;
  if (innermost?.isLoadingError) return <Failed error={innermost.error} onRetry={() => void innermost.refetch()} />;
  if (!shown || !root) return <Loading what="Loading the run" />;
  const tab = search.tab ?? "conversation";
  const crumbs = [{ id: root.id, name: root.key ?? root.kind }, ...children.map((each, index) => ({ id: below[index] ?? "", name: each.data?.kind ?? "…" }))];
  return (
    <ShownRun value={shown}>
      <Header crumbs={crumbs} tab={tab} />
      <div className="flex min-h-0 flex-1">
        <div className="flex min-h-0 min-w-0 flex-1 flex-col">
          <Suspense fallback={<Loading />}>
            {tab === "conversation" ? (
              <>
                <Conversation key={shown.run.id} />
                <Composer key={`${shown.run.id} composer`} />
              </>
            ) : tab === "timeline" ? (
              <Timeline />
            ) : tab === "files" ? (
              <Files />
            ) : tab === "tree" ? (
              <EntryTree />
            ) : tab === "state" ? (
              <StatePane />
            ) : tab === "family" ? (
              <Family />
            ) : (
              <RunUsage />
            )}
          </Suspense>
        </div>
        {search.inspect && (
          <Suspense>
            <Inspector what={search.inspect} />
          </Suspense>
        )}
      </div>
    </ShownRun>
  );
}
