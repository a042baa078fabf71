// The place of a run's last event. The API does not tell it, but refuses a place behind it, so it is searched for.

/** The number of the last event, or of one shortly before it; a stream behind it has what happens from here on. */
export async function lastPosition(url: string, atLeast: number, signal: AbortSignal): Promise<number> {
  let low = 0;
  let high = Math.max(64, atLeast);
  while (await exists(url, high, signal)) {
    low = high;
    high *= 2;
  }
  // Near is near enough: what lies between comes once more, and the reducer knows it.
  while (high - low > 32) {
    const middle = Math.floor((low + high) / 2);
    if (await exists(url, middle, signal)) low = middle;
    else high = middle;
  }
  return low;
}

async function exists(url: string, after: number, signal: AbortSignal): Promise<boolean> {
  const request = new AbortController();
  const stop = () => request.abort();
  signal.addEventListener("abort", stop);
  try {
    const response = await fetch(`${url}?after=${after}`, { credentials: "same-origin", cache: "no-store", signal: request.signal });
    return response.ok;
  } finally {
    signal.removeEventListener("abort", stop);
    request.abort();
  }
}
