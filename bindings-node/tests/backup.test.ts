// A copy of a database that is in use.

import { agent, connect, InvalidArgument } from "@flovyn/sdk";
import { statSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

import { disposing, fileUrl, folder } from "./support.js";

const echo = agent("echo", async (_ctx, text: string) => text);

test("a backup is a database of its own", async () => {
  const client = disposing(await connect(fileUrl()));
  await client.worker({ agents: [echo] }).start();
  const run = await client.start(echo, "kept");
  expect(await run.result()).toBe("kept");
  const copy = join(folder(), "copy.db");
  expect(await client.backup(copy)).toBe(statSync(copy).size);
  await expect(client.backup(copy)).rejects.toThrow("there is a file already");
  const copied = disposing(await connect(`sqlite:${copy}`));
  expect(await (await copied.handle(run.id)).result()).toBe("kept");
});

test("another backend says how to back it up", async () => {
  const client = disposing(await connect("memory:"));
  await expect(client.backup(join(folder(), "copy.db"))).rejects.toThrow(InvalidArgument);
  await expect(client.backup(join(folder(), "copy.db"))).rejects.toThrow("pg_dump");
});
