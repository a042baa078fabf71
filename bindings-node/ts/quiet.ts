// When code has become quiet: nothing of it is left to run before the event loop turns.

/** Something to look at once code is quiet. */
interface Watched {
  look(): void;
}

let waiting: Watched[] | undefined;

/**
 * Looks at something once all microtasks are done: a tick that is asked for in a microtask comes after them. What asks
 * between two such ticks shares one, so that a thousand agents that go on together cost one.
 */
export function onceQuiet(watched: Watched): void {
  if (waiting !== undefined) {
    waiting.push(watched);
    return;
  }
  const together = [watched];
  waiting = together;
  queueMicrotask(() => {
    waiting = undefined;
    process.nextTick(lookAt, together);
  });
}

function lookAt(together: Watched[]): void {
  for (const watched of together) watched.look();
}
