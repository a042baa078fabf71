// A person decides: whether a call may run, or what a server asks. In place, with all that the decision is about.
import { asObject, asText, emptyValues, readValues, safeAddress } from "@flovyn/react/transcript";
import type { ApprovalAsked, InputAsked } from "@flovyn/react/transcript";
import { Check, PencilLine, ShieldQuestion, X } from "lucide-react";
import { useState } from "react";
import type { FormEvent } from "react";
import { decide, respond } from "../../api/steer";
import { Button } from "../../parts/button";
import { Check as FormCheck } from "../../parts/field";
import { formatRelative } from "../../parts/format";
import { SchemaForm } from "../../parts/schema_form";
import { useAction } from "../../parts/use_action";

function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const effects: Readonly<Record<string, string>> = { read: "It only looks.", write: "It changes something.", exec: "It runs what the model wrote." };

export function ApprovalForm({ run, asked, isOpen }: { run: string; asked: ApprovalAsked; isOpen: boolean }) {
  const action = useAction();
  const [isDenying, setDenying] = useState(false);
  const [reason, setReason] = useState("");
  const [sent, setSent] = useState<boolean | null>(null);
  const [edited, setEdited] = useState<string | null>(null);
  const [isForRun, setForRun] = useState(false);
  const given = edited === null ? null : asObject(readJson(edited));
  const send = (approved: boolean) => {
    const terms = { ...(given ? { arguments: given } : {}), ...(isForRun ? { scope: "run" as const } : {}) };
    void action.run(() => decide(run, asked, approved, reason.trim(), terms)).then((done) => done && setSent(approved));
  };

  if (asked.decision) {
    return (
      <p className="text-xs text-soft">
        {asked.decision.approved ? "Approved" : "Denied"} {formatRelative(asked.decision.at)}
        {asked.decision.scope === "run" && <> for the rest of the run</>}
        {asObject(asked.decision.arguments) && <>, with other arguments</>}
        {asked.decision.reason && <>: “{asked.decision.reason}”</>}
      </p>
    );
  }
  if (!isOpen) return <p className="text-xs text-soft">Nobody decided; the call was skipped.</p>;
  if (sent !== null) return <p className="text-xs text-soft">{sent ? "Approved" : "Denied"}. The agent takes it up…</p>;
  return (
    <div className="flex flex-col gap-2 rounded-md border border-amber/40 bg-amber-ground p-3">
      <p className="flex items-start gap-2 text-sm">
        <ShieldQuestion size={16} aria-hidden className="mt-0.5 shrink-0 text-amber" />
        <span>
          <strong className="font-medium">May this call run?</strong> {effects[asked.effect] ?? ""} <span className="text-soft">Asked {formatRelative(asked.at)}.</span>
        </span>
      </p>
      {edited !== null && !isDenying && (
        <div className="flex flex-col gap-1">
          <textarea
            aria-label="Arguments"
            aria-invalid={!given}
            value={edited}
            onChange={(event) => setEdited(event.target.value)}
            rows={Math.min(14, edited.split("\n").length + 1)}
            spellCheck={false}
            className="rounded-md border border-line-strong/60 bg-surface px-2.5 py-1.5 font-mono text-xs"
          />
          {!given && <p className="text-xs text-red">This is no JSON object.</p>}
        </div>
      )}
      {!isDenying && <FormCheck label="For the rest of this run: calls that are alike are not asked about again" checked={isForRun} onChange={(event) => setForRun(event.target.checked)} />}
      {isDenying && (
        <input
          autoFocus
          aria-label="Why not"
          value={reason}
          onChange={(event) => setReason(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter") send(false);
            if (event.key === "Escape") {
              event.stopPropagation();
              setDenying(false);
            }
          }}
          placeholder="Why not? The model reads it."
          className="h-8 rounded-md border border-line-strong/60 bg-surface px-2.5 text-sm"
        />
      )}
      <div className="flex flex-wrap gap-2">
        {isDenying ? (
          <>
            <Button tone="danger" busy={action.busy} icon={<X size={14} />} onClick={() => send(false)}>
              Deny
            </Button>
            <Button tone="quiet" onClick={() => setDenying(false)}>
              Back
            </Button>
          </>
        ) : (
          <>
            <Button tone="primary" busy={action.busy} disabled={edited !== null && !given} icon={<Check size={14} />} onClick={() => send(true)}>
              {edited === null ? "Approve" : "Approve these"}
            </Button>
            {edited === null ? (
              <Button icon={<PencilLine size={14} />} onClick={() => setEdited(JSON.stringify(asked.arguments, null, 2))}>
                Edit…
              </Button>
            ) : (
              <Button tone="quiet" onClick={() => setEdited(null)}>
                As the model wrote them
              </Button>
            )}
            <Button icon={<X size={14} />} onClick={() => setDenying(true)}>
              Deny…
            </Button>
          </>
        )}
      </div>
    </div>
  );
}

