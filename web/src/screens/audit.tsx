// The audit log: what was done to keys and runs, by whom, newest first.
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { auditQuery } from "../api/queries";
import { Button } from "../parts/button";
import { formatMoment } from "../parts/format";
import { PageBody, PageHead } from "../parts/page";
import { Empty, Failed, Loading } from "../parts/states";
import { Cell, Table } from "../parts/table";

export function Audit() {
  const found = useInfiniteQuery(auditQuery());
  const rows = found.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <>
      <PageHead title="Audit">
        <Button onClick={() => void found.refetch()}>Look again</Button>
      </PageHead>
      <PageBody>
        {found.isLoadingError ? (
          <Failed error={found.error} onRetry={() => void found.refetch()} />
        ) : found.isPending ? (
          <Loading />
        ) : !rows.length ? (
          <Empty title="Nothing was done yet">What people and programs do to keys and runs stands here, sealed row by row.</Empty>
        ) : (
          <div className="flex flex-col gap-3 p-4">
            <Table label="Audit" head={["When", "Action", "To what", "By whom", "Seal"]}>
              {rows.map((each) => (
                <tr key={each.id}>
                  <Cell className="whitespace-nowrap tabular-nums">{formatMoment(each.at)}</Cell>
                  <Cell className="font-mono text-xs whitespace-nowrap">{each.action}</Cell>
                  <Cell className="max-w-xs font-mono text-xs [overflow-wrap:anywhere]">
                    {each.action.startsWith("execution.") ? (
                      <Link to="/runs/$id" params={{ id: each.subject }} search={{}} className="text-accent underline underline-offset-2">
                        {each.subject}
                      </Link>
                    ) : (
                      each.subject
                    )}
                  </Cell>
                  <Cell className="max-w-xs [overflow-wrap:anywhere]">{each.actor}</Cell>
                  <Cell className="font-mono text-xs text-faint">
                    <span title={each.seal ?? undefined}>{each.seal?.slice(0, 12) ?? "none"}</span>
                  </Cell>
                </tr>
              ))}
            </Table>
            {found.hasNextPage && (
              <Button className="self-center" busy={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
                Older
              </Button>
            )}
          </div>
        )}
      </PageBody>
    </>
  );
}
