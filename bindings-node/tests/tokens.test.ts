// Which server a client speaks with, and which token it is sent.

import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { agent, connect } from "@flovyn/sdk";
import { afterEach, expect, test } from "vitest";

import { serve } from "./backends.js";
import { disposing, folder } from "./support.js";

const waits = agent("waits", async (ctx) => ctx.waitForSignal("go"));

afterEach(() => {
  delete process.env["FLOVYN_TOKEN"];
  delete process.env["FLOVYN_URL"];
});

test("a refusal names the server, the token and where both come from", async () => {
  const home = folder();
  const { url } = await serve(home);
  const file = join(home, "home", `dev-${new URL(url).port}.token`);
  const token = readFileSync(file, "utf8");
  writeFileSync(file, "fd_of_somebody_else");
  await expect(connect(url)).rejects.toThrow(`${url}: it was sent the token that \`flovyn dev\` left in ${file}`);
  process.env["FLOVYN_TOKEN"] = "guessed";
  await expect(connect(url)).rejects.toThrow(/sent the token of FLOVYN_TOKEN, which counts before the one/);
  delete process.env["FLOVYN_TOKEN"];
  rmSync(file);
  process.env["FLOVYN_URL"] = url;
  await expect(connect()).rejects.toThrow(/no `flovyn dev` has left one in .*; FLOVYN_URL names this backend/);
  writeFileSync(file, token);
  await disposing(await connect()).close();
  process.env["FLOVYN_URL"] = "http://127.0.0.1:9";
  await expect(connect()).rejects.toThrow(/127\.0\.0\.1:9: nobody answers there.*; FLOVYN_URL names this backend/);
});

test("a client goes on with the token of the next server", async () => {
  const home = folder();
  const first = await serve(home);
  const client = disposing(await connect(first.url));
  const handle = await client.start(waits, undefined, { id: "on" });
  await first.end();
  rmSync(join(home, "home", "dev.token"));
  process.env["FLOVYN_HOME"] = join(home, "home");
  const second = await serve(home, new URL(first.url).port);
  expect(second.url).toBe(first.url);
  // Each call alone would be refused: the first one reads what counts now.
  expect(await handle.status()).toBe("PENDING");
  await client.worker({ agents: [waits] }).start();
  await handle.signal("go", 3);
  expect(await handle.result({ timeoutMs: 20_000 })).toBe(3);
  await client.close();
});
