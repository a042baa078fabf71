// A person decides whether a call may run: in place, with what it would run with.
import { useState } from "react";
import type { FormEvent, ReactNode } from "react";
import type { ApprovalAsked, CallPart } from "../transcript/index.js";
import { useAction, useChat } from "./context.js";
import { Value } from "./text.js";

interface ApprovalFormProps {
  readonly call: CallPart;
  readonly asked: ApprovalAsked;
  /** Whether it can still be decided. */
  readonly isOpen: boolean;
}

export function ApprovalForm({ call, asked, isOpen }: ApprovalFormProps): ReactNode {
  const { actions, labels } = useChat();
  const action = useAction();
  const [isDenying, setDenying] = useState(false);
  const [reason, setReason] = useState("");
  const [sent, setSent] = useState<boolean | null>(null);
  const decided = asked.decision?.approved ?? sent;
  if (decided !== null) {
    return (
      <p className="flovyn-decision" data-approved={decided}>
        {decided ? labels.approved : labels.denied} {asked.decision?.reason}
      </p>
    );
  }
  if (!isOpen) return null;
  const decide = (approved: boolean) =>
    void action.run(() => (approved ? actions.approve(call.id) : actions.deny(call.id, reason))).then((isDone) => {
      if (isDone) setSent(approved);
    });
  const onSubmit = (event: FormEvent) => {
    event.preventDefault();
    decide(!isDenying);
  };
  return (
    <form className="flovyn-question" aria-label={labels.mayItRun} onSubmit={onSubmit}>
      <p>
        <strong>{labels.mayItRun}</strong> {labels.effects[asked.effect] ?? ""}
      </p>
      <Value value={asked.arguments ?? call.arguments} label={labels.arguments} />
      {isDenying && (
        <input
          autoFocus
          className="flovyn-field"
          aria-label={labels.whyNot}
          placeholder={labels.whyNot}
          value={reason}
          onChange={(event) => setReason(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Escape") setDenying(false);
          }}
        />
      )}
      <div className="flovyn-buttons">
        {isDenying ? (
          <>
            <button type="submit" className="flovyn-button" disabled={action.isBusy}>
              {labels.deny}
            </button>
            <button type="button" className="flovyn-button" onClick={() => setDenying(false)}>
              {labels.back}
            </button>
          </>
        ) : (
          <>
            <button type="submit" className="flovyn-button" data-primary disabled={action.isBusy}>
              {labels.approve}
            </button>
            <button type="button" className="flovyn-button" disabled={action.isBusy} onClick={() => setDenying(true)}>
              {labels.deny}…
            </button>
          </>
        )}
      </div>
      {action.error !== null && <p role="alert">{action.error}</p>}
    </form>
  );
}
