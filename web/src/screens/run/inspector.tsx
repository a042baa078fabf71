// The inspector: one entry, or one task with its attempts, exactly as the server has it.
import { useQuery } from "@tanstack/react-query";
import { GitFork, X } from "lucide-react";
import { useState } from "react";
import { entryQuery, tasksQuery } from "../../api/queries";
import { resolveDoubt } from "../../api/steer";
import { Button, IconButton } from "../../parts/button";
import { CopyButton } from "../../parts/copy";
import { formatMoment, formatSpan } from "../../parts/format";
import { JsonView } from "../../parts/json_view";
import { Failed, Loading } from "../../parts/states";
import { Status } from "../../parts/status";
import { useAction } from "../../parts/use_action";
import type { Task } from "../../api/client";
import { ForkDialog } from "./actions";
import { ContextView } from "./context_view";
import { ReferencedValue } from "./referenced_value";
import { effectsBehind } from "./effects";
import { useShown } from "./shown";

/** `task:UUID` names a task, anything else an entry. */
export function Inspector({ what }: { what: string }) {
  const { inspect } = useShown();
  const isTask = what.startsWith("task:");
  return (
    <aside aria-label="Inspector" className="absolute inset-0 z-30 flex min-h-0 flex-col border-l border-line bg-surface md:static md:w-[26rem] md:shrink-0">
      <header className="flex items-center justify-between border-b border-line py-1.5 pr-2 pl-4">
        <h2 className="text-sm font-semibold">{isTask ? "Task" : "Entry"}</h2>
        <IconButton small label="Close the inspector" onClick={() => inspect(null)}>
          <X size={15} />
        </IconButton>
      </header>
      <div className="min-h-0 flex-1 overflow-y-auto p-4" tabIndex={0}>
        {isTask ? <TaskPane id={what.slice("task:".length)} /> : <EntryPane id={what} />}
      </div>
    </aside>
  );
}

function Row({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <>
      <dt className="text-faint">{name}</dt>
      <dd className="min-w-0 [overflow-wrap:anywhere]">{children}</dd>
    </>
  );
}

function EntryPane({ id }: { id: string }) {
  const { run, view } = useShown();
  const found = useQuery(entryQuery(run.id, id));
  const [isForking, setForking] = useState(false);
  const [isContext, setContext] = useState(false);
  if (found.isLoadingError) return <Failed error={found.error} onRetry={() => void found.refetch()} />;
  const entry = found.data;
  if (!entry) return <Loading />;
  const reference = entry.contentRef ?? null;
  return (
    <div className="flex flex-col gap-4">
      <dl className="grid grid-cols-[5.5rem_1fr] gap-x-3 gap-y-1 text-sm">
        <Row name="Type">{entry.entryType}</Row>
        <Row name="Role">{entry.role}</Row>
        <Row name="Appended">{formatMoment(entry.createdAt)}</Row>
        <Row name="Place">
          {entry.op} · depth {entry.depth}
          {entry.stepNumber ? ` · step ${entry.stepNumber}` : ""}
        </Row>
        <Row name="Id">
          <span className="font-mono text-xs">{entry.id}</span>
        </Row>
      </dl>
      <div className="flex flex-wrap gap-2">
        <Button small icon={<GitFork size={13} />} onClick={() => setForking(true)}>
          Fork from here
        </Button>
        {entry.role === "assistant" && entry.entryType === "message" && (
          <Button small onClick={() => setContext(!isContext)}>
            {isContext ? "Hide what the model saw" : "What the model saw"}
          </Button>
        )}
      </div>
      {isContext && <ContextView entry={entry} />}
      <div>
        <div className="flex items-center justify-between">
          <h3 className="text-xs font-medium text-soft">Content</h3>
          {!reference && <CopyButton text={() => JSON.stringify(entry.content, null, 2)} label="Copy the content" />}
        </div>
        {reference ? <ReferencedValue href={reference.href ?? null} size={reference.size} /> : <JsonView value={entry.content} open={3} />}
      </div>
      {entry.metadata !== null && entry.metadata !== undefined && (
        <div>
          <h3 className="text-xs font-medium text-soft">Metadata</h3>
          <JsonView value={entry.metadata} />
        </div>
      )}
      {isForking && <ForkDialog onClose={() => setForking(false)} point={{ entryId: entry.id }} where="at this entry" repeats={effectsBehind(view.transcript, run.id, entry.id)} />}
    </div>
  );
}

