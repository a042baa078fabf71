// What bounds a worker: `maxTasks` holds for inline steps and claimed tasks together.

import { agent, connect, type Retry, task } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { onEveryBackend } from "./backends.js";
import { disposing } from "./support.js";

const HOUR: Retry = { delayMs: 3_600_000, maxDelayMs: 3_600_000 };

/** Functions that count how many of them run at once. */
class Counted {
  open = 0;
  most = 0;

  async run(n: number): Promise<number> {
    this.open += 1;
    this.most = Math.max(this.most, this.open);
    await new Promise((resolve) => setTimeout(resolve, 10));
    this.open -= 1;
    return n;
  }
}

onEveryBackend((backend) => {
  test.each([1, 3, undefined])("a worker runs so many attempts at once: %s", async (maxTasks) => {
    const counted = new Counted();
    const inline = task("inline", async (n: number) => counted.run(n));
    const queued = task("queued", { queue: "default" }, async (n: number) => counted.run(n));
    const fan = agent("fan", async (ctx, n: number) => {
      const each = await Promise.all([ctx.run("step", () => counted.run(n)), inline(n), queued(n)]);
      return each.reduce((sum, one) => sum + one, 0);
    });
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [fan], tasks: [queued], maxTasks }).start();
    const numbers = Array.from({ length: 12 }, (_, n) => n);
    const handles = await Promise.all(numbers.map((n) => client.start(fan, n)));
    const results = await Promise.all(handles.map((handle) => handle.result({ timeoutMs: 60_000 })));
    expect(results).toEqual(numbers.map((n) => 3 * n));
    if (maxTasks === undefined) expect(counted.most).toBeGreaterThan(3);
    else expect(counted.most).toBe(maxTasks);
    await client.close();
  });
});

test("a pause gives its place back", async () => {
  const tries: string[] = [];
  let begun = (): void => undefined;
  const failed = new Promise<void>((resolve) => (begun = resolve));
  const caller = agent("caller", async (ctx) => {
    const fails = ctx.run("fails", { retries: 9, retry: HOUR }, () => {
      tries.push("fails");
      begun();
      throw new Error("never");
    });
    const works = ctx.run("works", async () => {
      await failed;
      return "works";
    });
    return (await ctx.select([fails, works]))[1];
  });
  const client = disposing(await connect("memory:"));
  await client.worker({ agents: [caller], maxTasks: 1 }).start();
  expect(await (await client.start(caller)).result({ timeoutMs: 30_000 })).toBe("works");
  expect(tries).toEqual(["fails"]);
  await client.close();
});
