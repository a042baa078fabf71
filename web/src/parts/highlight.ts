// Colours for code: asks the worker that finds them, which is begun with the first code.

export interface ColouredPiece {
  readonly text: string;
  readonly colour: string | null;
}

export type ColouredLines = readonly (readonly ColouredPiece[])[];

/** Longer code stays plain: colouring it would take longer than reading it. */
const LONGEST = 30_000;

let worker: Worker | null = null;
let next = 0;
const waiting = new Map<number, (lines: ColouredLines | null) => void>();

function begun(): Worker {
  if (worker) return worker;
  worker = new Worker(new URL("./highlight_worker.ts", import.meta.url), { type: "module" });
  worker.addEventListener("message", (event: MessageEvent<{ id: number; lines: ColouredLines | null }>) => {
    waiting.get(event.data.id)?.(event.data.lines);
    waiting.delete(event.data.id);
  });
  // Code without colours is code all the same.
  worker.addEventListener("error", () => {
    for (const answer of waiting.values()) answer(null);
    waiting.clear();
  });
  return worker;
}

/** The lines of a code in coloured pieces; null where its language is not known or it is too long. */
export function highlight(code: string, language: string): Promise<ColouredLines | null> {
  if (code.length > LONGEST) return Promise.resolve(null);
  return new Promise((resolve) => {
    const id = next++;
    waiting.set(id, resolve);
    begun().postMessage({ id, code, language });
  });
}
