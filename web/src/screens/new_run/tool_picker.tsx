// Picks tools of the host, with what each does and whether a person is asked.
import type { Schemas } from "../../api/client";
import { classNames } from "../../parts/class_names";

interface ToolPickerProps {
  tools: readonly Schemas["Tool"][];
  chosen: readonly string[];
  onChange: (chosen: readonly string[]) => void;
}

const effects: Readonly<Record<string, string>> = { read: "looks", write: "changes", exec: "runs" };

export function ToolPicker({ tools, chosen, onChange }: ToolPickerProps) {
  if (!tools.length) return null;
  return (
    <fieldset className="min-w-0">
      <legend className="mb-1 text-xs font-medium text-soft">Tools {chosen.length ? `(${chosen.length})` : "(as the agent has them)"}</legend>
      <div className="flex flex-wrap gap-1.5">
        {tools.map((tool) => {
          const isChosen = chosen.includes(tool.name);
          return (
            <label
              key={tool.name}
              title={tool.description}
              className={classNames("inline-flex cursor-pointer items-center gap-1.5 rounded-full border px-2.5 py-0.5 text-sm", isChosen ? "border-accent bg-accent-ground text-accent" : "border-line bg-surface text-soft")}
            >
              <input type="checkbox" checked={isChosen} onChange={() => onChange(isChosen ? chosen.filter((each) => each !== tool.name) : [...chosen, tool.name])} className="size-3.5 accent-(--accent)" />
              {tool.name}
              <span className="text-xs text-faint">{effects[tool.effect] ?? tool.effect}</span>
            </label>
          );
        })}
      </div>
    </fieldset>
  );
}
