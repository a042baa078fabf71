// Two runs beside each other: how they ended, what they took and cost, and where what was said differs.
import { titleOf, waitingFor } from "@flovyn/react/client";
import { useQueries } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { runQuery, saidQuery } from "../api/queries";
import type { Run } from "../api/client";
import { DiffView } from "../parts/diff_view";
import { formatCost, formatCount, formatMoment, formatSpan, formatTokens } from "../parts/format";
import { PageBody, PageHead, Section } from "../parts/page";
import { Empty, Failed, Loading } from "../parts/states";
import { Status } from "../parts/status";
import { Cell, Table } from "../parts/table";
import { tokensOf } from "../parts/usage_table";

const facts: readonly (readonly [string, (run: Run) => React.ReactNode])[] = [
  ["Status", (run) => <Status status={run.status} />],
  ["Waits for", (run) => waitingFor(run) ?? "–"],
  ["Agent", (run) => run.kind],
  ["Started", (run) => formatMoment(run.createdAt)],
  ["Took", (run) => formatSpan(run.duration)],
  ["Steps", (run) => formatCount(run.stepCount)],
  ["Model calls, with all below", (run) => formatCount(run.totalUsage?.calls ?? run.summary.modelCalls)],
  ["Tokens, with all below", (run) => formatTokens(run.totalUsage ? tokensOf(run.totalUsage) : run.summary.tokens)],
  ["Cost, with all below", (run) => (run.totalUsage?.calls ? formatCost(run.totalUsage.costMicros == null ? null : run.totalUsage.costMicros / 1e6) : "–")],
  ["Failure", (run) => run.failure?.message ?? "–"],
];

export function Compare() {
  const { left, right } = useSearch({ from: "/frame/compare" });
  const ids = [left ?? "", right ?? ""] as const;
  const isComplete = Boolean(left && right);
  const runs = useQueries({ queries: ids.map((id) => ({ ...runQuery(id), enabled: isComplete })) });
  const said = useQueries({ queries: ids.map((id) => ({ ...saidQuery(id), enabled: isComplete })) });
  const failed = [...runs, ...said].find((each) => each.isLoadingError);
  const [one, two] = runs.map((each) => each.data);
  const [first, second] = said.map((each) => each.data);
  return (
    <>
      <PageHead title="Compare two runs" />
      <PageBody>
        {!isComplete ? (
          <Empty title="Choose two runs">Select two in the list of runs, and press Compare.</Empty>
        ) : failed ? (
          <Failed error={failed.error} onRetry={() => void failed.refetch()} />
        ) : !one || !two ? (
          <Loading />
        ) : (
          <div className="flex flex-col gap-6 p-4">
            <Table label="Facts of both runs" head={["", <Name key="left" run={one} />, <Name key="right" run={two} />]}>
              {facts.map(([name, value]) => (
                <tr key={name}>
                  <Cell className="text-soft">{name}</Cell>
                  <Cell className="max-w-md [overflow-wrap:anywhere]">{value(one)}</Cell>
                  <Cell className="max-w-md [overflow-wrap:anywhere]">{value(two)}</Cell>
                </tr>
              ))}
            </Table>
            <Section title="What was said">
              {first === undefined || second === undefined ? (
                <Loading what="Reading both" />
              ) : (
                <>
                  <DiffView before={first.text} after={second.text} />
                  {(first.isCut || second.isCut) && <p className="text-xs text-amber">Only the first thousand entries of each are compared.</p>}
                </>
              )}
            </Section>
          </div>
        )}
      </PageBody>
    </>
  );
}

function Name({ run }: { run: Run }) {
  return (
    <Link to="/runs/$id" params={{ id: run.id }} search={{}} className="text-accent underline underline-offset-2">
      {run.key ?? titleOf(run)}
    </Link>
  );
}
