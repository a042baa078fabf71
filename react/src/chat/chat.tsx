// `<Chat>`: a run as a conversation that is read, decided and gone on with.
import { useMemo } from "react";
import type { ReactNode } from "react";
import type { Delivery, FlovynClient } from "../client/index.js";
import { useRun } from "../hooks/use_run.js";
import type { CallBlock } from "../transcript/index.js";
import { Composer } from "./composer.js";
import { ChatContext, LiveContext } from "./context.js";
import type { ChatContextValue } from "./context.js";
import { englishLabels } from "./labels.js";
import type { ChatLabels } from "./labels.js";
import { Log } from "./log.js";
import { Notice } from "./notice.js";

/** Says which run a chat shows, and how. */
export interface ChatProps {
  /** The id of the run: its UUID, or the one it was started with. */
  readonly run: string;
  /** The client to use in place of the provider's. */
  readonly client?: FlovynClient | undefined;
  /** Draws what models and people write. Without it text is shown as text. What it makes of hostile text is its own to answer for. */
  readonly renderMarkdown?: ((text: string) => ReactNode) | undefined;
  /** Draws a call of a tool, above its approval; null or undefined leaves it to the chat. */
  readonly renderCall?: ((block: CallBlock) => ReactNode) | undefined;
  /** What the chat says by itself, in other words or another language. */
  readonly labels?: Partial<ChatLabels> | undefined;
  /** When messages are heard; before the next model call without it. */
  readonly delivery?: Delivery | undefined;
  /** Shows the conversation without the field to write in. Questions can be decided all the same. */
  readonly isReadOnly?: boolean | undefined;
  readonly className?: string | undefined;
}

/**
 * Shows a run as a chat: its text as it is written, thinking folded, tool calls with their results, approvals in place, and a
 * field to write in.
 *
 * It has no looks of its own: style its class names and `data-` attributes, or import `@flovyn/react/styles.css`. Nothing that
 * models, tools or people write is made HTML of.
 */
export function Chat({ run, client, renderMarkdown, renderCall, labels, delivery = "next_step", isReadOnly = false, className }: ChatProps): ReactNode {
  const chat = useRun(run, { client });
  const { approve, deny, answer, loadEntry } = chat;
  const value = useMemo<ChatContextValue>(
    () => ({ actions: { approve, deny, answer, loadEntry }, labels: labels ? { ...englishLabels, ...labels } : englishLabels, renderMarkdown, renderCall }),
    [approve, deny, answer, loadEntry, labels, renderMarkdown, renderCall],
  );
  return (
    <ChatContext.Provider value={value}>
      <LiveContext.Provider value={chat}>
        <section className={className ? `flovyn-chat ${className}` : "flovyn-chat"} data-status={chat.status ?? undefined} data-connection={chat.connection}>
          <Log key={run} />
          <Notice />
          {!isReadOnly && <Composer key={`${run} composer`} delivery={delivery} />}
        </section>
      </LiveContext.Provider>
    </ChatContext.Provider>
  );
}
