// What a reader of the AI SDK has of a stream, by the ids of its chunks: read again from its beginning, only the rest is passed on.
import type { Replay } from "./unbroken.js";

interface Chunk {
  readonly type: string;
  readonly id?: string;
  readonly delta?: string;
  readonly providerMetadata?: { readonly flovyn?: { readonly retracted?: boolean } };
}

interface Piece {
  readonly prose: string;
  text: string;
  isOpen: boolean;
}

/** Knows what was passed on of one stream. */
export class AiSdkReplay implements Replay {
  private readonly pieces = new Map<string, Piece>();
  private readonly single = new Set<string>();
  private readonly steps = { "start-step": 0, "finish-step": 0 };
  /** What the stream that is read now has told: of pieces their text, of steps their number. */
  private read = { pieces: new Map<string, string>(), "start-step": 0, "finish-step": 0 };
  /** The pieces of the step, which a reset takes back. */
  private step: string[] = [];

  isEnd(data: string): boolean {
    return data === "[DONE]";
  }

  rewind(): readonly string[] {
    this.read = { pieces: new Map(), "start-step": 0, "finish-step": 0 };
    return [];
  }

  pass(data: string): readonly string[] {
    if (data === "[DONE]") return [data];
    const chunk = JSON.parse(data) as Chunk;
    const word = /^(text|reasoning)-(start|delta|end)$/.exec(chunk.type);
    if (word && chunk.id !== undefined) return this.prose(chunk, chunk.id, word[1] ?? "", word[2] ?? "", data);
    switch (chunk.type) {
      case "start-step":
      case "finish-step": {
        this.read[chunk.type] += 1;
        if (this.read[chunk.type] <= this.steps[chunk.type]) return [];
        this.steps[chunk.type] = this.read[chunk.type];
        const lost = chunk.type === "finish-step" ? this.withdrawn() : [];
        this.step = [];
        return [...lost, data];
      }
      case "reset-step":
        for (const id of this.step) this.forget(id);
        this.step = [];
        return [data];
      case "finish":
      case "abort":
      case "error":
        return [...this.withdrawn(), ...this.once(data)];
      default:
        return this.once(data);
    }
  }

  private once(data: string): readonly string[] {
    if (this.single.has(data)) return [];
    this.single.add(data);
    return [data];
  }

  private prose(chunk: Chunk, id: string, prose: string, what: string, data: string): readonly string[] {
    const known = this.pieces.get(id);
    if (what === "start") {
      this.read.pieces.set(id, "");
      if (known) return [];
      return this.opened(id, prose, data);
    }
    if (what === "end") {
      if (chunk.providerMetadata?.flovyn?.retracted) {
        this.forget(id);
        return known?.isOpen ? [data] : [];
      }
      if (!known?.isOpen) return [];
      known.isOpen = false;
      return [data];
    }
    const text = (this.read.pieces.get(id) ?? "") + (chunk.delta ?? "");
    this.read.pieces.set(id, text);
    if (!known || known.text.startsWith(text)) return [];
    if (text.startsWith(known.text)) {
      const delta = text.slice(known.text.length);
      known.text = text;
      return [JSON.stringify({ ...chunk, delta })];
    }
    // While nobody read, what had been written was taken back.
    const end = known.isOpen ? [retracted(id, known)] : [];
    this.pieces.delete(id);
    const start = this.opened(id, prose, JSON.stringify({ type: `${prose}-start`, id }));
    this.pieces.set(id, { prose, text, isOpen: true });
    return [...end, ...start, JSON.stringify({ ...chunk, delta: text })];
  }

  private opened(id: string, prose: string, data: string): readonly string[] {
    this.pieces.set(id, { prose, text: "", isOpen: true });
    this.step.push(id);
    return [data];
  }

  private forget(id: string): void {
    this.pieces.delete(id);
    this.read.pieces.delete(id);
  }

  /** The ends of pieces that are open and of which the stream that is read now says nothing: they were taken back. */
  private withdrawn(): readonly string[] {
    const ends: string[] = [];
    for (const [id, piece] of this.pieces) {
      if (!piece.isOpen || this.read.pieces.has(id)) continue;
      ends.push(retracted(id, piece));
      this.pieces.delete(id);
    }
    return ends;
  }
}

function retracted(id: string, piece: Piece): string {
  return JSON.stringify({ type: `${piece.prose}-end`, id, providerMetadata: { flovyn: { retracted: true } } });
}
