// The bars of a timeline: tasks, waits and children of a run with their places in time, long waits cut short.
import { asObject, asText } from "@flovyn/react/transcript";
import type { Run, Task } from "../../api/client";
import { aboutOf, nameOf } from "./tool_names";

export interface Span {
  readonly key: string;
  readonly label: string;
  readonly about: string;
  readonly kind: "model" | "tool" | "child" | "wait" | "internal";
  readonly from: number;
  /** When it began to run, where it waited for a worker first. */
  readonly begun: number;
  readonly until: number;
  readonly isOpen: boolean;
  readonly isBad: boolean;
  readonly attempts: number;
  readonly inspect: string | null;
}

/** Gaps in which nothing but waiting happens are drawn at most this long, as a share of all that is busy. */
const LONGEST_GAP = 0.08;
/** A silence of at least this is a wait. */
const SILENCE_MS = 1_500;

function timeOf(at: string | null | undefined): number | null {
  const time = at ? Date.parse(at) : Number.NaN;
  return Number.isNaN(time) ? null : time;
}

/** What a task is called for people: a tool by what it was given. */
export function labelOf(task: Task): { label: string; about: string; kind: Span["kind"] } {
  if (task.kind === "llm.generate") {
    const model = asObject(asObject(task.input)?.["model"]) ?? asObject(asObject(asObject(task.input)?.["request"])?.["model"]);
    return { label: "model call", about: model ? `${asText(model["provider"]) ?? ""}/${asText(model["modelId"]) ?? ""}` : "", kind: "model" };
  }
  if (task.kind.startsWith("tool.")) {
    const name = task.kind.slice("tool.".length);
    const given = asObject(task.input)?.["arguments"] ?? task.input;
    return { label: nameOf(name), about: aboutOf(name, given), kind: "tool" };
  }
  if (task.placement === "inline") return { label: task.kind, about: "", kind: "internal" };
  return { label: task.kind, about: aboutOf(task.kind, asObject(task.input)?.["arguments"] ?? task.input), kind: "tool" };
}

export function spansOf(run: Run, tasks: readonly Task[], children: readonly Run[], now: number): readonly Span[] {
  const end = timeOf(run.endedAt) ?? now;
  const spans: Span[] = [];
  for (const task of tasks) {
    const from = timeOf(task.createdAt);
    if (from === null) continue;
    const begun = timeOf(task.startedAt);
    const until = timeOf(task.endedAt);
    spans.push({
      key: task.id,
      ...labelOf(task),
      from,
      begun: begun ?? until ?? end,
      until: until ?? end,
      isOpen: until === null,
      isBad: task.status === "FAILED" || task.failedAttempts > 0 || task.status === "IN_DOUBT" || task.status === "QUARANTINED",
      attempts: task.attempt,
      inspect: `task:${task.id}`,
    });
  }
  for (const child of children) {
    const from = timeOf(child.createdAt) ?? end;
    spans.push({
      key: child.id,
      label: child.kind,
      about: child.key ?? "",
      kind: "child",
      from,
      begun: from,
      until: timeOf(child.endedAt) ?? end,
      isOpen: !child.endedAt,
      isBad: child.status === "FAILED",
      attempts: 1,
      inspect: null,
    });
  }
  return [...spans, ...waitsOf(run, spans, end)].sort((left, right) => left.from - right.from || left.until - right.until);
}

/** Where nothing runs: the run waits for a person, a timer, or a worker. */
function waitsOf(run: Run, busy: readonly Span[], end: number): readonly Span[] {
  const start = timeOf(run.createdAt) ?? end;
  const sorted = [...busy].sort((left, right) => left.from - right.from);
  const waits: Span[] = [];
  let silentSince = start;
  const push = (until: number, isOpen: boolean) => {
    if (until - silentSince < SILENCE_MS) return;
    waits.push({ key: `wait ${silentSince}`, label: "waits", about: "", kind: "wait", from: silentSince, begun: silentSince, until, isOpen, isBad: false, attempts: 1, inspect: null });
  };
  for (const span of sorted) {
    push(span.from, false);
    silentSince = Math.max(silentSince, span.until);
  }
  push(end, !run.endedAt);
  return waits;
}

/** Where a moment is drawn, from 0 to 1, so that long silences do not flatten all the rest. */
export interface Scale {
  at(time: number): number;
  readonly cuts: readonly { readonly place: number; readonly milliseconds: number }[];
}

export function scaleOf(spans: readonly Span[]): Scale {
  const busy = spans.filter((span) => span.kind !== "wait").map((span) => [span.from, span.until] as const);
  const first = Math.min(...spans.map((span) => span.from));
  const last = Math.max(...spans.map((span) => span.until), first + 1);
  const merged: [number, number][] = [];
  for (const [from, until] of [...busy].sort((left, right) => left[0] - right[0])) {
    const open = merged.at(-1);
    if (open && from <= open[1]) open[1] = Math.max(open[1], until);
    else merged.push([from, until]);
  }
  const busyTime = merged.reduce((sum, [from, until]) => sum + until - from, 0) || last - first;
  const longest = Math.max(busyTime * LONGEST_GAP, 50);
  // Pieces of time with the length they are drawn with.
  const pieces: { from: number; until: number; drawn: number; isCut: boolean }[] = [];
  let at = first;
  const gap = (until: number) => {
    if (until > at) pieces.push({ from: at, until, drawn: Math.min(until - at, longest), isCut: until - at > Math.max(longest, SILENCE_MS) });
  };
  for (const [from, until] of merged) {
    gap(from);
    pieces.push({ from, until, drawn: until - from, isCut: false });
    at = Math.max(at, until);
  }
  gap(last);
  const total = pieces.reduce((sum, piece) => sum + piece.drawn, 0) || 1;
  const cuts: { place: number; milliseconds: number }[] = [];
  let sum = 0;
  const starts = pieces.map((piece) => {
    const start = sum;
    if (piece.isCut) cuts.push({ place: (start + piece.drawn / 2) / total, milliseconds: piece.until - piece.from });
    sum += piece.drawn;
    return start;
  });
  return {
    cuts,
    at(time) {
      for (const [index, piece] of pieces.entries()) {
        if (time > piece.until) continue;
        const share = piece.until === piece.from ? 0 : Math.max(0, time - piece.from) / (piece.until - piece.from);
        return ((starts[index] ?? 0) + share * piece.drawn) / total;
      }
      return 1;
    },
  };
}

