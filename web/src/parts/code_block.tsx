// A block of code in a text: to be copied, and coloured once it stands still.
import { useEffect, useState } from "react";
import type { ReactNode } from "react";
import { CopyButton } from "./copy";
import { highlight } from "./highlight";
import type { ColouredLines, ColouredPiece } from "./highlight";

/** So long a code that grows has to stand still before it is coloured. */
const STILL_MS = 250;

function textOf(node: ReactNode): string {
  if (typeof node === "string" || typeof node === "number") return String(node);
  if (Array.isArray(node)) return node.map(textOf).join("");
  return textOf(childrenOf(node));
}

function childrenOf(node: ReactNode): ReactNode {
  return typeof node === "object" && node !== null && "props" in node ? (node.props as { children?: ReactNode }).children : "";
}

function languageOf(node: ReactNode): string | null {
  const props = typeof node === "object" && node !== null && "props" in node ? (node.props as { className?: unknown }) : {};
  return typeof props.className === "string" ? (/language-([\w+-]+)/.exec(props.className)?.[1]?.toLowerCase() ?? null) : null;
}

export function CodeBlock({ children }: { children: ReactNode }) {
  const text = textOf(children);
  const language = languageOf(children);
  const [coloured, setColoured] = useState<{ text: string; lines: ColouredLines } | null>(null);
  useEffect(() => {
    if (!language) return;
    let isCurrent = true;
    const timer = setTimeout(() => {
      void highlight(text.replace(/\n$/, ""), language).then((lines) => {
        if (isCurrent && lines) setColoured({ text, lines });
      });
    }, STILL_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [language, text]);
  return (
    <div className="group relative">
      <pre tabIndex={0} className="overflow-x-auto rounded-md border border-line bg-raised p-3 leading-5">
        {coloured?.text === text ? <code>{coloured.lines.map(drawLine)}</code> : children}
      </pre>
      <div className="absolute top-1 right-1 rounded-md bg-raised opacity-0 transition-opacity group-focus-within:opacity-100 group-hover:opacity-100">
        <CopyButton text={text} label="Copy the code" />
      </div>
    </div>
  );
}

function drawLine(line: readonly ColouredPiece[], index: number): ReactNode {
  return (
    <span key={index}>
      {line.map((piece, place) => (
        <span key={place} style={piece.colour ? { color: piece.colour } : undefined}>
          {piece.text}
        </span>
      ))}
      {"\n"}
    </span>
  );
}
