// Workers and queues: who works, what waits, and what nobody serves.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { AlertTriangle, Server } from "lucide-react";
import { useState } from "react";
import { answer, api, currentOrg } from "../api/client";
import type { Schemas } from "../api/client";
import { queueLimitsQuery, queuesQuery, unservedQuery, workersQuery } from "../api/queries";
import { Button } from "../parts/button";
import { Dialog } from "../parts/dialog";
import { TextField } from "../parts/field";
import { formatCount, formatMoment, formatRelative } from "../parts/format";
import { PageBody, PageHead, Section } from "../parts/page";
import { Empty, Failed, Loading } from "../parts/states";
import { Cell, Table } from "../parts/table";
import { useAction } from "../parts/use_action";

export function Workers() {
  const workers = useQuery(workersQuery);
  const queues = useQuery(queuesQuery);
  const unserved = useQuery(unservedQuery);
  const limits = useQuery(queueLimitsQuery);
  const [limiting, setLimiting] = useState<string | null>(null);
  const failed = [workers, queues, unserved].find((each) => each.isLoadingError);
  const list = [...(workers.data?.items ?? [])].sort((left, right) => Number(right.alive) - Number(left.alive) || (left.seenAt < right.seenAt ? 1 : -1));
  const busy = queues.data?.items.filter((each) => each.queued || each.running || each.unserved) ?? [];
  const names = [...new Set([...(queues.data?.items ?? []), ...(limits.data?.items ?? [])].map((each) => each.queue))].sort();
  return (
    <>
      <PageHead title="Workers and queues" />
      <PageBody>
        {failed && <Failed error={failed.error} onRetry={() => void failed.refetch()} />}
        <div className="flex flex-col gap-6 p-4">
          {unserved.data && unserved.data.items.length > 0 && (
            <div role="alert" className="flex flex-col gap-1.5 rounded-lg border border-amber/50 bg-amber-ground p-4 text-sm">
              <p className="flex items-center gap-2 font-medium text-amber">
                <AlertTriangle size={15} aria-hidden />
                Stuck: no live worker serves this
              </p>
              <ul className="flex flex-col gap-1">
                {unserved.data.items.map((each) => (
                  <li key={`${each.queue} ${each.kind}`}>
                    <Link to="/runs" search={{ kind: each.kind, queue: each.queue, all: true }} className="underline underline-offset-2">
                      {formatCount(each.waiting)} {each.waiting === 1 ? "waits" : "wait"} for <code className="font-mono text-xs">{each.kind}</code>
                    </Link>
                    : no worker polls the queue <code className="font-mono text-xs">{each.queue}</code> for it. Start one that serves it there.
                  </li>
                ))}
              </ul>
            </div>
          )}
          <Section title="Workers">
            {workers.isPending ? (
              <Loading />
            ) : !list.length ? (
              <Empty title="No worker has called yet" icon={<Server size={26} aria-hidden />}>
                Start one with <code className="font-mono text-xs">flovyn worker http://HOST:PORT</code>, or with <code className="font-mono text-xs">client.worker(agents=[…])</code>.
              </Empty>
            ) : (
              <Table label="Workers" head={["Worker", "State", "Queues", "Serves", "Last sign of life"]}>
                {list.map((each) => (
                  <tr key={each.id}>
                    <Cell>
                      <span className="font-medium">{each.name}</span>
                      <span className="block font-mono text-xs text-faint">{each.id.slice(0, 8)}</span>
                    </Cell>
                    <Cell>{each.alive ? <span className="whitespace-nowrap text-green">● alive</span> : <span className="whitespace-nowrap text-faint">○ gone</span>}</Cell>
                    <Cell>{each.queues.join(", ")}</Cell>
                    <Cell className="max-w-lg">
                      <Kinds serves={each.serves} />
                    </Cell>
                    <Cell className="whitespace-nowrap">
                      <time dateTime={each.seenAt} title={formatMoment(each.seenAt)}>
                        {formatRelative(each.seenAt)}
                      </time>
                    </Cell>
                  </tr>
                ))}
              </Table>
            )}
          </Section>
          <Section title="Queues">
            {queues.isPending ? (
              <Loading />
            ) : (
              <Table label="Queues" head={["Queue", "Kind", ...["Waiting", "Running", "Unserved"].map((name) => <span key={name} className="block text-right">{name}</span>)]}>
                {busy.map((each) => (
                  <tr key={`${each.queue} ${each.kind}`}>
                    <Cell>{each.queue}</Cell>
                    <Cell className="font-mono text-xs">{each.kind}</Cell>
                    <Cell number>{formatCount(each.queued)}</Cell>
                    <Cell number>{formatCount(each.running)}</Cell>
                    <Cell number className={each.unserved ? "text-amber" : "text-faint"}>
                      {formatCount(each.unserved)}
                    </Cell>
                  </tr>
                ))}
                {!busy.length && (
                  <tr>
                    <Cell className="text-faint">All queues are empty.</Cell>
                  </tr>
                )}
              </Table>
            )}
          </Section>
          <Section title="Limits">
            <Table label="Limits of queues" head={["Queue", "Runs at a time", "Rate", ""]}>
              {names.map((name) => {
                const limit = limits.data?.items.find((each) => each.queue === name);
                return (
                  <tr key={name}>
                    <Cell>{name}</Cell>
                    <Cell>{limit?.concurrency ?? <span className="text-faint">no limit</span>}</Cell>
                    <Cell>{limit?.rate ? `${limit.rate.runs} in ${limit.rate.seconds} s` : <span className="text-faint">no limit</span>}</Cell>
                    <Cell className="text-right">
                      <Button small onClick={() => setLimiting(name)}>
                        Change
                      </Button>
                    </Cell>
                  </tr>
                );
              })}
              {!names.length && (
                <tr>
                  <Cell className="text-faint">A queue is there as soon as something is started in it.</Cell>
                </tr>
              )}
            </Table>
          </Section>
        </div>
      </PageBody>
      {limiting !== null && <LimitDialog queue={limiting} limit={limits.data?.items.find((each) => each.queue === limiting)} onClose={() => setLimiting(null)} />}
    </>
  );
}

