// Where a person speaks to the run, and ends what it is doing.
import { useState } from "react";
import type { FormEvent, KeyboardEvent, ReactNode } from "react";
import { canGoOn, hearsMessages, isBuiltIn } from "../client/index.js";
import type { Delivery } from "../client/index.js";
import { useAction, useChat, useLive } from "./context.js";

export function Composer({ delivery }: { readonly delivery: Delivery }): ReactNode {
  const { labels } = useChat();
  const chat = useLive();
  const action = useAction();
  const [text, setText] = useState("");
  const { run, pending, previews } = chat;
  if (!run || !canGoOn(run)) return null;
  const isHeard = hearsMessages(run);
  // The stream is ahead of what the API has told of the run.
  const isAtWork = run.status === "RUNNING" || previews.length > 0;
  const send = (event?: FormEvent) => {
    event?.preventDefault();
    const said = text.trim();
    if (!said || action.isBusy) return;
    // It stands among the messages that were not heard yet from now on; where it could not be sent, it comes back to be sent again.
    setText("");
    void action.run(() => chat.send(said, { delivery })).then((isDone) => {
      if (!isDone) setText((current) => (current === "" ? said : current));
    });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  };
  const stop = () => void action.run(() => (isBuiltIn(run) ? chat.interrupt() : chat.stop()));
  return (
    <form className="flovyn-composer" onSubmit={send}>
      {pending.length > 0 && (
        <ul className="flovyn-pending" aria-label={labels.notHeardYet}>
          {pending.map((message) => (
            <li key={message.key} data-sent={message.isSent}>
              {message.text}
            </li>
          ))}
        </ul>
      )}
      {isHeard && (
        <textarea
          className="flovyn-field"
          aria-label={labels.message}
          placeholder={labels.message}
          value={text}
          rows={Math.min(8, Math.max(1, text.split("\n").length))}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={onKeyDown}
        />
      )}
      <div className="flovyn-buttons">
        {isAtWork && (
          <button type="button" className="flovyn-button" data-action="stop" onClick={stop}>
            {labels.stop}
          </button>
        )}
        {isHeard && (
          <button type="submit" className="flovyn-button" data-primary disabled={action.isBusy || !text.trim()}>
            {labels.send}
          </button>
        )}
      </div>
      {action.error !== null && <p role="alert">{action.error}</p>}
    </form>
  );
}
