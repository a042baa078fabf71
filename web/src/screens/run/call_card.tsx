// A call of a tool as a card: what it is about in one line, and unfolded what it was given, decided and returned.
import { atWork, callStateOf, isOver } from "@flovyn/react/transcript";
import type { CallBlock, CallState, RunTranscript } from "@flovyn/react/transcript";
import { Bot, Braces, ChevronRight, FileText, Globe, ListTodo, PencilLine, Plug, Search, TerminalSquare } from "lucide-react";
import { memo, useMemo } from "react";
import type { ReactNode } from "react";
import { classNames } from "../../parts/class_names";
import { IconButton } from "../../parts/button";
import { ApprovalForm, InputForm } from "./approval";
import { ChildCard } from "./child_card";
import { Given, Result, TerminalView } from "./result_view";
import { useShown, useUnfolded } from "./shown";
import { aboutOf, lookOf, nameOf } from "./tool_names";
import type { Look } from "./tool_names";

const icons: Record<Look, typeof Bot> = { terminal: TerminalSquare, file: FileText, change: PencilLine, search: Search, web: Globe, list: ListTodo, server: Plug, agent: Bot, other: Braces };

const words: Record<CallState, { word: string; ink: string }> = {
  asked: { word: "needs you", ink: "text-amber" },
  running: { word: "running", ink: "text-blue" },
  waiting: { word: "to come", ink: "text-soft" },
  done: { word: "done", ink: "text-soft" },
  failed: { word: "failed", ink: "text-red" },
  denied: { word: "denied", ink: "text-violet" },
  skipped: { word: "skipped", ink: "text-soft" },
};

interface CallCardProps {
  block: CallBlock;
  run: RunTranscript | undefined;
  ordinal: number;
  isOpenRun: boolean;
}

export const CallCard = memo(function CallCard({ block, run, ordinal, isOpenRun }: CallCardProps) {
  const { inspect, run: shown } = useShown();
  const work = useMemo(() => atWork(run, block, ordinal), [run, block, ordinal]);
  const state = callStateOf(block, work, isOpenRun && !(run && isOver(run)));
  const look = block.child ? "agent" : lookOf(block.call.name);
  const usual = state === "asked" || (state === "running" && look === "terminal") || state === "failed" || (look === "change" && state === "done");
  const [isOpen, setOpen] = useUnfolded(block.key, usual);
  const Icon = icons[look];
  const { word, ink } = words[state];
  const terminal = work?.preview?.terminal ?? [];
  return (
    <section data-asked={state === "asked" || undefined} aria-label={`Call of ${nameOf(block.call.name)}`} className={classNames("rounded-lg border bg-surface", state === "asked" ? "border-amber/60" : "border-line")}>
      <div className="flex items-center">
        <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)} className="flex min-h-9 min-w-0 flex-1 items-center gap-2 px-3 py-1.5 text-left text-sm">
          <ChevronRight size={13} aria-hidden className={classNames("shrink-0 text-faint transition-transform", isOpen && "rotate-90")} />
          <Icon size={15} aria-hidden className={classNames("shrink-0", state === "failed" ? "text-red" : "text-soft")} />
          <span className="max-w-40 shrink-0 truncate font-medium">{nameOf(block.call.name)}</span>
          <span className="min-w-0 flex-1 truncate font-mono text-xs text-soft">{aboutOf(block.call.name, block.call.arguments)}</span>
          <span className={classNames("shrink-0 text-xs", ink, state === "running" && "pulse")}>{word}</span>
        </button>
        <IconButton small label="Inspect" onClick={() => inspect(block.resultEntry?.id ?? block.entry.id)} className="mr-1">
          <Braces size={13} />
        </IconButton>
      </div>
      {isOpen && (
        <div className="flex flex-col gap-2 px-3 pb-3">
          <Given call={block.call} />
          {block.approval && <ApprovalForm run={shown.id} asked={block.approval} isOpen={state === "asked"} />}
          {block.input && state === "asked" && <InputForm run={shown.id} asked={block.input} />}
          {block.child && <ChildCard id={block.child} />}
          {!block.result && terminal.length > 0 && <TerminalView pieces={terminal} exitCode={null} isRunning />}
          {block.result && <Result call={block.call} result={block.result} />}
        </div>
      )}
      {!isOpen && block.child && (
        <div className="px-3 pb-3">
          <ChildCard id={block.child} />
        </div>
      )}
    </section>
  );
});

/** A line of text between blocks. */
export function Line({ children }: { children: ReactNode }) {
  return (
    <div className="flex items-center gap-3 text-xs text-faint">
      <span className="h-px flex-1 bg-line" />
      <span className="max-w-[80%] text-center [overflow-wrap:anywhere]">{children}</span>
      <span className="h-px flex-1 bg-line" />
    </div>
  );
}
