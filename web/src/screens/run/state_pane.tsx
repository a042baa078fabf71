// State and checkpoints: what the run kept at each, what differs from the one before, and a fork with another state.
import { asObject, asText } from "@flovyn/react/transcript";
import { useQuery } from "@tanstack/react-query";
import { GitFork } from "lucide-react";
import { useState } from "react";
import { checkpointQuery, checkpointsQuery } from "../../api/queries";
import type { Checkpoint } from "../../api/client";
import { Button } from "../../parts/button";
import { classNames } from "../../parts/class_names";
import { CopyButton } from "../../parts/copy";
import { DiffView } from "../../parts/diff_view";
import { formatBytes, formatShort } from "../../parts/format";
import { JsonView } from "../../parts/json_view";
import { Empty, Failed, Loading } from "../../parts/states";
import { ForkDialog } from "./actions";
import { ReferencedValue } from "./referenced_value";
import { useShown } from "./shown";

/** JSON with its members in order, so that only what differs differs. */
export function sortedJson(value: unknown): string {
  const sorted = (each: unknown): unknown => {
    if (Array.isArray(each)) return each.map(sorted);
    const object = asObject(each);
    return object ? Object.fromEntries(Object.keys(object).sort().map((key) => [key, sorted(object[key])])) : each;
  };
  return JSON.stringify(sorted(value), null, 2) ?? "";
}

export function StatePane() {
  const { run } = useShown();
  const found = useQuery(checkpointsQuery(run.id));
  const [chosen, setChosen] = useState<number | null>(null);
  if (found.isLoadingError) return <Failed error={found.error} onRetry={() => void found.refetch()} />;
  if (!found.data) return <Loading what="Loading checkpoints" />;
  const list = [...found.data.checkpoints].sort((left, right) => right.sequence - left.sequence);
  if (!list.length) return <Empty title="No checkpoints">An agent with state saves one now and then, and starts again there.</Empty>;
  const current = list.find((each) => each.sequence === chosen) ?? list[0];
  return (
    <div className="flex min-h-0 flex-1 flex-col md:flex-row">
      <ul aria-label="Checkpoints" className="max-h-40 shrink-0 overflow-y-auto border-b border-line md:max-h-none md:w-60 md:border-r md:border-b-0">
        {list.map((each) => (
          <li key={each.sequence}>
            <button
              type="button"
              aria-current={each === current}
              onClick={() => setChosen(each.sequence)}
              className={classNames("flex w-full items-baseline gap-2 px-4 py-1.5 text-left text-sm hover:bg-hover", each === current && "bg-accent-ground")}
            >
              <span className="font-medium">#{each.sequence}</span>
              <span className="min-w-0 truncate text-xs text-soft">{asText(asObject(each.metadata)?.["reason"]) ?? formatShort(each.createdAt)}</span>
              <span className="ml-auto text-xs text-faint tabular-nums">{formatBytes(each.stateSize)}</span>
            </button>
          </li>
        ))}
      </ul>
      {current && <One key={current.sequence} listed={current} />}
    </div>
  );
}

function One({ listed }: { listed: Checkpoint }) {
  const { run } = useShown();
  const seq = listed.sequence;
  const found = useQuery(checkpointQuery(run.id, seq));
  const before = useQuery({ ...checkpointQuery(run.id, seq - 1), enabled: seq > 1 });
  const [isDiff, setDiff] = useState(true);
  const [isForking, setForking] = useState(false);
  if (found.isLoadingError) return <Failed error={found.error} onRetry={() => void found.refetch()} />;
  const checkpoint = found.data;
  if (!checkpoint) return <Loading />;
  const reference = checkpoint.stateRef ?? null;
  const canDiff = seq > 1 && !reference && before.isSuccess && !before.data.stateRef;
  return (
    <div className="min-h-0 min-w-0 flex-1 overflow-y-auto p-4" tabIndex={0} role="region" aria-label={`Checkpoint ${seq}`}>
      <div className="mb-3 flex flex-wrap items-center gap-2">
        <h2 className="mr-auto text-sm font-semibold">Checkpoint {seq}</h2>
        {canDiff && (
          <Button small onClick={() => setDiff(!isDiff)}>
            {isDiff ? "Show all of it" : "Show what differs"}
          </Button>
        )}
        <Button small icon={<GitFork size={13} />} onClick={() => setForking(true)}>
          Edit and go on…
        </Button>
        {!reference && <CopyButton text={() => JSON.stringify(checkpoint.state, null, 2)} label="Copy the state" />}
      </div>
      {reference ? (
        <ReferencedValue href={reference.href ?? null} size={reference.size} />
      ) : canDiff && isDiff ? (
        <>
          <p className="mb-2 text-xs text-faint">What differs from checkpoint {seq - 1}:</p>
          <DiffView before={sortedJson(before.data.state)} after={sortedJson(checkpoint.state)} />
        </>
      ) : (
        <div className="rounded-md border border-line bg-surface p-3">
          <JsonView value={checkpoint.state} open={3} />
        </div>
      )}
      {checkpoint.metadata !== null && checkpoint.metadata !== undefined && (
        <div className="mt-4">
          <h3 className="text-xs font-medium text-soft">What its author said about it</h3>
          <JsonView value={checkpoint.metadata} />
        </div>
      )}
      {isForking && <ForkDialog onClose={() => setForking(false)} point={{ checkpoint: seq }} where={`at checkpoint ${seq}`} {...(reference ? {} : { state: checkpoint.state ?? null })} />}
    </div>
  );
}
