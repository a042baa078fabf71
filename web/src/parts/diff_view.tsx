// A difference as people read it: what goes, what comes, and a little of what stays around it.
import { useMemo } from "react";
import { classNames } from "./class_names";
import { diffLines } from "./diff";
import type { DiffLine } from "./diff";

const AROUND = 3;
const MOST = 600;
const marks = { same: " ", gone: "−", new: "+" } as const;

type Row = DiffLine | { readonly kind: "left out"; readonly count: number };

/** The lines of a difference without what is far from any change. */
function near(lines: readonly DiffLine[]): readonly Row[] {
  const isNear = new Uint8Array(lines.length);
  lines.forEach((line, place) => {
    if (line.kind === "same") return;
    isNear.fill(1, Math.max(0, place - AROUND), place + AROUND + 1);
  });
  const rows: Row[] = [];
  let leftOut = 0;
  lines.forEach((line, place) => {
    if (!isNear[place]) leftOut++;
    else {
      if (leftOut) rows.push({ kind: "left out", count: leftOut });
      leftOut = 0;
      rows.push(line);
    }
  });
  if (leftOut) rows.push({ kind: "left out", count: leftOut });
  return rows;
}

export function DiffView({ before, after }: { before: string; after: string }) {
  const rows = useMemo(() => near(diffLines(before, after)), [before, after]);
  if (before === after) return <p className="text-sm text-faint">Nothing differs.</p>;
  return (
    <div tabIndex={0} role="region" aria-label="Difference" className="max-h-[60vh] overflow-auto rounded-md border border-line font-mono text-xs leading-5">
      {rows.slice(0, MOST).map((row, index) =>
        row.kind === "left out" ? (
          <div key={index} className="bg-raised px-3 text-faint">
            ⋯ {row.count} {row.count === 1 ? "line" : "lines"} alike
          </div>
        ) : (
          <div key={index} className={classNames("flex min-w-max", row.kind === "gone" && "bg-red-ground", row.kind === "new" && "bg-green-ground")}>
            <span aria-label={row.kind === "gone" ? "removed" : row.kind === "new" ? "added" : undefined} className={classNames("w-6 shrink-0 text-center select-none", row.kind === "gone" ? "text-red" : row.kind === "new" ? "text-green" : "text-faint")}>
              {marks[row.kind]}
            </span>
            <span className="pr-3 whitespace-pre">{row.text || " "}</span>
          </div>
        ),
      )}
      {rows.length > MOST && <div className="bg-raised px-3 text-faint">{rows.length - MOST} more lines</div>}
    </div>
  );
}
