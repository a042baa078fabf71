// Threads of `node:worker_threads` that end without closing what they have opened.
//
// The engine's threads are the process's: left alone they would go on renewing the leases of runs whose code is gone, and
// no other worker could have them.

import { isMainThread } from "node:worker_threads";

/** An open backend of this thread. */
interface Opened {
  /** Begins to close; nobody waits for its end. */
  leaveThread(): void;
}

const open = new Set<Opened>();

/** Notes what is to be closed when this thread ends; the main thread ends with its process. */
export function opened(made: Opened): void {
  if (isMainThread) return;
  if (open.size === 0) process.on("exit", leave);
  open.add(made);
}

/** Forgets what was closed. */
export function closed(made: Opened): void {
  if (open.delete(made) && open.size === 0) process.off("exit", leave);
}

/** In a thread the event comes with its `process.exit()`, with an error that nobody catches, and with its last line. */
function leave(): void {
  for (const made of open) made.leaveThread();
}
