// What is being made right now: text as it comes, thinking, calls that the model is still writing, and what the agent says it does.
import { asText } from "@flovyn/react/transcript";
import type { Preview } from "@flovyn/react/transcript";
import { memo } from "react";
import { formatClock } from "../../parts/format";
import { Markdown } from "../../parts/markdown";
import { ThinkingView } from "./block_view";

export const LiveView = memo(function LiveView({ preview }: { preview: Preview }) {
  return (
    <article aria-label="Being written" aria-busy={!preview.done} className="flex flex-col gap-2">
      {preview.attempt > 1 && <p className="text-xs text-amber">Attempt {preview.attempt}: what the one before had said does not count.</p>}
      {preview.thinking && <ThinkingView id={`live ${preview.op}`} text={preview.thinking} isLive={!preview.text && !preview.done} note={null} />}
      {preview.text && <Markdown text={preview.text} />}
      {[...preview.calls].map(([part, text]) => (
        <div key={part} className="truncate rounded-lg border border-dashed border-line px-3 py-1.5 font-mono text-xs text-faint">
          {text.slice(-200)}
        </div>
      ))}
    </article>
  );
});

const words: Readonly<Record<string, string>> = {
  running: "Working",
  compacting: "Summarising what is old",
  waiting_for_input: "Waiting for an answer",
  waiting_for_approval: "Waiting for an approval",
  waiting_for_answer: "Waiting for an answer",
  retrying: "No model answers; asking again",
};

export function Activity({ status, value }: { status: string; value: Readonly<Record<string, unknown>> | null }) {
  const until = asText(value?.["until"]);
  const reason = asText(value?.["reason"]);
  return (
    <p role="status" className="flex items-center gap-2 text-xs text-faint">
      <span aria-hidden className="pulse size-1.5 rounded-full bg-blue" />
      {words[status] ?? status}
      {until && ` at ${formatClock(until)}`}
      {reason && <span className="min-w-0 truncate">({reason})</span>}
    </p>
  );
}
