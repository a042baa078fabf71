// Schedules: runs that the clock starts.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { CalendarClock, Plus } from "lucide-react";
import { useState } from "react";
import { answer, api, currentOrg } from "../api/client";
import type { Schemas } from "../api/client";
import { schedulesQuery } from "../api/queries";
import { Button } from "../parts/button";
import { Dialog } from "../parts/dialog";
import { Check, TextArea, TextField } from "../parts/field";
import { formatMoment, formatRelative } from "../parts/format";
import { PageBody, PageHead } from "../parts/page";
import { Empty, Failed, Loading } from "../parts/states";
import { Cell, Table } from "../parts/table";
import { useAction } from "../parts/use_action";

type Schedule = Schemas["Schedule"];

async function put(schedule: Partial<Schedule> & { kind: string; cron: string }): Promise<void> {
  const { nextAt: _, createdAt: __, ...said } = schedule;
  const body = Object.fromEntries(Object.entries(said).filter(([, value]) => value !== null && value !== undefined));
  await answer(api.POST("/api/orgs/{org}/schedules", { params: { path: { org: currentOrg() } }, body: body as never }));
}

export function Schedules() {
  const client = useQueryClient();
  const found = useQuery(schedulesQuery);
  const action = useAction();
  const [editing, setEditing] = useState<Schedule | "new" | null>(null);
  const refresh = () => client.invalidateQueries({ queryKey: ["schedules"] });
  const remove = (id: string) => void action.run(() => answer(api.DELETE("/api/orgs/{org}/schedules/{schedule}", { params: { path: { org: currentOrg(), schedule: id } } })), "It is removed; its runs stay.").then(refresh);
  return (
    <>
      <PageHead title="Schedules">
        <Button tone="primary" icon={<Plus size={14} />} onClick={() => setEditing("new")}>
          New schedule
        </Button>
      </PageHead>
      <PageBody>
        {found.isLoadingError ? (
          <Failed error={found.error} onRetry={() => void found.refetch()} />
        ) : !found.data ? (
          <Loading />
        ) : !found.data.items.length ? (
          <Empty title="No schedules" icon={<CalendarClock size={26} aria-hidden />}>
            One starts a run of an agent by the clock: each morning, each hour, on workdays.
          </Empty>
        ) : (
          <div className="p-4">
            <Table label="Schedules" head={["Schedule", "Agent", "When", "Next run", "Queue", ""]}>
              {found.data.items.map((each) => (
                <tr key={each.id}>
                  <Cell className="font-medium">{each.id}</Cell>
                  <Cell>{each.kind}</Cell>
                  <Cell>
                    <code className="font-mono text-xs">{each.cron}</code> <span className="text-xs text-faint">{each.timezone ?? "UTC"}</span>
                  </Cell>
                  <Cell className="whitespace-nowrap">{each.paused ? <span className="text-violet">paused</span> : each.nextAt ? <time title={formatMoment(each.nextAt)}>{formatRelative(each.nextAt)}</time> : "never again"}</Cell>
                  <Cell>{each.queue}</Cell>
                  <Cell className="text-right whitespace-nowrap">
                    <span className="inline-flex gap-1.5">
                      <Button small onClick={() => void action.run(() => put({ ...each, paused: !each.paused })).then(refresh)}>
                        {each.paused ? "Go on" : "Pause"}
                      </Button>
                      <Button small onClick={() => setEditing(each)}>
                        Edit
                      </Button>
                      <Button small tone="danger" onClick={() => remove(each.id)}>
                        Remove
                      </Button>
                    </span>
                  </Cell>
                </tr>
              ))}
            </Table>
          </div>
        )}
      </PageBody>
      {editing && <ScheduleDialog schedule={editing === "new" ? null : editing} onClose={() => setEditing(null)} onDone={refresh} />}
    </>
  );
}

function ScheduleDialog({ schedule, onClose, onDone }: { schedule: Schedule | null; onClose: () => void; onDone: () => unknown }) {
  const action = useAction();
  const [id, setId] = useState(schedule?.id ?? "");
  const [kind, setKind] = useState(schedule?.kind ?? "");
  const [cron, setCron] = useState(schedule?.cron ?? "0 8 * * MON-FRI");
  const [timezone, setTimezone] = useState(schedule?.timezone ?? (schedule ? "" : Intl.DateTimeFormat().resolvedOptions().timeZone));
  const [queue, setQueue] = useState(schedule?.queue ?? "");
  const [input, setInput] = useState(schedule ? JSON.stringify(schedule.input ?? null, null, 2) : "");
  const [paused, setPaused] = useState(schedule?.paused ?? false);
  const [error, setError] = useState<string | null>(null);
  const save = () => {
    let value: unknown = null;
    try {
      value = input.trim() ? JSON.parse(input) : null;
    } catch (found) {
      setError(`This is no JSON: ${found instanceof Error ? found.message : ""}`);
      return;
    }
    const { metadata, priority, concurrencyKey, concurrencyLimit } = schedule ?? {};
    void action
      .run(
        () => put({ ...(id.trim() && { id: id.trim() }), kind: kind.trim(), cron: cron.trim(), ...(timezone && { timezone }), ...(queue && { queue }), input: value as never, paused, ...(metadata && { metadata }), ...(priority && { priority }), ...(concurrencyKey && { concurrencyKey }), ...(concurrencyLimit && { concurrencyLimit }) }),
        "The schedule is saved.",
      )
      .then((done) => done && (onDone(), onClose()));
  };
  return (
    <Dialog
      title={schedule ? `Schedule ${schedule.id}` : "New schedule"}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Back</Button>
          <Button tone="primary" busy={action.busy} disabled={!kind.trim() || !cron.trim()} onClick={save}>
            Save
          </Button>
        </>
      }
    >
      <div className="flex flex-col gap-3">
        <div className="grid gap-3 sm:grid-cols-2">
          <TextField label="Id" value={id} disabled={schedule !== null} onChange={(event) => setId(event.target.value)} placeholder="digest" />
          <TextField label="Agent" value={kind} onChange={(event) => setKind(event.target.value)} placeholder="react-agent" />
          <TextField label="When (cron)" value={cron} onChange={(event) => setCron(event.target.value)} hint="Minute, hour, day, month, day of week; or @daily" className="font-mono" />
          <TextField label="Time zone" value={timezone} onChange={(event) => setTimezone(event.target.value)} placeholder="UTC" />
          <TextField label="Queue" value={queue} onChange={(event) => setQueue(event.target.value)} placeholder="default" />
        </div>
        <TextArea label="Input of every run, as JSON" value={input} onChange={(event) => setInput(event.target.value)} error={error} rows={6} spellCheck={false} className="font-mono text-xs" placeholder='{"userPrompt": "What is new?"}' />
        <Check label="Paused" checked={paused} onChange={(event) => setPaused(event.target.checked)} />
      </div>
    </Dialog>
  );
}