function TaskPane({ id }: { id: string }) {
  const { run } = useShown();
  const found = useQuery(tasksQuery(run.id, false));
  const action = useAction();
  if (found.isLoadingError) return <Failed error={found.error} onRetry={() => void found.refetch()} />;
  if (!found.data) return <Loading />;
  const task = found.data.tasks.find((each) => each.id === id);
  if (!task) return <p className="text-sm text-faint">This run has no such task.</p>;
  const isDoubtful = task.status === "IN_DOUBT" || task.status === "QUARANTINED";
  const resolve = (body: object) => void action.run(() => resolveDoubt(run.id, { opId: task.op, ...body }).then(() => found.refetch()), "It is decided.");
  return (
    <div className="flex flex-col gap-4">
      <dl className="grid grid-cols-[6.5rem_1fr] gap-x-3 gap-y-1 text-sm">
        <Row name="Kind">{task.kind}</Row>
        <Row name="Status">
          <Status status={task.status} />
        </Row>
        <Row name="Attempts">
          {task.attempt}
          {task.failedAttempts > 0 && <span className="text-red"> · {task.failedAttempts} failed</span>}
          <span className="text-faint"> of {task.retries + 1}</span>
        </Row>
        <Row name="Side effects">{task.sideEffects.replaceAll("_", " ")}</Row>
        <Row name="Runs">{task.placement === "inline" ? "beside its agent" : `in the queue ${task.queue}`}</Row>
        <Row name="Scheduled">{formatMoment(task.createdAt)}</Row>
        {task.startedAt && <Row name="Queued for">{formatSpan((Date.parse(task.startedAt) - Date.parse(task.createdAt)) / 1000)}</Row>}
        {task.startedAt && task.endedAt && <Row name="Ran for">{formatSpan((Date.parse(task.endedAt) - Date.parse(task.startedAt)) / 1000)}</Row>}
        <Row name="Op">
          <span className="font-mono text-xs">{task.op}</span>
        </Row>
      </dl>
      {task.failure && (
        <div className="rounded-md border border-red/40 bg-red-ground p-3 text-sm">
          <p className="font-medium text-red">{task.failure.errorType}</p>
          <p className="[overflow-wrap:anywhere]">{task.failure.message}</p>
          {task.failure.traceback && <pre className="mt-2 overflow-x-auto font-mono text-xs">{task.failure.traceback}</pre>}
        </div>
      )}
      {isDoubtful && (
        <div className="flex flex-col gap-2 rounded-md border border-amber/40 bg-amber-ground p-3 text-sm">
          <p>Nobody knows whether this took effect. Look where it would show, and say what happened.</p>
          <div className="flex flex-wrap gap-2">
            <Button small busy={action.busy} onClick={() => resolve({ retry: true })}>
              It did not: run it again
            </Button>
            <Button small onClick={() => resolve({ result: null })}>
              It did: go on
            </Button>
            <Button small tone="danger" onClick={() => resolve({ error: "A person has found that it failed." })}>
              It failed
            </Button>
          </div>
        </div>
      )}
      <Payload name="Input" value={task.input} reference={task.inputRef ?? null} />
      <Payload name="Output" value={task.output} reference={task.outputRef ?? null} />
    </div>
  );
}

function Payload({ name, value, reference }: { name: string; value: unknown; reference: Task["inputRef"] | null }) {
  return (
    <div>
      <div className="flex items-center justify-between">
        <h3 className="text-xs font-medium text-soft">{name}</h3>
        {!reference && value !== undefined && <CopyButton text={() => JSON.stringify(value, null, 2)} label={`Copy the ${name.toLowerCase()}`} />}
      </div>
      {reference ? <ReferencedValue href={reference.href ?? null} size={reference.size} /> : value === undefined || value === null ? <p className="text-sm text-faint">nothing</p> : <JsonView value={value} />}
    </div>
  );
}