/** The questions of a server: forms by their schemas, addresses to visit. */
export function InputForm({ run, asked }: { run: string; asked: InputAsked }) {
  const action = useAction();
  const questions = Object.entries(asked.questions).map(([key, value]) => ({ key, question: asObject(value) ?? {} }));
  const [values, setValues] = useState(() => Object.fromEntries(questions.map(({ key, question }) => [key, emptyValues(question["schema"])])));
  const [error, setError] = useState<string | null>(null);
  const [isSent, setSent] = useState(false);

  const send = (responses: Record<string, unknown>) => void action.run(() => respond(run, asked, responses)).then(setSent);
  const accept = (event: FormEvent) => {
    event.preventDefault();
    const responses: Record<string, unknown> = {};
    for (const { key, question } of questions) {
      const read = question["mode"] === "url" ? { value: {} } : readValues(question["schema"], values[key] ?? {});
      if ("error" in read) {
        setError(read.error);
        return;
      }
      responses[key] = { action: "accept", content: read.value };
    }
    setError(null);
    send(responses);
  };
  const refuse = (word: "decline" | "cancel") => send(Object.fromEntries(questions.map(({ key }) => [key, { action: word }])));

  if (isSent && !asked.refusal) return <p className="text-xs text-soft">Answered. The agent takes it up…</p>;
  return (
    <form onSubmit={accept} className="flex flex-col gap-3 rounded-md border border-amber/40 bg-amber-ground p-3">
      <p className="flex items-start gap-2 text-sm">
        <ShieldQuestion size={16} aria-hidden className="mt-0.5 shrink-0 text-amber" />
        <strong className="font-medium">{asked.server ? `${asked.server} asks` : "The agent asks"}</strong>
      </p>
      {questions.map(({ key, question }) => {
        const address = asText(question["url"]);
        return (
          <div key={key} className="flex flex-col gap-2">
            <p className="text-sm [overflow-wrap:anywhere]">{asText(question["message"])}</p>
            {address !== null ? (
              <p className="font-mono text-xs [overflow-wrap:anywhere]">
                {safeAddress(address) ? (
                  <a href={address} target="_blank" rel="noopener noreferrer nofollow" className="text-accent underline">
                    {address}
                  </a>
                ) : (
                  address
                )}
              </p>
            ) : (
              <SchemaForm schema={question["schema"]} values={values[key] ?? {}} onChange={(next) => setValues({ ...values, [key]: next })} />
            )}
          </div>
        );
      })}
      {(error ?? asked.refusal) && (
        <p role="alert" className="text-xs text-red">
          {error ?? asked.refusal}
        </p>
      )}
      <div className="flex flex-wrap gap-2">
        <Button tone="primary" type="submit" busy={action.busy}>
          {questions.every(({ question }) => question["mode"] === "url") ? "Done there" : "Answer"}
        </Button>
        <Button onClick={() => refuse("decline")}>Decline</Button>
        <Button tone="quiet" onClick={() => refuse("cancel")}>
          Close without an answer
        </Button>
      </div>
    </form>
  );
}
