// Usage by model. A price that is not known is said, never counted as nothing.
import type { Schemas } from "../api/client";
import { formatCost, formatCount } from "./format";
import { Cell, Table } from "./table";

export function UsageTable({ usage }: { usage: Pick<Schemas["Usage"], "total" | "models"> }) {
  const models = Object.entries(usage.models).sort(([, left], [, right]) => tokensOf(right) - tokensOf(left));
  if (!models.length) return <p className="text-sm text-faint">No model was called.</p>;
  return (
    <Table
      label="Usage by model"
      head={["Model", ...["Calls", "Fresh input", "From cache", "To cache", "Output", "Cost"].map((name) => <span key={name} className="block text-right">{name}</span>)]}
    >
      {models.map(([model, of]) => (
        <Row key={model} name={model} of={of} />
      ))}
      {models.length > 1 && <Row name="All" of={usage.total} isTotal />}
    </Table>
  );
}

export function tokensOf(usage: Schemas["ModelUsage"]): number {
  return usage.inputTokens + usage.outputTokens + usage.cacheReadTokens + usage.cacheWriteTokens;
}

function Row({ name, of, isTotal = false }: { name: string; of: Schemas["ModelUsage"]; isTotal?: boolean }) {
  return (
    <tr className={isTotal ? "font-medium" : undefined}>
      <Cell className="font-mono text-xs">{name}</Cell>
      <Cell number>{formatCount(of.calls)}</Cell>
      <Cell number>{formatCount(of.inputTokens)}</Cell>
      <Cell number>{formatCount(of.cacheReadTokens)}</Cell>
      <Cell number>{formatCount(of.cacheWriteTokens)}</Cell>
      <Cell number>{formatCount(of.outputTokens)}</Cell>
      <Cell number>{of.costMicros == null ? <span className="text-amber">price unknown</span> : formatCost(of.costMicros / 1e6)}</Cell>
    </tr>
  );
}
