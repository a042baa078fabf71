// When a failed task is tried again: its policy's pauses, what its errors ask for, and whose word is final.

import { agent, type AnyAgent, connect, InvalidArgument, type Retry, RetryAfter, run, task, TaskFailed } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { onEveryBackend } from "./backends.js";
import { disposing } from "./support.js";

/** Pauses that no test waits for: what ends within its time limit was not paused by these. */
const HOUR: Retry = { delayMs: 3_600_000, maxDelayMs: 3_600_000 };

/** As a service answers that is asked too often. */
class Busy extends Error {
  constructor(readonly retryAfterMs: unknown) {
    super("too many requests");
  }
}

/** Runs an agent and gives the pauses between the attempts of its tasks, in milliseconds. */
async function pauses(url: string, kind: AnyAgent): Promise<number[]> {
  const client = disposing(await connect(url));
  await client.worker({ agents: [kind] }).start();
  const handle = await client.start(kind.kind);
  await handle.result({ timeoutMs: 60_000 });
  const told: number[] = [];
  for await (const event of handle.stream()) {
    if (event.type === "lifecycle" && event.name === "task_retry") told.push(Number(event.data["pause"]) / 1e3);
  }
  await client.close();
  return told;
}

onEveryBackend((backend) => {
  test.each([undefined, "default"])("pauses follow the policy: queue %s", async (queue) => {
    let attempts = 0;
    const retry = { delayMs: 1, factor: 3, maxDelayMs: 10, jitter: 0 };
    const flaky = task("flaky", { retries: 4, retry, queue }, async () => {
      attempts += 1;
      if (attempts < 5) throw new Error("not yet");
      return attempts;
    });
    const caller = agent("caller", async () => flaky());
    expect(await pauses(await backend.open(), caller)).toEqual([1, 3, 9, 10]);
    expect(attempts).toBe(5);
  });

  test.each([undefined, "default"])("an error names its own pause: queue %s", async (queue) => {
    const errors: unknown[] = [new RetryAfter(1), new Busy(2), { retryAfterMs: 3 }];
    const limited = task("limited", { retries: 9, retry: HOUR, queue }, async () => {
      if (errors.length > 0) throw errors.shift();
      return "let in";
    });
    const caller = agent("caller", async () => limited());
    expect(await pauses(await backend.open(), caller)).toEqual([1, 2, 3]);
  });

  test.each([undefined, "default"])("a predicate decides where the attempt failed: queue %s", async (queue) => {
    const asked: unknown[] = [];
    const retryIf = (error: unknown): boolean => {
      asked.push((error as Error).message);
      return (error as Error).message === "passing";
    };
    const broken = task("broken", { retries: 9, retry: { delayMs: 0 }, retryIf, queue }, async () => {
      throw new Error(asked.length < 2 ? "passing" : "lasting");
    });
    const caller = agent("caller", async () => {
      const error: unknown = await broken().catch((error: unknown) => error);
      return error instanceof TaskFailed ? `${error.attempts} ${error.reason}` : "";
    });
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [caller] }).start();
    expect(await (await client.start(caller)).result({ timeoutMs: 60_000 })).toBe("3 lasting");
    expect(asked).toEqual(["passing", "passing", "lasting"]);
    await client.close();
  });
});

test("a pause that is none is the policy's", async () => {
  const errors = [new Busy(undefined), new Busy("soon"), new Busy(NaN), new Busy(Infinity)];
  const limited = task("limited", { retries: 9, retry: { delayMs: 1, factor: 1, jitter: 0 } }, async () => {
    const error = errors.shift();
    if (error !== undefined) throw error;
  });
  expect(await pauses("memory:", agent("caller", async () => limited()))).toEqual([1, 1, 1, 1]);
});

test("calls may have pauses of their own", async () => {
  let attempts = 0;
  const flaky = task("flaky", { retries: 1, retry: HOUR }, async () => {
    attempts += 1;
    if (attempts < 2) throw new Error("not yet");
  });
  const caller = agent("caller", async () => flaky.options({ retry: { delayMs: 1, jitter: 0 } })());
  expect(await pauses("memory:", caller)).toEqual([1]);
});

test("a predicate that throws says no", async () => {
  const retryIf = (): boolean => {
    throw new TypeError("what?");
  };
  const broken = task("broken", { retries: 9, retryIf }, async () => {
    throw new Error("why");
  });
  const caller = agent("caller", async () => {
    const error: unknown = await broken().catch((error: unknown) => error);
    return error instanceof TaskFailed ? error.attempts : 0;
  });
  const warned: string[] = [];
  const listen = (warning: Error): void => void warned.push(`${warning.name}: ${warning.message}`);
  process.on("warning", listen);
  try {
    expect(await run(caller, undefined, { url: "memory:", timeoutMs: 30_000 })).toBe(1);
    await new Promise(setImmediate);
  } finally {
    process.off("warning", listen);
  }
  expect(warned).toContain("FlovynRetry: retryIf threw TypeError when it was asked about Error, so that is final: what?");
});

test.each<[Retry, string]>([
  [{ delayMs: -1 }, "delayMs=-1"],
  [{ maxDelayMs: NaN }, "maxDelayMs=NaN"],
  [{ factor: 0.5 }, "factor=0.5"],
  [{ jitter: 1.5 }, "jitter=1.5"],
])("what is no policy is refused: %j", (retry, what) => {
  expect(() => task("flaky", { retries: 1, retry }, async () => undefined)).toThrow(InvalidArgument);
  expect(() => task("flaky", { retries: 1, retry }, async () => undefined)).toThrow(what);
});

test("a later attempt comes to the queue of the run", async () => {
  let attempts = 0;
  const flaky = task("flaky", { retries: 2, retry: { delayMs: 1 } }, async () => {
    attempts += 1;
    if (attempts < 3) throw new Error("again");
    return attempts;
  });
  const far = agent("far", async () => flaky());
  const client = disposing(await connect("memory:"));
  await client.worker({ agents: [far], queue: "far" }).start();
  const handle = await client.start(far, undefined, { queue: "far" });
  expect(await handle.result({ timeoutMs: 30_000 })).toBe(3);
});
