// Something that is done to many runs: asked once, done one after the other, and told how it went.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { Run } from "../../api/client";
import { retry, stop } from "../../api/steer";
import { Button } from "../../parts/button";
import { Dialog } from "../../parts/dialog";
import { say } from "../../parts/toast";

const ways = {
  cancel: {
    title: "Cancel",
    button: "Ask them to stop",
    keep: "Keep them",
    explain: "They may tidy up for 30 seconds, and what runs below them is asked to stop as well.",
    done: "asked to stop",
    act: (run: Run): Promise<unknown> => stop(run.id, "graceful"),
  },
  retry: {
    title: "Retry",
    button: "Retry them",
    keep: "Leave them",
    explain: "They go on from their last commit: what has its result is not done again.",
    done: "begun again",
    act: (run: Run): Promise<unknown> => retry(run.id, {}),
  },
} as const;

interface ManyDialogProps {
  what: keyof typeof ways;
  runs: readonly Run[];
  onClose: () => void;
  onDone: () => void;
}

export function ManyDialog({ what, runs, onClose, onDone }: ManyDialogProps) {
  const client = useQueryClient();
  const [place, setPlace] = useState<number | null>(null);
  const way = ways[what];
  const go = async () => {
    let refused = 0;
    for (const [index, run] of runs.entries()) {
      setPlace(index);
      try {
        await way.act(run);
      } catch {
        refused++;
      }
    }
    const count = runs.length - refused;
    say(`${count} ${count === 1 ? "was" : "were"} ${way.done}${refused ? `, ${refused} refused` : ""}.`, refused > 0);
    await client.invalidateQueries({ queryKey: ["newest runs"] });
    onDone();
    onClose();
  };
  return (
    <Dialog
      title={`${way.title} ${runs.length === 1 ? "a run" : `${runs.length} runs`}?`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{way.keep}</Button>
          <Button tone={what === "cancel" ? "danger" : "primary"} busy={place !== null} onClick={() => void go()}>
            {place === null ? way.button : `${place + 1} of ${runs.length}`}
          </Button>
        </>
      }
    >
      <p className="text-sm">{way.explain}</p>
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
