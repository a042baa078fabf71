// Text of models, tools and people: as text, or drawn by whoever uses the chat. Nothing here makes HTML of it.
import { useState } from "react";
import type { ReactNode } from "react";
import { useChat } from "./context.js";

/** A long value is cut here until its reader asks for all of it. */
const SHOWN = 4_000;

/** What a model or a person says. */
export function Prose({ text }: { readonly text: string }): ReactNode {
  const { renderMarkdown } = useChat();
  return <div className="flovyn-prose">{renderMarkdown ? renderMarkdown(text) : text}</div>;
}

/** What a program gives or takes, in letters of one width. */
export function Value({ value, label }: { readonly value: unknown; readonly label: string }): ReactNode {
  const { labels } = useChat();
  const [isWhole, setWhole] = useState(false);
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const isCut = !isWhole && text.length > SHOWN;
  return (
    <div className="flovyn-value">
      <pre aria-label={label} tabIndex={0}>
        {isCut ? `${text.slice(0, SHOWN)}…` : text}
      </pre>
      {isCut && (
        <button type="button" className="flovyn-button" onClick={() => setWhole(true)}>
          {labels.showAll}
        </button>
      )}
    </div>
  );
}
