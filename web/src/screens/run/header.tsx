// The head of a run: how it stands, what it does now, what it has cost, what it has produced.
import { asksPerson, canGoOn, titleOf, waitingFor } from "@flovyn/react/client";
import { activityOf, inTheMaking } from "@flovyn/react/transcript";
import type { RunTranscript } from "@flovyn/react/transcript";
import { Link, useNavigate } from "@tanstack/react-router";
import { ChevronRight } from "lucide-react";
import { useEffect, useState } from "react";
import type { ReactNode } from "react";
import { classNames } from "../../parts/class_names";
import { formatCost, formatCount, formatMoment, formatRelative, formatSpan, formatTokens } from "../../parts/format";
import { plainOf } from "../../parts/plain";
import { Status } from "../../parts/status";
import { TABS } from "../../search";
import type { Tab } from "../../search";
import { Actions } from "./actions";
import { useShown } from "./shown";

const tabWords: Record<Tab, string> = { conversation: "Conversation", timeline: "Timeline", files: "Files", tree: "Entries", state: "State", family: "Family", usage: "Usage" };

export function Header({ crumbs, tab }: { crumbs: readonly { id: string; name: string }[]; tab: Tab }) {
  const { run, root, view } = useShown();
  const navigate = useNavigate({ from: "/runs/$id" });
  const told = view.transcript.runs.get(run.id);
  const title = titleOf(run);
  return (
    <header className="shrink-0 border-b border-line bg-surface">
      <div className="flex items-center gap-3 px-4 pt-2.5">
        <div className="min-w-0 flex-1">
          <nav aria-label="Where this run belongs" className="flex items-center gap-1 text-xs text-faint">
            <Link to="/runs" className="hover:text-ink hover:underline">
              Runs
            </Link>
            {root.parent && (
              <>
                <ChevronRight size={11} aria-hidden />
                <Link to="/runs/$id" params={{ id: root.parent }} search={{}} className="hover:text-ink hover:underline">
                  parent
                </Link>
              </>
            )}
            {crumbs.map((crumb, index) => (
              <span key={crumb.id} className="flex min-w-0 items-center gap-1">
                <ChevronRight size={11} aria-hidden className="shrink-0" />
                {index === crumbs.length - 1 ? (
                  <span aria-current="page" className="truncate">
                    {crumb.name}
                  </span>
                ) : (
                  <button
                    type="button"
                    className="truncate hover:text-ink hover:underline"
                    onClick={() => void navigate({ search: ({ child: _, ...rest }) => (index === 0 ? rest : { ...rest, child: crumbs.slice(1, index + 1).map((each) => each.id).join(".") }) })}
                  >
                    {crumb.name}
                  </button>
                )}
              </span>
            ))}
          </nav>
          <h1 className="truncate text-base font-semibold" title={title}>
            {title}
          </h1>
          <Lineage />
        </div>
        <Actions />
      </div>
      <dl className="flex flex-wrap items-center gap-x-5 gap-y-0.5 px-4 py-1.5 text-sm">
        <Fact label="Status">
          <span className="flex items-center gap-1.5">
            <Status status={run.status} />
            <Why told={told} />
          </span>
        </Fact>
        <Fact label="Took">
          <Took />
        </Fact>
        <Cost />
        <Product />
      </dl>
      <div role="tablist" aria-label="Views of this run" className="flex gap-1 overflow-x-auto px-3">
        {TABS.map((each) => (
          <Link
            key={each}
            from="/runs/$id"
            to="/runs/$id"
            search={({ tab: _, inspect: __, ...rest }) => (each === "conversation" ? rest : { ...rest, tab: each })}
            role="tab"
            aria-selected={each === tab}
            className={classNames("shrink-0 border-b-2 px-2 py-1.5 text-sm", each === tab ? "border-accent font-medium text-ink" : "border-transparent text-soft hover:text-ink")}
          >
            {tabWords[each]}
          </Link>
        ))}
      </div>
    </header>
  );
}

/** The runs that it shares its past or its end with. */
function Lineage() {
  const { run } = useShown();
  const of = run.forkedFrom?.execution;
  if (!of && !run.handedTo) return null;
  const link = (id: string) => (
    <Link to="/runs/$id" params={{ id }} search={{}} className="font-mono text-accent underline underline-offset-2">
      {id.slice(0, 8)}
    </Link>
  );
  return (
    <p className="text-xs text-faint">
      {of && <>Forked from {link(of)} </>}
      {run.handedTo && <>Handed over to {link(run.handedTo)}</>}
    </p>
  );
}

function Fact({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div className="flex min-w-0 items-center gap-1.5">
      <dt className="sr-only">{label}</dt>
      <dd className="min-w-0">{children}</dd>
    </div>
  );
}

