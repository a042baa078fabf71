// What commands print, taken apart: runs of text with their looks. Sequences that do anything but colour are left out.
import { TERMINAL_SEQUENCE, withoutOverwritten } from "@flovyn/react/transcript";

export interface AnsiPiece {
  readonly text: string;
  readonly bold: boolean;
  readonly faint: boolean;
  readonly italic: boolean;
  readonly underline: boolean;
  /** As CSS; null for the usual one. */
  readonly colour: string | null;
  readonly ground: string | null;
}

type Look = Omit<AnsiPiece, "text">;

const PLAIN: Look = { bold: false, faint: false, italic: false, underline: false, colour: null, ground: null };

/** The eight colours in those of the page, which have enough contrast in the light and in the dark. */
const NAMED = ["var(--faint)", "var(--red)", "var(--green)", "var(--amber)", "var(--blue)", "var(--violet)", "var(--accent)", "var(--soft)"] as const;

/** The pieces of a printed text; a line that was overwritten, as progress does, counts as it was in the end. */
export function ansiPieces(printed: string): readonly AnsiPiece[] {
  const text = withoutOverwritten(printed);
  const pieces: AnsiPiece[] = [];
  let look = PLAIN;
  let from = 0;
  const push = (until: number) => {
    if (until > from) pieces.push({ text: text.slice(from, until), ...look });
  };
  for (const found of text.matchAll(TERMINAL_SEQUENCE)) {
    push(found.index);
    from = found.index + found[0].length;
    if (found[2] === "m") look = looked(look, (found[1] ?? "").split(/[;:]/).map(Number));
  }
  push(text.length);
  return pieces;
}

function looked(before: Look, codes: readonly number[]): Look {
  let look = before;
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at] ?? 0;
    if (code === 38 || code === 48) {
      const [colour, used] = extended(codes.slice(at + 1));
      look = code === 38 ? { ...look, colour } : { ...look, ground: colour };
      at += used;
    } else look = simple(look, code);
  }
  return look;
}

function simple(look: Look, code: number): Look {
  if (code === 0) return PLAIN;
  if (code === 1) return { ...look, bold: true };
  if (code === 2) return { ...look, faint: true };
  if (code === 3) return { ...look, italic: true };
  if (code === 4) return { ...look, underline: true };
  if (code === 22) return { ...look, bold: false, faint: false };
  if (code === 23) return { ...look, italic: false };
  if (code === 24) return { ...look, underline: false };
  if (code === 39) return { ...look, colour: null };
  if (code === 49) return { ...look, ground: null };
  const named = NAMED[code % 10];
  if (!named) return look;
  if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) return { ...look, colour: named };
  if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107)) return { ...look, ground: named };
  return look;
}

/** A colour of the 256, or of all, and how many codes it took. */
function extended(codes: readonly number[]): [string | null, number] {
  const byte = (value: number | undefined) => Math.min(255, Math.max(0, Math.trunc(value ?? 0) || 0));
  if (codes[0] === 2) return [`rgb(${byte(codes[1])} ${byte(codes[2])} ${byte(codes[3])})`, 4];
  if (codes[0] !== 5) return [null, 1];
  const index = byte(codes[1]);
  if (index < 16) return [NAMED[index % 8] ?? null, 2];
  if (index >= 232) return [`rgb(${Array(3).fill(8 + (index - 232) * 10).join(" ")})`, 2];
  const cube = index - 16;
  const level = (value: number) => (value === 0 ? 0 : 55 + value * 40);
  return [`rgb(${level(Math.floor(cube / 36))} ${level(Math.floor(cube / 6) % 6)} ${level(cube % 6)})`, 2];
}
