// Previews: what is streamed of an op before its result is durable. Pieces are numbered, so one that comes twice is known.
import type { EventData, Preview, TerminalPiece } from "./types.js";

/** How many pieces of data without a meaning of their own are kept of one op. */
const KEPT_DATA = 200;
/** How many characters a terminal keeps while it runs; the whole output is in the result. */
const KEPT_TERMINAL = 200_000;

function empty(op: string, epoch: number, attempt: number): Preview {
  return { op, epoch, attempt, seq: 0, text: "", thinking: "", calls: new Map(), terminal: [], data: [], done: false };
}

/** The preview with one more piece; the same object where the piece is known or belongs to an attempt that is over. */
export function withPiece(known: Preview | undefined, type: string, event: EventData): Preview | undefined {
  const op = event.op;
  if (typeof op !== "string") return known;
  const epoch = event.epoch ?? 0;
  const attempt = event.attempt ?? 0;
  const seq = event.seq ?? 0;
  let preview = known ?? empty(op, epoch, attempt);
  const age = epoch - preview.epoch || attempt - preview.attempt;
  if (age < 0) return known;
  if (age > 0) preview = empty(op, epoch, attempt);
  else if (known && seq <= preview.seq) return known;
  return { ...grown(preview, type, event["data"]), seq };
}

function grown(preview: Preview, type: string, data: unknown): Preview {
  if (type === "token") return { ...preview, text: preview.text + (typeof data === "string" ? data : "") };
  const said = typeof data === "object" && data !== null ? (data as Record<string, unknown>) : {};
  const delta = typeof said["delta"] === "string" ? said["delta"] : "";
  switch (said["type"]) {
    case "thinking_delta":
      return { ...preview, thinking: preview.thinking + delta };
    case "tool_call_delta": {
      const part = typeof said["part"] === "number" ? said["part"] : 0;
      return { ...preview, calls: new Map(preview.calls).set(part, (preview.calls.get(part) ?? "") + delta) };
    }
    case "terminal":
      return { ...preview, terminal: printed(preview.terminal, said) };
    default:
      return { ...preview, data: [...preview.data, data].slice(-KEPT_DATA) };
  }
}

function printed(pieces: readonly TerminalPiece[], said: Record<string, unknown>): readonly TerminalPiece[] {
  const stream = said["stream"] === "stderr" ? "stderr" : "stdout";
  const text = typeof said["data"] === "string" ? said["data"] : "";
  const last = pieces.at(-1);
  if (last?.stream !== stream) return [...pieces, { stream, text }];
  return [...pieces.slice(0, -1), { stream, text: (last.text + text).slice(-KEPT_TERMINAL) }];
}
