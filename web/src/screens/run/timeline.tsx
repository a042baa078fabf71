// The timeline: what ran when, beside each other and after each other; waits are hollow, attempts are counted.
import { canGoOn } from "@flovyn/react/client";
import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { childrenQuery, eventsQuery, tasksQuery } from "../../api/queries";
import { classNames } from "../../parts/class_names";
import { Check } from "../../parts/field";
import { formatClock, formatSpan } from "../../parts/format";
import { Empty, Failed, Loading } from "../../parts/states";
import { MARKED, marksOf } from "./marks";
import type { Mark } from "./marks";
import { useShown } from "./shown";
import { scaleOf, spansOf } from "./spans";
import type { Scale, Span } from "./spans";

const bars: Record<Span["kind"], string> = { model: "bg-violet", tool: "bg-blue", child: "bg-accent", internal: "bg-line-strong", wait: "hollow border border-line-strong" };
const words: Record<Span["kind"], string> = { model: "model call", tool: "tool or task", child: "child", internal: "step of the agent", wait: "wait" };

export function Timeline() {
  const { run, openChild, inspect } = useShown();
  const isOpen = canGoOn(run);
  const tasks = useQuery(tasksQuery(run.id, isOpen));
  const children = useQuery({ ...childrenQuery(run.id), enabled: (run.childCount ?? 0) > 0 });
  const events = useQuery(eventsQuery(run.id, MARKED, isOpen));
  const [onlyBad, setOnlyBad] = useState(false);
  const [isSteps, setSteps] = useState(false);
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!isOpen) return;
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, [isOpen]);
  const all = useMemo(() => spansOf(run, tasks.data?.tasks ?? [], children.data?.items ?? [], now), [run, tasks.data, children.data, now]);
  const scale = useMemo(() => scaleOf(all), [all]);
  const marks = useMemo(() => marksOf(events.data?.items ?? []), [events.data]);
  const spans = all.filter((span) => (!onlyBad || span.isBad) && (isSteps || span.kind !== "internal"));

  const room = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count: spans.length, getScrollElement: () => room.current, estimateSize: () => 30, overscan: 20, getItemKey: (index) => spans[index]?.key ?? index });

  if (tasks.isLoadingError) return <Failed error={tasks.error} onRetry={() => void tasks.refetch()} />;
  if (!tasks.data) return <Loading what="Loading the timeline" />;
  if (!all.length) return <Empty title="Nothing has run yet">Tasks, waits and children stand here as soon as there are some.</Empty>;
  const open = (span: Span) => (span.kind === "child" ? openChild(span.key) : span.inspect && inspect(span.inspect));
  return (
    <div className="flex min-h-0 flex-1 flex-col">
      <div className="flex flex-wrap items-center gap-x-4 gap-y-1 border-b border-line px-4 py-1.5 text-xs text-soft">
        <Check label="Only what went wrong" checked={onlyBad} onChange={(event) => setOnlyBad(event.target.checked)} />
        <Check label="Steps of the agent" checked={isSteps} onChange={(event) => setSteps(event.target.checked)} />
        <span className="ml-auto flex flex-wrap gap-3">
          {(["model", "tool", "child", "wait"] as const).map((kind) => (
            <span key={kind} className="flex items-center gap-1.5">
              <span aria-hidden className={classNames("h-2.5 w-4 rounded-sm", bars[kind])} />
              {words[kind]}
            </span>
          ))}
        </span>
      </div>
      {marks.length > 0 && <Marks marks={marks} scale={scale} />}
      {tasks.data.more && <p className="px-4 py-1 text-xs text-amber">Only the first {tasks.data.tasks.length} tasks are drawn.</p>}
      <div ref={room} className="min-h-0 flex-1 overflow-y-auto" tabIndex={0} role="region" aria-label="Timeline">
        <div className="relative" style={{ height: rows.getTotalSize() }}>
          {rows.getVirtualItems().map((item) => {
            const span = spans[item.index];
            return span ? <Bar key={item.key} span={span} top={item.start} scale={scale} marks={marks} onOpen={() => open(span)} /> : null;
          })}
        </div>
        {!spans.length && <p className="p-6 text-sm text-faint">Nothing of this went wrong.</p>}
      </div>
    </div>
  );
}

