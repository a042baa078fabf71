// A call of a tool: what it is called with, what a person decides about it, what it prints, what it returns.
import { memo } from "react";
import type { ReactNode } from "react";
import type { RunQuestion } from "../client/index.js";
import { asObject, asText, atWork, callStateOf, isOver, printedText } from "../transcript/index.js";
import type { CallBlock, RunTranscript } from "../transcript/index.js";
import { ApprovalForm } from "./approval_form.js";
import { useChat } from "./context.js";
import { InputForm } from "./input_form.js";
import { Value } from "./text.js";

interface CallViewProps {
  readonly block: CallBlock;
  /** What is told of its run, for calls that have no result yet. */
  readonly told: RunTranscript | undefined;
  readonly ordinal: number;
  readonly isOpenRun: boolean;
  /** What its child asks. */
  readonly questions: readonly RunQuestion[];
}

/** Names that calls are about, the telling ones first: for the one line that is always seen. */
const ABOUT = ["command", "path", "file_path", "pattern", "query", "url", "task", "title", "name"];

export const CallView = memo(function CallView({ block, told, ordinal, isOpenRun, questions }: CallViewProps): ReactNode {
  const { labels, renderCall } = useChat();
  const work = atWork(told, block, ordinal);
  const state = callStateOf(block, work, isOpenRun && !(told && isOver(told)));
  const { call, result, approval, input } = block;
  const printed = work?.preview?.terminal.map((piece) => piece.text).join("") ?? "";
  return (
    <section className="flovyn-call" data-tool={call.name} data-state={state} aria-label={call.name}>
      {renderCall?.(block) ?? (
        <details>
          <summary>
            <span className="flovyn-call-name">{call.name}</span> <span className="flovyn-call-about">{aboutOf(call.arguments)}</span> <span className="flovyn-call-state">{labels.states[state]}</span>
          </summary>
          <Value value={call.raw ?? call.arguments} label={labels.arguments} />
          {result && <Value value={printedText(result.text)} label={labels.result} />}
        </details>
      )}
      {!result && printed !== "" && (
        <pre className="flovyn-terminal" aria-live="off" tabIndex={0}>
          {printedText(printed).slice(-4_000)}
        </pre>
      )}
      {approval && <ApprovalForm call={call} asked={approval} isOpen={state === "asked"} />}
      {input && state === "asked" && !approval && <InputForm callId={call.id} asked={input} />}
      {questions.map((question) => (
        <QuestionView key={`${question.run} ${question.block.key}`} question={question} />
      ))}
    </section>
  );
});

/** A question of a run below, where the one that is looked at shows it. */
export function QuestionView({ question }: { readonly question: RunQuestion }): ReactNode {
  const { call, approval, input } = question.block;
  return (
    <section className="flovyn-call" data-tool={call.name} data-state="asked" aria-label={call.name}>
      <p className="flovyn-call-name">{call.name}</p>
      {approval ? <ApprovalForm call={call} asked={approval} isOpen /> : input && <InputForm callId={call.id} asked={input} />}
    </section>
  );
}

function aboutOf(given: unknown): string {
  const values = asObject(given) ?? {};
  const name = ABOUT.find((each) => asText(values[each]) !== null);
  return name === undefined ? "" : (asText(values[name]) ?? "").replace(/\s+/g, " ").slice(0, 120);
}
