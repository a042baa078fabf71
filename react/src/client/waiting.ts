// Why a run does not advance, in words for people.
import { APPROVAL, INPUT, USER_MESSAGE } from "./steer.js";
import type { Run } from "./types.js";

const REASONS: Readonly<Record<string, string>> = {
  task: "a task",
  child: "a child",
  timer: "a timer",
  in_doubt: "a task in doubt",
  step_limit: "its limit of steps",
  tail_limit: "its limit of calls without a checkpoint",
  budget: "its budget",
  divergence: "a decision: its code has changed",
  error: "an error",
  concurrency: "others with its concurrency key",
};

/** The signals that people send, by name; what runs tell each other is left out. */
export function awaitedSignals(run: Run): readonly string[] {
  return (run.waitsFor ?? []).filter((name) => !name.startsWith("flovyn."));
}

/** Whether a run waits for the decision or the answer of a person. */
export function asksPerson(run: Run): boolean {
  return run.status === "WAITING" && run.waitsFor.some((name) => name === APPROVAL || name === INPUT);
}

/** What a run waits for; null where it waits for nothing. */
export function waitingFor(run: Run): string | null {
  if (run.status === "PENDING") return "a worker";
  if (run.status === "PAUSED") return run.waitReason ? (REASONS[run.waitReason] ?? run.waitReason) : "someone to resume it";
  if (run.status !== "WAITING") return null;
  const signals = awaitedSignals(run);
  if (signals.includes(APPROVAL)) return "an approval";
  if (signals.includes(INPUT)) return "an answer";
  const children = run.waits?.signals.filter((name) => name.startsWith("flovyn.child.")).length ?? 0;
  if (children) return children === 1 ? "a child" : `${children} children`;
  if (signals.includes(USER_MESSAGE)) return "a message";
  if (signals.length) return `signal ${signals.join(", ")}`;
  return run.waitReason ? (REASONS[run.waitReason] ?? run.waitReason) : null;
}

/** What people call a run: its id where somebody chose one, else what it was asked. */
export function titleOf(run: Run): string {
  const said = promptOf(run.input);
  if (said) return said;
  return run.key ?? run.id;
}

/** A run's id for addresses: the one it was started with where that stands in an address as it is, else its UUID. */
export function addressOf(run: Run): string {
  return run.key && run.key !== "new" && /^[a-z0-9][\w:@.-]*$/i.test(run.key) ? run.key : run.id;
}

/** What the user said to a run, as one line; null where its input says nothing of the kind. */
export function promptOf(input: unknown): string | null {
  const text =
    typeof input === "string" ? input : typeof input === "object" && input !== null && "userPrompt" in input && typeof input.userPrompt === "string" ? input.userPrompt : null;
  const line = text?.replace(/\s+/g, " ").trim();
  return line ? line.slice(0, 300) : null;
}

/** Whether a run has not ended. */
export function canGoOn(run: Run): boolean {
  return !["COMPLETED", "FAILED", "CANCELLED"].includes(run.status);
}

/** Whether a run is of the built-in agent, which says its own name as the version of its code. */
export function isBuiltIn(run: Run): boolean {
  return run.code?.startsWith("react-agent") ?? false;
}

/** Whether a message may reach a run: it waits for one, it is of the built-in agent, or it waits for nothing else by name. */
export function hearsMessages(run: Run): boolean {
  const signals = awaitedSignals(run).filter((name) => name !== APPROVAL && name !== INPUT);
  return signals.includes(USER_MESSAGE) || isBuiltIn(run) || signals.length === 0;
}
