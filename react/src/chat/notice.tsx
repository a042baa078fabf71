// What is to be said of a run as a whole: that the connection was lost, that it is paused, that it failed.
import type { ReactNode } from "react";
import { waitingFor } from "../client/index.js";
import { useAction, useChat, useLive } from "./context.js";

export function Notice(): ReactNode {
  const { labels } = useChat();
  const chat = useLive();
  const action = useAction();
  const { run, error, connection } = chat;
  const failure = action.error !== null && <p role="alert">{action.error}</p>;
  if (error) {
    return (
      <p className="flovyn-notice" data-notice="error" role="alert">
        {error.message}
      </p>
    );
  }
  if (connection === "reconnecting") {
    return (
      <p className="flovyn-notice" data-notice="reconnecting" role="status">
        {labels.reconnecting}
      </p>
    );
  }
  switch (run?.status) {
    case "PAUSED":
      return (
        <div className="flovyn-notice" data-notice="paused" role="status">
          {labels.paused} {waitingFor(run)}{" "}
          <button type="button" className="flovyn-button" disabled={action.isBusy} onClick={() => void action.run(() => chat.resume())}>
            {labels.resume}
          </button>
          {failure}
        </div>
      );
    case "FAILED":
      return (
        <div className="flovyn-notice" data-notice="failed" role="alert">
          {labels.failed} {run.failure?.message}{" "}
          <button type="button" className="flovyn-button" disabled={action.isBusy} onClick={() => void action.run(() => chat.retry())}>
            {labels.retry}
          </button>
          {failure}
        </div>
      );
    case "CANCELLED":
      return (
        <p className="flovyn-notice" data-notice="ended" role="status">
          {labels.ended}
        </p>
      );
    default:
      return null;
  }
}
