// `useRun`: a run and what is told of it, live, for as long as a component shows it.
import { RunStore } from "@flovyn/react/client";
import type { RunView } from "@flovyn/react/client";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import { flovyn } from "../api/client";
import type { Run } from "../api/client";
import { runQuery } from "../api/queries";
import { setConnection } from "./connection";

export interface LiveRun {
  readonly run: Run | undefined;
  readonly error: Error | null;
  readonly view: RunView;
  readonly store: RunStore;
  refresh(): void;
}

export function useRun(id: string): LiveRun {
  const client = useQueryClient();
  const found = useQuery(runQuery(id));
  const uuid = found.data?.id;
  const soon = useRef(new Map<string, ReturnType<typeof setTimeout>>());
  const store = useMemo(() => {
    // Several events of life come together; what is asked for them is asked once.
    const onLife = (run: string) => {
      if (soon.current.has(run)) return;
      const timer = setTimeout(() => {
        soon.current.delete(run);
        void client.invalidateQueries({ queryKey: ["run", run] });
        if (run === uuid && uuid !== id) void client.invalidateQueries({ queryKey: ["run", id] });
        void client.invalidateQueries({ queryKey: ["children"] });
      }, 300);
      soon.current.set(run, timer);
    };
    return new RunStore(flovyn, uuid ?? "", { onLife, onConnection: setConnection });
  }, [client, id, uuid]);
  useEffect(() => {
    const timers = soon.current;
    return () => {
      store.stop();
      for (const timer of timers.values()) clearTimeout(timer);
      timers.clear();
    };
  }, [store]);
  const run = found.data;
  useEffect(() => {
    if (run) store.open(run);
  }, [run, store]);
  const view = useSyncExternalStore(store.subscribe, store.current);
  return { run, error: found.error, view, store, refresh: () => void found.refetch() };
}