function Kinds({ serves }: { serves: readonly Schemas["Served"][] }) {
  const kinds = [...new Set(serves.map((each) => each.kind))];
  const shown = kinds.slice(0, 6).join(", ");
  return (
    <span className="font-mono text-xs text-soft" title={kinds.join(", ")}>
      {shown}
      {kinds.length > 6 && ` and ${kinds.length - 6} more`}
    </span>
  );
}

function LimitDialog({ queue, limit, onClose }: { queue: string; limit: Schemas["Queue"] | undefined; onClose: () => void }) {
  const client = useQueryClient();
  const action = useAction();
  const [concurrency, setConcurrency] = useState(limit?.concurrency?.toString() ?? "");
  const [runs, setRuns] = useState(limit?.rate?.runs.toString() ?? "");
  const [seconds, setSeconds] = useState(limit?.rate?.seconds.toString() ?? "60");
  const path = { org: currentOrg(), queue };
  const done = (ok: boolean) => {
    if (!ok) return;
    void client.invalidateQueries({ queryKey: ["queues"] });
    onClose();
  };
  const save = () => {
    const body: Schemas["QueueLimit"] = { ...(concurrency && { concurrency: Number(concurrency) }), ...(runs && { rate: { runs: Number(runs), seconds: Number(seconds) || 60 } }) };
    const isFree = !concurrency && !runs;
    void action.run(() => (isFree ? answer(api.DELETE("/api/orgs/{org}/queues/{queue}", { params: { path } })) : answer(api.PUT("/api/orgs/{org}/queues/{queue}", { params: { path }, body }))), "The limit is set.").then(done);
  };
  return (
    <Dialog
      title={`Limit the queue ${queue}`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Back</Button>
          <Button tone="primary" busy={action.busy} onClick={save}>
            Save
          </Button>
        </>
      }
    >
      <div className="grid grid-cols-1 gap-3 sm:grid-cols-3">
        <TextField label="Runs at a time" hint="Empty: no limit. Waiting ones do not count." inputMode="numeric" value={concurrency} onChange={(event) => setConcurrency(event.target.value.replace(/\D/g, ""))} />
        <TextField label="Runs handed out" hint="Empty: no limit." inputMode="numeric" value={runs} onChange={(event) => setRuns(event.target.value.replace(/\D/g, ""))} />
        <TextField label="in seconds" inputMode="numeric" value={seconds} onChange={(event) => setSeconds(event.target.value.replace(/\D/g, ""))} />
      </div>
    </Dialog>
  );
}
