// What the panes of a run share: which run is looked at, its transcript, and what the reader has unfolded.
import type { RunStore, RunView } from "@flovyn/react/client";
import { createContext, useContext, useState } from "react";
import type { Run } from "../../api/client";

export interface Shown {
  readonly root: Run;
  /** The run that is looked at: the root, or one below it. */
  readonly run: Run;
  readonly store: RunStore;
  readonly view: RunView;
  /** Blocks scroll out of sight and come back; what was unfolded stays so. */
  readonly unfolded: Map<string, boolean>;
  openChild(id: string): void;
  inspect(what: string | null): void;
}

export const ShownRun = createContext<Shown | null>(null);

export function useShown(): Shown {
  const shown = useContext(ShownRun);
  if (!shown) throw new Error("This is drawn outside of a run.");
  return shown;
}

/** Whether something is unfolded; remembered for as long as the run is looked at. */
export function useUnfolded(key: string, usual: boolean): [boolean, (isOpen: boolean) => void] {
  const { unfolded } = useShown();
  const [, draw] = useState(0);
  const isOpen = unfolded.get(key) ?? usual;
  return [
    isOpen,
    (next) => {
      unfolded.set(key, next);
      draw((count) => count + 1);
    },
  ];
}
