// How the tab's one stream stands, for the pill in the frame; null while no stream is wanted.
import type { Connection } from "@flovyn/react/client";
import { useSyncExternalStore } from "react";

let current: Connection | null = null;
const listeners = new Set<() => void>();

export function setConnection(connection: Connection | null): void {
  current = connection;
  for (const listener of listeners) listener();
}

export function useConnection(): Connection | null {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}
