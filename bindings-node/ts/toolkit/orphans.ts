// Model calls and host tools that nobody serves any more. A worker serves them as its agents call them, so those of a process
// that has died are served by nobody: a run that waits calls nothing, and its task cannot end.

import type { Client } from "../client.js";
import { setTimeout } from "../timers.js";

/** The pause between looks. */
const PAUSE_MS = 2_000;
/** How long is looked: until a worker that has died is taken for dead, also by a server. */
const LOOKED_MS = 60_000;
/** The most waiting runs of an agent that one look goes through. */
const MOST_RUNS = 2_000;
/** The most of them whose tasks it looks at. */
const MOST_DESCRIBED = 100;

/** Whether a task is one that the toolkit runs. */
function isOfToolkit(kind: string): boolean {
  return kind === "llm.generate" || kind.startsWith("tool.");
}

/** Tells each kind of the toolkit that runs of these agents wait for in vain; ends after the last look, or with `isOpen`. */
export async function tellOrphans(
  client: Client,
  agents: readonly string[],
  queue: string,
  isOpen: () => boolean,
  tell: (kind: string) => void,
): Promise<void> {
  for (let passed = 0; passed <= LOOKED_MS; passed += PAUSE_MS) {
    for (const kind of agents) {
      if (!isOpen()) return;
      // A look that fails is no failure of the worker; the next one may succeed.
      await look(client, kind, queue, tell).catch(() => undefined);
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS).unref());
  }
}

async function look(client: Client, kind: string, queue: string, tell: (kind: string) => void): Promise<void> {
  let [seen, described] = [0, 0];
  for await (const run of client.runs({ kind, queue, status: "WAITING" })) {
    if ((seen += 1) > MOST_RUNS) return;
    if (run.waitReason !== "task") continue;
    if ((described += 1) > MOST_DESCRIBED) return;
    const { noWorker } = await (await client.handle(run.id)).describe();
    for (const missing of noWorker) if (missing.queue === queue && isOfToolkit(missing.kind)) tell(missing.kind);
  }
}
