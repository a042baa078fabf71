// One block of a conversation, as it is drawn.
import { asObject, asText } from "@flovyn/react/transcript";
import type { Block } from "@flovyn/react/transcript";
import { useQuery } from "@tanstack/react-query";
import { Braces, ChevronRight } from "lucide-react";
import { memo, useEffect } from "react";
import { entryQuery } from "../../api/queries";
import { Button, IconButton } from "../../parts/button";
import { classNames } from "../../parts/class_names";
import { CopyButton } from "../../parts/copy";
import { formatBytes, formatClock, formatMoment, formatSpan, formatTokens } from "../../parts/format";
import { JsonView } from "../../parts/json_view";
import { Markdown } from "../../parts/markdown";
import { Line } from "./call_card";
import { MediaView } from "./media_view";
import { useShown, useUnfolded } from "./shown";

/** Values up to this size are fetched as soon as they are in sight. */
const AT_ONCE = 300_000;

export const BlockView = memo(function BlockView({ block }: { block: Exclude<Block, { kind: "call" }> }) {
  switch (block.kind) {
    case "message":
      return <MessageView block={block} />;
    case "thinking":
      return <ThinkingView id={block.key} text={block.text} isLive={false} note={block.redacted ? "not shown by its provider" : null} />;
    case "note":
      return <NoteView word={block.word} value={block.value} />;
    case "deferred":
      return <DeferredView block={block} />;
    default:
      return (
        <div className="rounded-lg border border-line bg-surface p-3">
          <p className="mb-1 text-xs text-faint">
            {block.entry.type === "message" ? block.entry.role : block.entry.type} · {formatClock(block.entry.at)}
          </p>
          {typeof block.value === "string" ? <Markdown text={block.value} /> : <JsonView value={block.value} />}
        </div>
      );
  }
});

function MessageView({ block }: { block: Extract<Block, { kind: "message" }> }) {
  const { inspect } = useShown();
  const isUser = block.role === "user";
  const isSystem = block.role === "system";
  if (isSystem) return <SystemView block={block} />;
  return (
    <article aria-label={isUser ? "From the user" : "From the agent"} className={classNames("group", isUser && "ml-auto w-fit max-w-[85%] rounded-xl bg-accent-ground px-4 py-2.5")}>
      <Markdown text={block.text} />
      {block.media.map((media, index) => (
        <div key={index} className="mt-2">
          <MediaView media={media} />
        </div>
      ))}
      <footer className="mt-1 flex min-h-6 flex-wrap items-center gap-x-2 text-xs text-faint">
        <time dateTime={block.entry.at} title={formatMoment(block.entry.at)}>
          {formatClock(block.entry.at)}
        </time>
        {block.facts && (
          <>
            {block.facts.model && <span>{block.facts.model}</span>}
            <span className="tabular-nums">{formatTokens(block.facts.outputTokens)} tokens</span>
            {block.facts.durationMs !== null && <span className="tabular-nums">{formatSpan(block.facts.durationMs / 1000)}</span>}
          </>
        )}
        <span className="flex opacity-0 transition-opacity group-focus-within:opacity-100 group-hover:opacity-100">
          <CopyButton text={block.text} label="Copy the message" />
          <IconButton small label="Inspect" onClick={() => inspect(block.entry.id)}>
            <Braces size={13} />
          </IconButton>
        </span>
      </footer>
    </article>
  );
}

function SystemView({ block }: { block: Extract<Block, { kind: "message" }> }) {
  const [isOpen, setOpen] = useUnfolded(block.key, false);
  return (
    <Fold label="System prompt" isOpen={isOpen} setOpen={setOpen} about={block.text}>
      <Markdown text={block.text} />
    </Fold>
  );
}

