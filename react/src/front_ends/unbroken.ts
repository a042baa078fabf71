// A response of server-sent events that no cut connection ends: it is opened again, and what its reader has does not come twice.
import { ServerSentReader } from "../client/server_sent.js";

/** How long is waited before each try, while a server does not answer. */
const WAITS_MS = [100, 300, 700, 1_500, 3_000, 5_000, 5_000, 5_000, 5_000, 5_000];
const PASSING: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** Knows what a reader has of a stream, in the words of a protocol. */
export interface Replay {
  /** Whether nothing comes behind this. */
  isEnd(data: string): boolean;
  /** What the reader is given of an event; nothing of one that it has. */
  pass(data: string): readonly string[];
  /** The stream is read again from its beginning. What the reader is told of it. */
  rewind(): readonly string[];
}

/** Opens a stream: for the first time, or again behind the id that it began with. */
export type Opener = (after: string | null) => Promise<Response>;

/** The response to a request that may be sent again, as its client sees it. */
export async function unbroken(open: Opener, replay: Replay, signal: AbortSignal | null | undefined): Promise<Response> {
  const first = await patient(() => open(null), signal);
  if (!first.ok || first.status === 204 || !first.body) return first;
  const body = first.body;
  let reader: ReadableStreamDefaultReader<Uint8Array> | null = null;
  let isCancelled = false;
  const stream = new ReadableStream<Uint8Array>({
    async start(controller) {
      const encoder = new TextEncoder();
      const give = (events: readonly string[]) => {
        if (!isCancelled) for (const data of events) controller.enqueue(encoder.encode(`data: ${data}\n\n`));
      };
      let from: string | null = null;
      let current: ReadableStream<Uint8Array> | null = body;
      try {
        while (current && !isCancelled) {
          reader = current.getReader();
          const read = await readAll(reader, replay, give);
          from = read.id ?? from;
          if (read.isComplete || isCancelled) break;
          if (signal?.aborted) throw signal.reason;
          give(replay.rewind());
          const again = await patient(() => open(from), signal);
          if (!again.ok) throw new Error((await again.text()) || `The stream was refused: ${again.status}`);
          current = again.status === 204 ? null : again.body;
        }
        if (!isCancelled) controller.close();
      } catch (error) {
        if (!isCancelled) controller.error(error);
      }
    },
    cancel() {
      isCancelled = true;
      return reader?.cancel().catch(() => undefined);
    },
  });
  return new Response(stream, { status: first.status, headers: { "Content-Type": "text/event-stream" } });
}

/** Reads a body up to its end, or until it breaks; with the id to read it again from. */
async function readAll(reader: ReadableStreamDefaultReader<Uint8Array>, replay: Replay, give: (events: readonly string[]) => void): Promise<{ isComplete: boolean; id: string | null }> {
  const decoder = new TextDecoder();
  const events = new ServerSentReader();
  const id = () => events.lastId || null;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return { isComplete: false, id: id() };
      for (const { data } of events.read(decoder.decode(value, { stream: true }))) {
        give(replay.pass(data));
        if (replay.isEnd(data)) return { isComplete: true, id: id() };
      }
    }
  } catch {
    // The connection broke.
    return { isComplete: false, id: id() };
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

/** Asks again for as long as a server does not answer, up to half a minute. */
async function patient(ask: () => Promise<Response>, signal: AbortSignal | null | undefined): Promise<Response> {
  for (const wait of WAITS_MS) {
    try {
      const response = await ask();
      if (!PASSING.has(response.status)) return response;
    } catch (error) {
      if (!(error instanceof TypeError) || signal?.aborted) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
    if (signal?.aborted) throw signal.reason;
  }
  return ask();
}
