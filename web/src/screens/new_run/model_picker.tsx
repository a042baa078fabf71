// Picks models: those that this server can ask first, with their window and list prices.
import { useState } from "react";
import type { Schemas } from "../../api/client";
import { Check } from "../../parts/field";
import { formatTokens } from "../../parts/format";

interface ModelPickerProps {
  models: readonly Schemas["Model"][];
  /** References, the first is asked first. */
  chosen: readonly string[];
  onChange: (chosen: readonly string[]) => void;
}

export function ModelPicker({ models, chosen, onChange }: ModelPickerProps) {
  const [text, setText] = useState("");
  const [isAll, setAll] = useState(false);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = models
    .filter((model) => isAll || model.isAvailable || chosen.includes(model.reference) || !models.some((each) => each.isAvailable))
    .filter((model) => words.every((word) => `${model.reference} ${model.name}`.toLowerCase().includes(word)))
    .sort((left, right) => Number(right.isAvailable) - Number(left.isAvailable) || left.name.localeCompare(right.name));
  return (
    <fieldset className="min-w-0 rounded-lg border border-line bg-surface">
      <legend className="sr-only">Model</legend>
      <div className="flex flex-wrap items-center gap-2 border-b border-line p-2">
        <span className="text-xs font-medium text-soft">Model</span>
        <input aria-label="Find a model" value={text} onChange={(event) => setText(event.target.value)} placeholder="Find a model…" className="h-7 min-w-32 flex-1 rounded-md border border-line bg-ground px-2 text-sm" />
        <Check label="Without a key here too" checked={isAll} onChange={(event) => setAll(event.target.checked)} />
      </div>
      <ul className="max-h-56 overflow-y-auto">
        <li>
          <label className="flex cursor-pointer items-center gap-2 px-3 py-1 text-sm hover:bg-hover">
            <input type="radio" name="model" checked={!chosen.length} onChange={() => onChange([])} className="accent-(--accent)" />
            As the agent has it
          </label>
        </li>
        {found.map((model) => (
          <li key={model.reference}>
            <label className="flex cursor-pointer flex-wrap items-center gap-x-2 px-3 py-1 text-sm hover:bg-hover">
              <input type="radio" name="model" checked={chosen[0] === model.reference} onChange={() => onChange([model.reference])} className="accent-(--accent)" />
              <span>{model.name}</span>
              <span className="font-mono text-xs text-faint">{model.provider}</span>
              {!model.isAvailable && <span className="text-xs text-amber">no key here</span>}
              <span className="ml-auto text-xs text-faint tabular-nums">
                {model.contextWindow != null && `${formatTokens(model.contextWindow)} · `}
                {model.prices ? `$${model.prices.input / 1e6} / $${model.prices.output / 1e6}` : "price unknown"}
              </span>
            </label>
          </li>
        ))}
        {!found.length && <li className="px-3 py-2 text-sm text-faint">No model is called that.</li>}
      </ul>
    </fieldset>
  );
}
