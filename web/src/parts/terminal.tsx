// What commands print, as React nodes. Nothing of it is ever read as HTML.
import { memo, useMemo } from "react";
import type { CSSProperties } from "react";
import { ansiPieces } from "./ansi";
import type { AnsiPiece } from "./ansi";

function styleOf(piece: AnsiPiece): CSSProperties | null {
  const style: CSSProperties = {};
  if (piece.bold) style.fontWeight = 600;
  if (piece.faint) style.color = "var(--faint)";
  if (piece.italic) style.fontStyle = "italic";
  if (piece.underline) style.textDecoration = "underline";
  if (piece.colour) style.color = piece.colour;
  if (piece.ground) style.backgroundColor = `color-mix(in srgb, ${piece.ground} 22%, transparent)`;
  return Object.keys(style).length ? style : null;
}

export const Ansi = memo(function Ansi({ text }: { text: string }) {
  const pieces = useMemo(() => ansiPieces(text), [text]);
  return (
    <>
      {pieces.map((piece, index) => {
        const style = styleOf(piece);
        return style ? (
          <span key={index} style={style}>
            {piece.text}
          </span>
        ) : (
          piece.text
        );
      })}
    </>
  );
});
