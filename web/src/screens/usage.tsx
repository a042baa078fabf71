// Usage and cost: by day and by model, of the runs that were started in a span.
import { useQueries, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { usageQuery } from "../api/queries";
import { InlineSelect } from "../parts/field";
import { formatCost, formatCount, formatTokens } from "../parts/format";
import { PageBody, PageHead, Section } from "../parts/page";
import { Failed, Loading } from "../parts/states";
import { Cell, Table } from "../parts/table";
import { UsageTable, tokensOf } from "../parts/usage_table";

const SPANS = { "1": "Last day", "7": "Last 7 days", "14": "Last 14 days", "30": "Last 30 days" } as const;
const day = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });

export function UsageScreen() {
  const search = useSearch({ from: "/frame/usage" });
  const navigate = useNavigate({ from: "/usage" });
  const days = search.days !== undefined && search.days in SPANS ? Number(search.days) : 7;
  const kind = search.kind;
  // Days of the reader's calendar, the last one until the end of today.
  const bounds = useMemo(() => {
    const end = new Date();
    end.setHours(24, 0, 0, 0);
    return Array.from({ length: days + 1 }, (_, index) => {
      const at = new Date(end);
      at.setDate(end.getDate() - (days - index));
      return at.toISOString();
    });
  }, [days]);
  const whole = useQuery(usageQuery(bounds[0] ?? "", bounds.at(-1) ?? "", kind));
  const each = useQueries({ queries: bounds.slice(0, -1).map((from, index) => ({ ...usageQuery(from, bounds[index + 1] ?? from, kind), enabled: whole.isSuccess })) });
  const rows = bounds.slice(0, -1).map((from, index) => ({ from, usage: each[index]?.data }));
  const most = Math.max(1, ...rows.map((row) => (row.usage ? tokensOf(row.usage.total) : 0)));
  const unknown = Object.entries(whole.data?.models ?? {}).filter(([, of]) => of.costMicros == null && of.calls > 0);
  const known = Object.values(whole.data?.models ?? {}).reduce((sum, of) => sum + (of.costMicros ?? 0), 0);
  return (
    <>
      <PageHead title="Usage and cost">
        <InlineSelect label="Span" value={String(days)} onChange={(event) => void navigate({ search: { ...search, days: event.target.value } })}>
          {Object.entries(SPANS).map(([value, word]) => (
            <option key={value} value={value}>
              {word}
            </option>
          ))}
        </InlineSelect>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            const said = new FormData(event.currentTarget).get("kind");
            const { kind: _, ...rest } = search;
            void navigate({ search: typeof said === "string" && said.trim() ? { ...rest, kind: said.trim() } : rest });
          }}
        >
          <input data-search name="kind" aria-label="Kind" placeholder="Any kind" defaultValue={kind ?? ""} className="h-8 w-32 rounded-md border border-line bg-surface px-2 text-sm placeholder:text-soft" />
        </form>
      </PageHead>
      <PageBody>
        {whole.isLoadingError ? (
          <Failed error={whole.error} onRetry={() => void whole.refetch()} />
        ) : !whole.data ? (
          <Loading what="Adding up" />
        ) : (
          <div className="flex flex-col gap-6 p-4">
            <dl className="flex flex-wrap gap-3">
              <Figure name="Cost" value={known || !unknown.length ? formatCost(known / 1e6) : "unknown"} note={unknown.length && known ? "and what has no known price" : undefined} />
              <Figure name="Tokens" value={formatTokens(tokensOf(whole.data.total))} />
              <Figure name="Model calls" value={formatCount(whole.data.total.calls)} />
              <Figure name="Runs" value={formatCount(whole.data.runs)} />
              <Figure name="From the cache" value={share(whole.data.total.cacheReadTokens, whole.data.total.inputTokens + whole.data.total.cacheReadTokens + whole.data.total.cacheWriteTokens)} />
            </dl>
            {unknown.length > 0 && (
              <p className="rounded-lg border border-amber/40 bg-amber-ground p-3 text-sm">
                No price is known of {unknown.map(([model]) => model).join(", ")}. What they cost is not in the sum; <code className="font-mono text-xs">FLOVYN_PRICES</code> names a table of your own.
              </p>
            )}
            <Section title="By day">
              <Table label="Usage by day" head={["Day", <span key="tokens" className="block text-right">Tokens</span>, "", ...["Runs", "Calls", "Cost"].map((name) => <span key={name} className="block text-right">{name}</span>)]}>
                {rows.map(({ from, usage }) => (
                  <tr key={from}>
                    <Cell className="whitespace-nowrap">{day.format(new Date(from))}</Cell>
                    <Cell number>{usage ? formatTokens(tokensOf(usage.total)) : "…"}</Cell>
                    <Cell className="w-1/2 min-w-32">
                      <span aria-hidden className="block h-2.5 rounded-sm bg-accent" style={{ width: `${usage ? (tokensOf(usage.total) / most) * 100 : 0}%` }} />
                    </Cell>
                    <Cell number>{usage ? formatCount(usage.runs) : ""}</Cell>
                    <Cell number>{usage ? formatCount(usage.total.calls) : ""}</Cell>
                    <Cell number>{usage ? (usage.total.calls === 0 ? "–" : formatCost(usage.total.costMicros == null ? null : usage.total.costMicros / 1e6)) : ""}</Cell>
                  </tr>
                ))}
              </Table>
            </Section>
            <Section title="By model">
              <UsageTable usage={whole.data} />
            </Section>
          </div>
        )}
      </PageBody>
    </>
  );
}

function share(part: number, whole: number): string {
  return whole ? new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 0 }).format(part / whole) : "–";
}

function Figure({ name, value, note }: { name: string; value: string; note?: string | undefined }) {
  return (
    <div className="min-w-32 rounded-lg border border-line bg-surface px-4 py-2.5">
      <dt className="text-xs text-faint">{name}</dt>
      <dd className="text-lg font-semibold tabular-nums">{value}</dd>
      {note && <dd className="text-xs text-amber">{note}</dd>}
    </div>
  );
}
