// JSON that folds: only what is open is drawn, so a large value costs what is seen of it.
import { ChevronRight } from "lucide-react";
import { memo, useState } from "react";
import { classNames } from "./class_names";

/** How many members are drawn before the rest has to be asked for. */
const SHOWN = 100;
/** How much of a text is drawn before the rest has to be asked for. */
const SHOWN_TEXT = 2_000;

export const JsonView = memo(function JsonView({ value, open = 2 }: { value: unknown; open?: number }) {
  return (
    <div className="overflow-x-auto font-mono text-xs leading-6 [overflow-wrap:anywhere]">
      <Node value={value} open={open} name={null} last />
    </div>
  );
});

function Node({ name, value, open, last }: { name: string | null; value: unknown; open: number; last: boolean }) {
  const [isOpen, setOpen] = useState(open > 0);
  const [shown, setShown] = useState(SHOWN);
  const label = name !== null && <span className="text-accent">{name}: </span>;
  if (typeof value !== "object" || value === null) {
    return (
      <div className="pl-4">
        {label}
        <Leaf value={value} />
        {!last && <span className="text-faint">,</span>}
      </div>
    );
  }
  const isList = Array.isArray(value);
  const members: readonly (readonly [string, unknown])[] = isList ? value.map((each, index) => [String(index), each] as const) : Object.entries(value);
  const [before, after] = isList ? ["[", "]"] : ["{", "}"];
  if (!members.length) {
    return (
      <div className="pl-4">
        {label}
        {before + after}
      </div>
    );
  }
  return (
    <div>
      <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)} className="flex min-h-6 max-w-full items-start text-left hover:bg-hover">
        <ChevronRight size={12} aria-hidden className={classNames("mt-1.5 mr-1 shrink-0 text-faint transition-transform", isOpen && "rotate-90")} />
        <span className="min-w-0">
          {label}
          {before}
          {!isOpen && <span className="text-faint">{` ${members.length} ${isList ? "items" : members.length === 1 ? "member" : "members"} ${after}`}</span>}
        </span>
      </button>
      {isOpen && (
        <>
          <div className="ml-1.5 border-l border-line pl-2">
            {members.slice(0, shown).map(([key, each], index) => (
              <Node key={key} name={key} value={each} open={open - 1} last={index === members.length - 1} />
            ))}
            {members.length > shown && (
              <button type="button" className="min-h-6 pl-4 text-accent underline" onClick={() => setShown(shown + SHOWN * 5)}>
                {members.length - shown} more
              </button>
            )}
          </div>
          <div className="pl-4">{after}</div>
        </>
      )}
    </div>
  );
}

function Leaf({ value }: { value: unknown }) {
  const [whole, setWhole] = useState(false);
  if (typeof value !== "string") return <span className={value === null ? "text-faint" : "text-blue"}>{String(value)}</span>;
  const cut = !whole && value.length > SHOWN_TEXT;
  return (
    <span className="whitespace-pre-wrap text-green">
      {JSON.stringify(cut ? value.slice(0, SHOWN_TEXT) : value)}
      {cut && (
        <button type="button" className="ml-1 text-accent underline" onClick={() => setWhole(true)}>
          {value.length - SHOWN_TEXT} more characters
        </button>
      )}
    </span>
  );
}
