// How the calls of tools stand: which task does a call, and how far it is.
import { isUndecided } from "./conversation.js";
import type { Block, CallBlock } from "./conversation.js";
import { compareSlots } from "./slots.js";
import type { Preview, RunTranscript, TranscriptTask } from "./types.js";

/** Is the task that does a call, with what it has streamed. */
export interface AtWork {
  readonly task: TranscriptTask;
  readonly preview: Preview | undefined;
}

/** The task that does a call, while it runs: the first of its kind behind the call that no earlier call has. */
export function atWork(run: RunTranscript | undefined, block: CallBlock, ordinal: number): AtWork | null {
  if (!run || block.result) return null;
  const behind = [...run.tasks.values()]
    .filter((task) => (task.kind === `tool.${block.call.name}` || task.kind === block.call.name) && compareSlots(task.op, block.entry.op) > 0)
    .sort((left, right) => compareSlots(left.op, right.op));
  const task = behind[ordinal];
  return task ? { task, preview: run.previews.get(task.op) } : null;
}

/** How a call stands: a person is asked, its task runs, it is to come, or how it has ended. */
export type CallState = "asked" | "running" | "waiting" | "done" | "failed" | "denied" | "skipped";

/** How a call stands. */
export function callStateOf(block: CallBlock, work: AtWork | null, isOpenRun: boolean): CallState {
  if (block.approval?.decision?.approved === false) return "denied";
  if (block.result) {
    if (!block.result.isError) return "done";
    return block.approval && !block.approval.decision ? "skipped" : "failed";
  }
  if (!isOpenRun) return "skipped";
  if (isUndecided(block)) return "asked";
  if (work || block.child) return "running";
  return "waiting";
}

/** Which call of its name it is, among the calls of its message that have no result: tasks are matched by that. */
export function ordinalOf(blocks: readonly Block[], index: number): number {
  const block = blocks[index];
  if (block?.kind !== "call" || block.result) return 0;
  let ordinal = 0;
  for (let at = index - 1; at >= 0; at--) {
    const other = blocks[at];
    if (other?.entry !== block.entry) break;
    if (other.kind === "call" && other.call.name === block.call.name) ordinal++;
  }
  return ordinal;
}
