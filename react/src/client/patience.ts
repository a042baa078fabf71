// Requests that may be repeated: while a server does not answer, it is asked again for a few seconds.
import { Problem } from "./problem.js";

const WAITS_MS = [300, 700, 1_500, 3_000, 5_000];

/** Whether the same request may succeed in a moment: there was no answer, or one from in between. */
function isPassing(error: unknown): boolean {
  return error instanceof Problem && [0, 429, 502, 503, 504].includes(error.status);
}

/** Asks again for as long as the server is away, up to ten seconds. What is asked must be the same however often it arrives. */
export async function patiently<T>(ask: () => Promise<T>): Promise<T> {
  for (const wait of WAITS_MS) {
    try {
      return await ask();
    } catch (error) {
      if (!isPassing(error)) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
  return ask();
}
