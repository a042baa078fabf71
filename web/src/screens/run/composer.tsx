// Where people speak to a run: a message to an agent that hears them, or any signal that a run waits for.
import { USER_MESSAGE, awaitedSignals, canGoOn, hearsMessages as hears, isBuiltIn, uniqueKey } from "@flovyn/react/client";
import { Send, Square } from "lucide-react";
import { useState } from "react";
import type { FormEvent, KeyboardEvent } from "react";
import { endTurn, sayTo, sendSignal } from "../../api/steer";
import type { Delivery } from "../../api/steer";
import { Button } from "../../parts/button";
import { InlineSelect } from "../../parts/field";
import { useAction } from "../../parts/use_action";
import { useShown } from "./shown";

const ways: readonly { delivery: Delivery; word: string; hint: string }[] = [
  { delivery: "next_step", word: "Steer", hint: "Heard before the next model call; tools that run are waited for." },
  { delivery: "next_turn", word: "Queue", hint: "Heard when the model has nothing left to do." },
  { delivery: "now", word: "Interrupt", hint: "Heard at once: what is being written or run ends with what it has." },
];

/** What was sent and has not been heard yet. The API lists no signals, so it is what this page has sent. */
interface Pending {
  readonly id: number;
  readonly text: string;
  readonly after: number;
}

export function Composer() {
  const { run, view } = useShown();
  const action = useAction();
  const [text, setText] = useState("");
  const [delivery, setDelivery] = useState<Delivery>("next_step");
  const [sent, setSent] = useState<readonly Pending[]>([]);
  const signals = awaitedSignals(run).filter((name) => name !== "approval" && name !== "input");
  const hearsMessages = hears(run);
  const [signal, setSignal] = useState<string | null>(null);
  const name = signal ?? (hearsMessages ? USER_MESSAGE : (signals[0] ?? USER_MESSAGE));
  const seq = view.transcript.runs.get(run.id)?.seq ?? 0;
  const heard = new Set([...view.transcript.entries.values()].slice(-50).flatMap((entry) => (entry.role === "user" ? [JSON.stringify(entry.content)] : [])));
  const pending = sent.filter((each) => ![...heard].some((content) => content.includes(JSON.stringify(each.text).slice(1, -1))));

  if (!canGoOn(run)) return null;
  const way = ways.find((each) => each.delivery === delivery);
  const send = (event?: FormEvent) => {
    event?.preventDefault();
    const said = text.trim();
    if (!said) return;
    void action
      .run(() => (name === USER_MESSAGE ? sayTo(run.id, said, delivery) : sendSignal(run.id, name, valueOf(said), { key: uniqueKey() })))
      .then((done) => {
        if (!done) return;
        setText("");
        if (name === USER_MESSAGE) setSent([...sent, { id: Date.now(), text: said, after: seq }]);
      });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  };
  return (
    <form onSubmit={send} className="shrink-0 border-t border-line bg-surface px-4 py-2.5">
      <div className="mx-auto flex max-w-3xl flex-col gap-2">
        {pending.length > 0 && (
          <ul aria-label="Not heard yet" className="flex flex-wrap gap-1.5">
            {pending.map((each) => (
              <li key={each.id} className="max-w-full truncate rounded-full border border-dashed border-line-strong px-2.5 py-0.5 text-xs text-soft">
                {each.text}
              </li>
            ))}
          </ul>
        )}
        <textarea
          data-composer
          aria-label={name === USER_MESSAGE ? "Message" : `Value of the signal ${name}`}
          value={text}
          rows={Math.min(8, Math.max(1, text.split("\n").length))}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={onKeyDown}
          placeholder={name === USER_MESSAGE ? "Say something to the agent…" : `The signal ${name}: JSON, or a text`}
          className="w-full resize-none rounded-lg border border-line-strong/60 bg-ground px-3 py-2 text-sm placeholder:text-faint"
        />
        <div className="flex flex-wrap items-center gap-2">
          {name === USER_MESSAGE ? (
            <InlineSelect label="When it is heard" title={way?.hint} value={delivery} onChange={(event) => setDelivery(event.target.value as Delivery)}>
              {ways.map((each) => (
                <option key={each.delivery} value={each.delivery} title={each.hint}>
                  {each.word}
                </option>
              ))}
            </InlineSelect>
          ) : null}
          {signals.some((each) => each !== USER_MESSAGE) && (
            <InlineSelect label="Signal" value={name} onChange={(event) => setSignal(event.target.value)}>
              {[...new Set([USER_MESSAGE, ...signals])].map((each) => (
                <option key={each}>{each}</option>
              ))}
            </InlineSelect>
          )}
          <span className="hidden min-w-0 flex-1 truncate text-xs text-faint sm:block">{name === USER_MESSAGE ? way?.hint : "It waits for this signal."}</span>
          <span className="ml-auto flex gap-2">
            {run.status === "RUNNING" && isBuiltIn(run) && (
              <Button icon={<Square size={12} />} title="Ends the turn: what is being written or run ends with what it has" onClick={() => void action.run(() => endTurn(run.id), "The turn is being ended.")}>
                End turn
              </Button>
            )}
            <Button type="submit" tone="primary" busy={action.busy} disabled={!text.trim()} icon={<Send size={13} />}>
              Send
            </Button>
          </span>
        </div>
      </div>
    </form>
  );
}

function valueOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
