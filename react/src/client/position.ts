// The place of a run's last event. The API does not tell it, but refuses a place behind it, so it is searched for.
import type { FlovynClient } from "./client.js";

/** The number of the last event, or of one shortly before it; a stream behind it has what happens from here on. */
export async function lastPosition(client: FlovynClient, path: string, atLeast: number, signal: AbortSignal): Promise<number> {
  let low = 0;
  let high = Math.max(64, atLeast);
  while (await exists(client, path, high, signal)) {
    low = high;
    high *= 2;
  }
  // Near is near enough: what lies between comes once more, and the reducer knows it.
  while (high - low > 32) {
    const middle = Math.floor((low + high) / 2);
    if (await exists(client, path, middle, signal)) low = middle;
    else high = middle;
  }
  return low;
}

async function exists(client: FlovynClient, path: string, after: number, signal: AbortSignal): Promise<boolean> {
  const request = new AbortController();
  const stop = () => request.abort();
  signal.addEventListener("abort", stop);
  try {
    const response = await client.fetch(`${path}?after=${after}`, { cache: "no-store", signal: request.signal });
    return response.ok;
  } finally {
    signal.removeEventListener("abort", stop);
    request.abort();
  }
}
