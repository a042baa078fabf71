// The chat: useChat with a transport that goes on behind cuts.
"use client";
import { useChat } from "@ai-sdk/react";
import { flovynTransport, isRetracted } from "@flovyn/react/ai-sdk";
import { getToolName, isToolUIPart, lastAssistantMessageIsCompleteWithApprovalResponses, type UIMessage } from "ai";

const transport = flovynTransport({ url: "/flovyn", definition: "otters" });

export function Chat({ id, first }: { id: string; first: UIMessage[] }) {
  const sendAutomaticallyWhen = lastAssistantMessageIsCompleteWithApprovalResponses;
  const { messages, sendMessage, addToolApprovalResponse, error } = useChat({ id, messages: first, transport, resume: true, sendAutomaticallyWhen });

  function shown(part: UIMessage["parts"][number], key: number) {
    if (part.type === "text" && !isRetracted(part)) return <p key={key} style={{ whiteSpace: "pre-wrap" }}>{part.text}</p>;
    if (!isToolUIPart(part)) return null;
    const decide = (approved: boolean) => part.approval && addToolApprovalResponse({ id: part.approval.id, approved });
    const buttons = <> <button onClick={() => decide(true)}>Allow</button> <button onClick={() => decide(false)}>Deny</button></>;
    return <p key={key}><code>{getToolName(part)}</code> {part.state}{part.state === "approval-requested" && buttons}</p>;
  }

  return (
    <main>
      {messages.map((message) => <section key={message.id}><b>{message.role}</b>{message.parts.map(shown)}</section>)}
      {error && <p role="alert">{error.message}</p>}
      <form action={(form) => void sendMessage({ text: String(form.get("text")) })}>
        <input name="text" aria-label="Message" required /> <button>Send</button>
      </form>
    </main>
  );
}