/** Why it stands as it does: what it does now, what it waits for, what went wrong. */
function Why({ told }: { told: RunTranscript | undefined }) {
  const { run, root, openChild } = useShown();
  if (run.status === "FAILED") return <span className="line-clamp-1 min-w-0 text-soft [overflow-wrap:anywhere]">{run.failure?.message}</span>;
  const waits = waitingFor(run);
  if (run.status === "PENDING") {
    return (
      <Link to="/workers" className="text-soft underline decoration-dotted underline-offset-2">
        for {waits}
      </Link>
    );
  }
  const child = run.waits?.signals.find((name) => name.startsWith("flovyn.child."))?.slice("flovyn.child.".length);
  if (waits && child && run.waitsFor.every((name) => name === "userMessage" || name.startsWith("flovyn."))) {
    return (
      <button type="button" onClick={() => openChild(child)} className="min-h-6 text-soft underline decoration-dotted underline-offset-2">
        for {waits}
      </button>
    );
  }
  if (waits && asksPerson(run)) {
    return (
      <Link from="/runs/$id" to="/runs/$id" search={({ tab: _, ...rest }) => rest} onClick={() => document.querySelector("[data-asked]")?.scrollIntoView({ block: "center" })} className="text-soft underline decoration-dotted underline-offset-2">
        for {waits}
      </Link>
    );
  }
  if (waits) return <span className="text-soft">for {waits}</span>;
  if (run.status !== "RUNNING") return run.id !== root.id || !run.handedTo ? null : <span className="text-soft">handed over</span>;
  const live = inTheMaking(told).at(-1);
  const running = [...(told?.tasks.values() ?? [])].filter((task) => task.status === "started" && task.kind !== "llm.generate");
  const what = running.length ? running.map((task) => task.kind.replace(/^tool\./, "")).join(", ") : live ? (live.text ? "writing" : live.calls.size ? "writing a call" : "thinking") : activityOf(told)?.status;
  return <span className="text-soft">{what && what !== "running" ? what.replaceAll("_", " ") : null}</span>;
}

/** A clock that ticks while the run goes on. */
function Took() {
  const { run } = useShown();
  const isOpen = canGoOn(run);
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!isOpen) return;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [isOpen]);
  const seconds = isOpen ? Math.max(run.duration, (now - Date.parse(run.createdAt)) / 1000) : run.duration;
  return (
    <span className="text-soft tabular-nums" title={`Started ${formatMoment(run.createdAt)}`}>
      {formatSpan(seconds)} <span className="text-faint">· {formatRelative(run.createdAt)}</span>
    </span>
  );
}

function Cost() {
  const { run } = useShown();
  const total = run.totalUsage;
  const tokens = total ? total.inputTokens + total.outputTokens + total.cacheReadTokens + total.cacheWriteTokens : run.summary.tokens;
  const calls = total?.calls ?? run.summary.modelCalls;
  if (!calls) return null;
  const usd = total ? (total.costMicros == null ? null : total.costMicros / 1e6) : run.summary.costUsd;
  const most = run.budget?.maxCostUsd ?? null;
  const mostTokens = run.budget?.maxTokens ?? null;
  const used = most && usd != null ? usd / most : mostTokens ? tokens / mostTokens : null;
  const below = (run.descendantCount ?? 0) > 0;
  return (
    <Fact label="Cost">
      <span className="text-soft tabular-nums" title={below ? `With all below it; by itself ${formatTokens(run.summary.tokens)} tokens` : undefined}>
        {formatTokens(tokens)} tokens · {usd == null ? "cost unknown" : formatCost(usd)} · {formatCount(calls)} {calls === 1 ? "call" : "calls"}
        {below && <span className="text-faint"> with {run.descendantCount} below</span>}
        {used !== null && <span className={used > 0.8 ? "text-amber" : "text-faint"}> · {Math.round(used * 100)} % of the budget</span>}
      </span>
    </Fact>
  );
}

/** What came of it: the last word, as far as it is short. */
function Product() {
  const { run } = useShown();
  const output = run.output as unknown;
  if (run.status !== "COMPLETED" || output === undefined || output === null) return null;
  const said = typeof output === "object" && "text" in output ? String((output as { text: unknown }).text) : typeof output === "string" ? output : JSON.stringify(output);
  return (
    <div className="flex min-w-0 flex-1 basis-40 items-center gap-1.5">
      <dt className="sr-only">Output</dt>
      <dd className="min-w-0 truncate text-soft" title={said.slice(0, 500)}>
        → {plainOf(said)}
      </dd>
    </div>
  );
}
