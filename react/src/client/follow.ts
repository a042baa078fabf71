// Follows a stream of the server for as long as it is wanted: reads, reconnects with the last id, and says how it stands.
import type { FlovynClient } from "./client.js";
import { ServerSentReader } from "./server_sent.js";
import type { Sent } from "./server_sent.js";

/** Says how a stream stands: it is asked for, read, asked for again, at its end, or refused by the server. */
export type Connection = "connecting" | "live" | "reconnecting" | "ended" | "refused";

/** Says which stream is followed, from where, and who is told. */
export interface Following {
  readonly client: FlovynClient;
  /** The path of the stream below that of its org. */
  readonly path: string;
  /** The id of the event behind which to begin; empty for the start, `LATEST` for what happens from now on. */
  readonly after: string;
  readonly signal: AbortSignal;
  /** Where the stream stands: the id to begin behind another time. */
  onPosition(id: string): void;
  onEvents(events: readonly Sent[]): void;
  onConnection(connection: Connection): void;
}

/** Stands for all that has happened so far, in place of an event's id. */
export const LATEST = "latest";

/** A quiet stream sends a comment every 15 s; one that sends nothing for so long is gone. */
const SILENCE_MS = 40_000;
const SHORTEST_WAIT_MS = 400;
const LONGEST_WAIT_MS = 8_000;

/** Follows a stream until its end, a refusal, or its signal. It reconnects behind the last id that it has read. */
export async function follow(following: Following): Promise<void> {
  let last = following.after;
  let wait = SHORTEST_WAIT_MS;
  following.onConnection("connecting");
  while (!following.signal.aborted) {
    const outcome = await once(following, last, (id) => {
      last = id;
      wait = SHORTEST_WAIT_MS;
      following.onPosition(id);
    });
    if (following.signal.aborted) return;
    if (outcome !== "cut") {
      following.onConnection(outcome);
      return;
    }
    following.onConnection("reconnecting");
    await pause(wait, following.signal);
    wait = Math.min(wait * 1.7, LONGEST_WAIT_MS);
  }
}

async function once(following: Following, last: string, onRead: (id: string) => void): Promise<"cut" | "ended" | "refused"> {
  const request = new AbortController();
  const stop = () => request.abort();
  following.signal.addEventListener("abort", stop);
  let silence = setTimeout(stop, SILENCE_MS);
  try {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    const isNow = last === LATEST;
    if (last && !isNow) headers["Last-Event-ID"] = last;
    const path = isNow ? `${following.path}?after=${LATEST}` : following.path;
    const response = await following.client.fetch(path, { headers, cache: "no-store", signal: request.signal });
    if (response.status === 204) return "ended";
    if (response.status >= 400 && response.status < 500 && response.status !== 429 && response.status !== 408) return "refused";
    if (!response.ok || !response.body) return "cut";
    following.onConnection("live");
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    const wire = new ServerSentReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return "cut";
      clearTimeout(silence);
      silence = setTimeout(stop, SILENCE_MS);
      const events = wire.read(decoder.decode(value, { stream: true }));
      if (wire.lastId) onRead(wire.lastId);
      if (events.length) following.onEvents(events);
    }
  } catch {
    return "cut";
  } finally {
    clearTimeout(silence);
    following.signal.removeEventListener("abort", stop);
    request.abort();
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, milliseconds);
    function done() {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      globalThis.removeEventListener?.("online", done);
      resolve();
    }
    signal.addEventListener("abort", done);
    // A computer that wakes up, or finds its network again, need not wait.
    globalThis.addEventListener?.("online", done);
  });
}
