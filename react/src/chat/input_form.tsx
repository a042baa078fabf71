// The questions of a server, or of an agent: forms by their schemas, and addresses to visit.
import { useEffect, useState } from "react";
import type { FormEvent, ReactNode } from "react";
import { asObject, asText, emptyValues, fieldsOf, readValues, safeAddress } from "../transcript/index.js";
import type { Field, FormValues, InputAsked } from "../transcript/index.js";
import { useAction, useChat } from "./context.js";

/** An answer is taken up within this time, or it was refused and the questions are shown again. */
const TAKEN_UP_MS = 5_000;

export function InputForm({ callId, asked }: { readonly callId: string; readonly asked: InputAsked }): ReactNode {
  const { actions, labels } = useChat();
  const action = useAction();
  const questions = Object.entries(asked.questions).map(([key, value]) => ({ key, question: asObject(value) ?? {} }));
  const [values, setValues] = useState<Readonly<Record<string, FormValues>>>(() => Object.fromEntries(questions.map(({ key, question }) => [key, emptyValues(question["schema"])])));
  const [error, setError] = useState<string | null>(null);
  const [isSent, setSent] = useState(false);
  useEffect(() => {
    if (!isSent) return;
    const timer = setTimeout(() => setSent(false), TAKEN_UP_MS);
    return () => clearTimeout(timer);
  }, [isSent]);

  const send = (responses: Readonly<Record<string, unknown>>) => void action.run(() => actions.answer(callId, responses)).then(setSent);
  const onSubmit = (event: FormEvent) => {
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
  const decline = () => send(Object.fromEntries(questions.map(({ key }) => [key, { action: "decline" }])));
  const wrong = error ?? action.error ?? asked.refusal;
  return (
    <form className="flovyn-question" aria-label={labels.asks} onSubmit={onSubmit}>
      <p>
        <strong>{labels.asks}</strong> {asked.server}
      </p>
      {questions.map(({ key, question }) => (
        <fieldset key={key} className="flovyn-fields">
          <legend>{asText(question["message"])}</legend>
          {asText(question["url"]) === null ? (
            fieldsOf(question["schema"]).map((field) => (
              <FieldView key={field.name} field={field} value={values[key]?.[field.name] ?? ""} onChange={(value) => setValues({ ...values, [key]: { ...values[key], [field.name]: value } })} />
            ))
          ) : (
            <Address address={asText(question["url"]) ?? ""} />
          )}
        </fieldset>
      ))}
      <div className="flovyn-buttons">
        <button type="submit" className="flovyn-button" data-primary disabled={action.isBusy || isSent}>
          {labels.submitAnswer}
        </button>
        <button type="button" className="flovyn-button" disabled={action.isBusy || isSent} onClick={decline}>
          {labels.decline}
        </button>
      </div>
      {wrong !== null && <p role="alert">{wrong}</p>}
    </form>
  );
}

function Address({ address }: { readonly address: string }): ReactNode {
  if (safeAddress(address) === null) return <span>{address}</span>;
  return (
    <a href={address} target="_blank" rel="noopener noreferrer nofollow">
      {address}
    </a>
  );
}

interface FieldViewProps {
  readonly field: Field;
  readonly value: string | boolean;
  readonly onChange: (value: string | boolean) => void;
}

function FieldView({ field, value, onChange }: FieldViewProps): ReactNode {
  const { labels } = useChat();
  const text = typeof value === "string" ? value : "";
  const name = field.isRequired ? field.label : `${field.label} (${labels.optional})`;
  if (field.kind === "boolean") {
    return (
      <label className="flovyn-check">
        <input type="checkbox" checked={value === true} onChange={(event) => onChange(event.target.checked)} /> {field.label}
      </label>
    );
  }
  return (
    <label className="flovyn-label">
      {name}
      {field.hint !== null && <small>{field.hint}</small>}
      {field.kind === "choice" ? (
        <select className="flovyn-field" value={text} onChange={(event) => onChange(event.target.value)}>
          <option value="">–</option>
          {field.choices.map((choice) => (
            <option key={choice}>{choice}</option>
          ))}
        </select>
      ) : field.kind === "json" ? (
        <textarea className="flovyn-field" value={text} onChange={(event) => onChange(event.target.value)} />
      ) : (
        <input className="flovyn-field" inputMode={field.kind === "text" ? "text" : "decimal"} value={text} onChange={(event) => onChange(event.target.value)} />
      )}
    </label>
  );
}
