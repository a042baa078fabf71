// The conversation of a chat: what is durable, what is being written, and what runs below ask. Its end stays in sight while its
// reader is there.
import { useLayoutEffect, useRef } from "react";
import type { ReactNode } from "react";
import { canGoOn } from "../client/index.js";
import type { RunQuestion } from "../client/index.js";
import { ordinalOf } from "../transcript/index.js";
import type { Preview } from "../transcript/index.js";
import { BlockView, ThinkingView } from "./block_view.js";
import { CallView, QuestionView } from "./call_view.js";
import { useChat, useLive } from "./context.js";
import { Prose } from "./text.js";

/** So near to the end, in pixels, the reader is taken along. */
const NEAR = 60;
const NONE: readonly RunQuestion[] = [];

export function Log(): ReactNode {
  const { labels } = useChat();
  const chat = useLive();
  const { blocks, previews, questions, run, transcript } = chat;
  const told = run ? transcript.runs.get(run.id) : undefined;
  const shownChildren = new Set(blocks.flatMap((block) => (block.kind === "call" && block.child !== null ? [block.child] : [])));
  const others = questions.filter((question) => question.run !== run?.id && !shownChildren.has(question.run));
  const isAtWork = run?.status === "RUNNING" && canGoOn(run) && !previews.length;

  const room = useRef<HTMLDivElement>(null);
  const stood = useRef({ isAtEnd: true, first: blocks[0]?.key, height: 0 });
  const onScroll = () => {
    const element = room.current;
    if (element) stood.current.isAtEnd = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR;
  };
  // After each drawing: the end stays in sight, or what was read stays where it was when older blocks came before it.
  useLayoutEffect(() => {
    const element = room.current;
    if (!element) return;
    const known = stood.current;
    if (known.isAtEnd) element.scrollTop = element.scrollHeight;
    else if (known.first !== blocks[0]?.key) element.scrollTop += element.scrollHeight - known.height;
    stood.current = { ...known, first: blocks[0]?.key, height: element.scrollHeight };
  });

  return (
    <div ref={room} className="flovyn-log" role="log" aria-live="polite" aria-label={labels.conversation} aria-busy={chat.isLoading} tabIndex={0} onScroll={onScroll}>
      {chat.hasOlder && (
        <button type="button" className="flovyn-button" data-action="older" disabled={chat.isLoadingOlder} onClick={() => void chat.loadOlder()}>
          {chat.isLoadingOlder ? labels.loading : labels.showEarlier}
        </button>
      )}
      {blocks.map((block, index) =>
        block.kind === "call" ? (
          <CallView
            key={block.key}
            block={block}
            told={block.result ? undefined : told}
            ordinal={ordinalOf(blocks, index)}
            isOpenRun={run !== null && canGoOn(run)}
            questions={block.child === null ? NONE : questions.filter((question) => question.run === block.child)}
          />
        ) : (
          <BlockView key={block.key} block={block} />
        ),
      )}
      {previews.map((preview) => (
        <LiveView key={preview.op} preview={preview} />
      ))}
      {others.map((question) => (
        <QuestionView key={`${question.run} ${question.block.key}`} question={question} />
      ))}
      {isAtWork && (
        <p className="flovyn-activity" role="status">
          {labels.working}
        </p>
      )}
      {!blocks.length && !previews.length && <p className="flovyn-empty">{chat.isLoading ? labels.loading : labels.empty}</p>}
    </div>
  );
}

/** What is being written. It is read to nobody piece by piece; the durable block that takes its place is. */
function LiveView({ preview }: { readonly preview: Preview }): ReactNode {
  const { labels } = useChat();
  return (
    <article className="flovyn-message" data-role="assistant" data-live aria-label={labels.beingWritten} aria-live="off" aria-busy={!preview.done}>
      {preview.thinking && <ThinkingView text={preview.thinking} isLive={!preview.text && !preview.done} />}
      {preview.text && <Prose text={preview.text} />}
      {[...preview.calls].map(([part, text]) => (
        <pre key={part} className="flovyn-terminal">
          {text.slice(-200)}
        </pre>
      ))}
    </article>
  );
}