const tones: Record<Mark["tone"], string> = { bad: "text-red", turn: "text-amber", good: "text-accent" };

/** What has happened to the run itself, above all bars: each mark says what it is, and goes on as a line through them. */
function Marks({ marks, scale }: { marks: readonly Mark[]; scale: Scale }) {
  return (
    <div className="flex h-7 items-center gap-3 border-b border-line px-4 text-sm">
      <span className="w-32 shrink-0 text-faint sm:w-64">the run itself</span>
      <ul aria-label="What has happened to the run itself" className="relative h-full min-w-0 flex-1">
        {marks.map((mark) => (
          <li
            key={mark.key}
            tabIndex={0}
            title={`${mark.label}\n${formatClock(new Date(mark.at).toISOString())}`}
            className={classNames("absolute top-1.5 -ml-1.5 size-4 cursor-default rounded-full text-center leading-4", tones[mark.tone])}
            style={{ left: `${scale.at(mark.at) * 100}%` }}
          >
            <span aria-hidden>◆</span>
            <span className="sr-only">
              {mark.label}, {formatClock(new Date(mark.at).toISOString())}
            </span>
          </li>
        ))}
      </ul>
      <span className="w-20 shrink-0" />
    </div>
  );
}

function Bar({ span, top, scale, marks, onOpen }: { span: Span; top: number; scale: Scale; marks: readonly Mark[]; onOpen: () => void }) {
  const from = scale.at(span.from) * 100;
  const begun = scale.at(span.begun) * 100;
  const until = scale.at(span.until) * 100;
  const took = formatSpan((span.until - span.begun) / 1000);
  const queued = span.begun - span.from;
  return (
    <button
      type="button"
      title={`${span.label} ${span.about}\n${formatClock(new Date(span.from).toISOString())}${queued > 50 ? `, ${formatSpan(queued / 1000)} in the queue` : ""}`}
      onClick={onOpen}
      style={{ transform: `translateY(${top}px)` }}
      className="absolute inset-x-0 flex h-[30px] items-center gap-3 border-b border-line/60 px-4 text-left text-sm hover:bg-hover"
    >
      <span className="flex w-32 shrink-0 items-center gap-1.5 sm:w-64">
        <span className={classNames("shrink-0 truncate", span.isBad && "text-red", span.kind === "wait" && "text-faint")}>{span.label}</span>
        {span.attempts > 1 && <span className="shrink-0 rounded bg-amber-ground px-1 text-xs text-amber">×{span.attempts}</span>}
        <span className="hidden min-w-0 truncate font-mono text-xs text-faint sm:inline">{span.about}</span>
      </span>
      <span className="relative h-3 min-w-0 flex-1">
        {scale.cuts.map((cut) => (
          <span key={cut.place} aria-hidden className="absolute -inset-y-2 border-l border-dashed border-line-strong/60" style={{ left: `${cut.place * 100}%` }} />
        ))}
        {marks.map((mark) => (
          <span key={mark.key} aria-hidden className={classNames("absolute -inset-y-2 border-l border-current opacity-40", tones[mark.tone])} style={{ left: `${scale.at(mark.at) * 100}%` }} />
        ))}
        {queued > 0 && span.kind !== "wait" && <span className="absolute inset-y-1 rounded-sm bg-line" style={{ left: `${from}%`, width: `max(1px, ${begun - from}%)` }} />}
        <span
          className={classNames("absolute inset-y-0 rounded-sm", span.isBad && span.kind !== "child" ? "bg-red" : bars[span.kind], span.isOpen && span.kind !== "wait" && "pulse")}
          style={{ left: `${begun}%`, width: `max(3px, ${until - begun}%)` }}
        />
      </span>
      <span className="w-20 shrink-0 text-right text-xs text-soft tabular-nums">
        {took}
        <span className="sr-only">
          {span.isOpen && " so far"}
          {span.isBad && ", went wrong"}
        </span>
      </span>
    </button>
  );
}
