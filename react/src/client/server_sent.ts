// The wire of server-sent events: bytes in, events out, cut wherever the network cut them.

/** Is one event as it was sent. */
export interface Sent {
  readonly id: string;
  readonly type: string;
  readonly data: string;
}

/** Reads a stream piece by piece; what is not complete waits for the next piece. */
export class ServerSentReader {
  /** The id of the last event that was complete, or the last id that came without an event. */
  lastId = "";
  private rest = "";
  private id = "";
  private type = "";
  private lines: string[] = [];

  read(piece: string): Sent[] {
    const events: Sent[] = [];
    const text = this.rest + piece;
    let from = 0;
    for (;;) {
      const end = lineEnd(text, from);
      if (end === null) break;
      this.line(text.slice(from, end.at), events);
      from = end.next;
    }
    this.rest = text.slice(from);
    return events;
  }

  private line(line: string, events: Sent[]): void {
    if (line === "") {
      if (this.lines.length) events.push({ id: this.id, type: this.type || "message", data: this.lines.join("\n") });
      this.lastId = this.id;
      this.type = "";
      this.lines = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") this.lines.push(value);
    else if (field === "event") this.type = value;
    else if (field === "id" && !value.includes("\0")) this.id = value;
  }
}

/** Where the line ends that begins here; null where its end has not come. A CR at the end may be half of a CRLF. */
function lineEnd(text: string, from: number): { at: number; next: number } | null {
  for (let at = from; at < text.length; at++) {
    const character = text.charCodeAt(at);
    if (character === 10) return { at, next: at + 1 };
    if (character !== 13) continue;
    if (at + 1 === text.length) return null;
    return { at, next: text.charCodeAt(at + 1) === 10 ? at + 2 : at + 1 };
  }
  return null;
}
