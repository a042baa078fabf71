// A world for the tests of hooks and chat: a server, a worker, clients that count their streams, and what is waited for.
import { createClient, type FlovynClient } from "../src/index.js";
import { Processes } from "../../web/tests/processes.js";

export { Processes };

/** The streams that a client has opened, and how many of them are still read. */
export interface Streams {
  opened: number;
  open: number;
}

/** A client of a server, with the count of its streams. */
export function clientOf(world: Processes): { client: FlovynClient; streams: Streams } {
  const streams: Streams = { opened: 0, open: 0 };
  const counting: typeof fetch = async (input, init) => {
    if (!String(input).includes("/stream/consolidated")) return fetch(input, init);
    streams.opened += 1;
    streams.open += 1;
    init?.signal?.addEventListener("abort", () => (streams.open -= 1), { once: true });
    return fetch(input, init);
  };
  return { client: createClient({ url: world.url, token: async () => world.token(), fetch: counting }), streams };
}

export async function until(what: string, isSo: () => boolean | Promise<boolean>, milliseconds = 60_000): Promise<void> {
  const end = Date.now() + milliseconds;
  while (!(await isSo())) {
    if (Date.now() > end) throw new Error(`Waited too long: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}
