// What a run's model calls cost, by model, and how much of its budget is used.
import { useQuery } from "@tanstack/react-query";
import { runUsageQuery } from "../../api/queries";
import { UsageTable } from "../../parts/usage_table";
import { formatCost, formatCount } from "../../parts/format";
import { JsonView } from "../../parts/json_view";
import { Failed, Loading } from "../../parts/states";
import { useShown } from "./shown";

export function RunUsage() {
  const { run } = useShown();
  const found = useQuery(runUsageQuery(run.id));
  if (found.isLoadingError) return <Failed error={found.error} onRetry={() => void found.refetch()} />;
  if (!found.data) return <Loading what="Loading usage" />;
  const { budget } = run;
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-5 overflow-y-auto p-4">
      <UsageTable usage={found.data} />
      {budget && (
        <p className="text-sm text-soft">
          Budget: {budget.maxTokens != null && `${formatCount(budget.maxTokens)} tokens `}
          {budget.maxCostUsd != null && `${formatCost(budget.maxCostUsd)} `}
          {budget.maxCalls != null && `${formatCount(budget.maxCalls)} calls`}
        </p>
      )}
      <div>
        <h2 className="mb-1 text-sm font-semibold">Input</h2>
        <div className="rounded-md border border-line bg-surface p-3">
          <JsonView value={run.input ?? null} />
        </div>
      </div>
      {run.output !== undefined && run.output !== null && (
        <div>
          <h2 className="mb-1 text-sm font-semibold">Output</h2>
          <div className="rounded-md border border-line bg-surface p-3">
            <JsonView value={run.output} />
          </div>
        </div>
      )}
      {run.failure && (
        <div className="rounded-md border border-red/40 bg-red-ground p-3 text-sm">
          <p className="font-medium text-red">{run.failure.errorType}</p>
          <p className="[overflow-wrap:anywhere]">{run.failure.message}</p>
          {run.failure.traceback && (
            <pre tabIndex={0} className="mt-2 overflow-x-auto font-mono text-xs">
              {run.failure.traceback}
            </pre>
          )}
        </div>
      )}
      <details>
        <summary className="text-sm text-soft">The run as the server has it</summary>
        <div className="mt-2 rounded-md border border-line bg-surface p-3">
          <JsonView value={run} open={1} />
        </div>
      </details>
    </div>
  );
}
