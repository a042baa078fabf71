// One block of a conversation, as the chat draws it.
import { memo } from "react";
import type { ReactNode } from "react";
import { asObject, asText } from "../transcript/index.js";
import type { Block, MediaPart } from "../transcript/index.js";
import { useAction, useChat } from "./context.js";
import { Prose, Value } from "./text.js";

/** Pictures that cannot run anything; SVG, which can, is none of them. */
const PICTURES: ReadonlySet<string> = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

export const BlockView = memo(function BlockView({ block }: { readonly block: Exclude<Block, { kind: "call" }> }): ReactNode {
  switch (block.kind) {
    case "message":
      return <MessageView block={block} />;
    case "thinking":
      return <ThinkingView text={block.text} isLive={false} isHidden={block.redacted} />;
    case "note":
      return <NoteView word={block.word} value={block.value} />;
    case "deferred":
      return <DeferredView block={block} />;
    default:
      return <Value value={block.value} label={block.entry.type} />;
  }
});

function MessageView({ block }: { readonly block: Extract<Block, { kind: "message" }> }): ReactNode {
  const { labels } = useChat();
  if (block.role === "system") {
    return (
      <details className="flovyn-aside" data-kind="system">
        <summary>{labels.system}</summary>
        <Prose text={block.text} />
      </details>
    );
  }
  return (
    <article className="flovyn-message" data-role={block.role} aria-label={block.role === "user" ? labels.fromUser : labels.fromAgent}>
      <Prose text={block.text} />
      {block.media.map((media, index) => (
        <MediaView key={index} media={media} />
      ))}
    </article>
  );
}

function MediaView({ media }: { readonly media: MediaPart }): ReactNode {
  const name = media.name ?? media.mime;
  if (media.base64 !== null && PICTURES.has(media.mime)) return <img className="flovyn-picture" src={`data:${media.mime};base64,${media.base64}`} alt={name} />;
  return <span className="flovyn-file">{name}</span>;
}

export function ThinkingView({ text, isLive, isHidden = false }: { readonly text: string; readonly isLive: boolean; readonly isHidden?: boolean }): ReactNode {
  const { labels } = useChat();
  return (
    <details className="flovyn-aside" data-kind="thinking" data-live={isLive || undefined}>
      <summary>{isLive ? labels.thinking : labels.thought}</summary>
      {isHidden ? <p>{labels.hidden}</p> : <Prose text={text} />}
    </details>
  );
}

function NoteView({ word, value }: { readonly word: string; readonly value: unknown }): ReactNode {
  const said = asObject(value);
  const text = ["message", "reason", "stopReason", "text"].map((name) => asText(said?.[name])).find((each) => each !== null) ?? asText(value);
  return (
    <p className="flovyn-note" data-note={word}>
      {word.replace(/_/g, " ")}
      {text ? `: ${text}` : ""}
    </p>
  );
}

/** A value that is not listed for its size: it is read when the reader wants to see it. */
function DeferredView({ block }: { readonly block: Extract<Block, { kind: "deferred" }> }): ReactNode {
  const { actions, labels } = useChat();
  const action = useAction();
  const size = block.entry.reference?.size ?? 0;
  return (
    <div className="flovyn-deferred">
      <span>
        {block.entry.type}, {Math.ceil(size / 1024)} KiB
      </span>
      <button type="button" className="flovyn-button" disabled={action.isBusy} onClick={() => void action.run(() => actions.loadEntry(block.entry.run, block.entry.id))}>
        {labels.showValue}
      </button>
      {action.error !== null && <span role="alert">{action.error}</span>}
    </div>
  );
}