export function ThinkingView({ id, text, isLive, note }: { id: string; text: string; isLive: boolean; note: string | null }) {
  const [isOpen, setOpen] = useUnfolded(id, false);
  return (
    <Fold label={isLive ? "Thinking…" : "Thought"} isOpen={isOpen} setOpen={setOpen} about={note ?? text} isLive={isLive}>
      <div className="text-soft">{note ? <p className="text-sm">{note}</p> : <Markdown text={text} />}</div>
    </Fold>
  );
}

interface FoldProps {
  label: string;
  about: string;
  isOpen: boolean;
  setOpen: (isOpen: boolean) => void;
  isLive?: boolean;
  children: React.ReactNode;
}

function Fold({ label, about, isOpen, setOpen, isLive = false, children }: FoldProps) {
  return (
    <div className="border-l-2 border-line pl-3">
      <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)} className="flex min-h-6 w-full min-w-0 items-center gap-1.5 text-left text-xs text-faint hover:text-ink">
        <ChevronRight size={12} aria-hidden className={classNames("shrink-0 transition-transform", isOpen && "rotate-90")} />
        <span className={classNames("shrink-0 font-medium", isLive && "pulse")}>{label}</span>
        {!isOpen && <span className="min-w-0 truncate">{(isLive ? about.slice(-160) : about.slice(0, 160)).replace(/\s+/g, " ")}</span>}
      </button>
      {isOpen && <div className="pt-1.5 pb-1">{children}</div>}
    </div>
  );
}

function NoteView({ word, value }: { word: string; value: unknown }) {
  const said = asObject(value);
  const text = asText(said?.["message"]) ?? asText(said?.["reason"]) ?? asText(said?.["text"]) ?? asText(value);
  switch (word) {
    case "compaction":
      return (
        <details className="rounded-lg border border-line bg-surface px-3 py-2 text-sm">
          <summary className="text-xs text-faint">The conversation before this was summarised for the model</summary>
          <div className="mt-2">
            <Markdown text={asText(said?.["summary"]) ?? ""} />
          </div>
        </details>
      );
    case "answer_end":
      return <Line>The answer stopped: {asText(said?.["stopReason"])}</Line>;
    case "budget_low":
      return <Line>Little is left of the budget{text ? `: ${text}` : ""}</Line>;
    case "context_edit":
      return <Line>What the model sees of an entry was changed</Line>;
    default:
      return <Line>{text ? `${word}: ${text}` : word}</Line>;
  }
}

/** A value that is not listed for its size. It is read once, and the transcript has it from then on. */
function DeferredView({ block }: { block: Extract<Block, { kind: "deferred" }> }) {
  const { store } = useShown();
  const size = block.entry.reference?.size ?? 0;
  const [isAsked, setAsked] = useUnfolded(`read ${block.entry.id}`, size <= AT_ONCE);
  const found = useQuery({ ...entryQuery(block.entry.run, block.entry.id), enabled: isAsked });
  const entry = found.data;
  const href = entry?.contentRef?.href;
  const whole = useQuery({
    queryKey: ["payload", href],
    queryFn: async ({ signal }) => {
      const response = await fetch(href ?? "", { credentials: "same-origin", signal });
      const text = await response.text();
      try {
        return JSON.parse(text) as unknown;
      } catch {
        return text;
      }
    },
    enabled: isAsked && Boolean(href),
    staleTime: Infinity,
  });
  useEffect(() => {
    if (entry && !entry.contentRef) store.page([entry]);
    else if (entry && whole.isSuccess) store.page([{ ...entry, contentRef: null, content: whole.data } as never]);
  }, [entry, store, whole.data, whole.isSuccess]);
  return (
    <div className="flex items-center gap-3 rounded-lg border border-line bg-surface px-3 py-2 text-sm text-soft">
      {isAsked && !found.isLoadingError && !whole.isLoadingError ? (
        <>Reading {formatBytes(size)}…</>
      ) : (
        <>
          A {block.entry.type} of {formatBytes(size)}
          <Button small onClick={() => (isAsked ? void found.refetch() : setAsked(true))}>
            {isAsked ? "Try again" : "Show it"}
          </Button>
        </>
      )}
    </div>
  );
}
