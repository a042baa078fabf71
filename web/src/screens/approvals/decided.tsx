// What people have decided about calls, newest first: the rows of the audit about it.
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { auditQuery } from "../../api/queries";
import { Button } from "../../parts/button";
import { formatMoment } from "../../parts/format";
import { Empty, Failed, Loading } from "../../parts/states";
import { Cell, Table } from "../../parts/table";

/** A row's subject: the run, the call, and how. Ids of calls may have spaces. */
function readSubject(subject: string): { run: string; call: string; how: string } {
  const [run = "", ...rest] = subject.split(" ");
  return { run, how: rest.at(-1) ?? "", call: rest.slice(0, -1).join(" ") };
}

export function Decided() {
  const found = useInfiniteQuery(auditQuery("approval.decide"));
  const rows = found.data?.pages.flatMap((page) => page.items) ?? [];
  if (found.isLoadingError) return <Failed error={found.error} onRetry={() => void found.refetch()} />;
  if (found.isPending) return <Loading what="Reading what was decided" />;
  if (!rows.length && !found.hasNextPage) return <Empty title="Nothing was decided yet">Decisions about calls stand here with who has made them, as the audit keeps them.</Empty>;
  return (
    <div className="flex flex-col gap-3 p-4">
      <Table label="Decided" head={["When", "Decision", "Call", "Run", "By whom"]}>
        {rows.map((each) => {
          const { run, call, how } = readSubject(each.subject);
          return (
            <tr key={each.id}>
              <Cell className="whitespace-nowrap tabular-nums">{formatMoment(each.at)}</Cell>
              <Cell className={how === "denied" ? "text-red" : ""}>{how}</Cell>
              <Cell className="max-w-xs font-mono text-xs [overflow-wrap:anywhere]">{call}</Cell>
              <Cell className="max-w-xs font-mono text-xs [overflow-wrap:anywhere]">
                <Link to="/runs/$id" params={{ id: run }} search={{}} className="text-accent underline underline-offset-2">
                  {run}
                </Link>
              </Cell>
              <Cell className="max-w-xs [overflow-wrap:anywhere]">{each.actor}</Cell>
            </tr>
          );
        })}
      </Table>
      {found.hasNextPage && (
        <Button className="self-center" busy={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
          Older
        </Button>
      )}
    </div>
  );
}
