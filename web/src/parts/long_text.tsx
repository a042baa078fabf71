// Plain text of any length: its beginning at once, all of it when asked for, in pieces that the browser draws as they come into view.
import { useMemo, useState } from "react";
import { classNames } from "./class_names";
import { formatBytes } from "./format";

const LINES_OF_A_PIECE = 200;
const CHARACTERS_OF_A_PIECE = 20_000;

/** Texts in pieces of some lines each, none of them too long. */
export function piecesOf(text: string): readonly string[] {
  const pieces: string[] = [];
  let from = 0;
  while (from < text.length) {
    let end = from;
    for (let line = 0; line < LINES_OF_A_PIECE && end < text.length; line++) {
      const next = text.indexOf("\n", end);
      end = next < 0 ? text.length : next + 1;
      if (end - from > CHARACTERS_OF_A_PIECE) {
        end = Math.min(end, from + CHARACTERS_OF_A_PIECE);
        break;
      }
    }
    pieces.push(text.slice(from, end));
    from = end;
  }
  return pieces;
}

export function LongText({ text, shown = 4_000, className }: { text: string; shown?: number; className?: string }) {
  const [whole, setWhole] = useState(text.length <= shown);
  const pieces = useMemo(() => (whole ? piecesOf(text) : [text.slice(0, shown)]), [whole, text, shown]);
  return (
    <div className={classNames("font-mono text-xs leading-5", className)}>
      <div className={whole && text.length > shown ? "max-h-[70vh] overflow-y-auto" : undefined} tabIndex={whole && text.length > shown ? 0 : undefined}>
        {pieces.map((piece, index) => (
          <pre key={index} className="whitespace-pre-wrap font-mono [overflow-wrap:anywhere] [content-visibility:auto] [contain-intrinsic-size:auto_400px]">
            {piece}
          </pre>
        ))}
      </div>
      {!whole && (
        <button type="button" className="mt-1 font-sans text-xs text-accent underline" onClick={() => setWhole(true)}>
          Show all of it ({formatBytes(text.length)})
        </button>
      )}
    </div>
  );
}
