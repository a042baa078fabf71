// The programs of examples/recipes in TypeScript, each started as its first lines say and talked to over loopback.

import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";

import { beforeAll, expect, test } from "vitest";

import { type Child, fileUrl, start, until } from "./support.js";

const PACKAGE = join(__dirname, "..");
const RECIPES = join("..", ".examples", "recipes", "typescript");

interface Shown {
  id: string;
  status: string;
  output: unknown;
}

beforeAll(() => {
  execFileSync("npm", ["run", "--silent", "examples"], { cwd: PACKAGE, stdio: "pipe" });
});

/** A port that nobody listens on. */
async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address() as { port: number };
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

/** Reads events to their end, or to the first that has some text; gives what was read and the id of the last. */
async function events(url: string, after?: string, to?: string): Promise<{ text: string; last: string }> {
  const leave = new AbortController();
  const headers: Record<string, string> = after === undefined ? {} : { "last-event-id": after };
  const answer = await fetch(url, { headers, signal: leave.signal });
  expect(answer.headers.get("content-type")).toContain("text/event-stream");
  let text = "";
  const whole = (): string => text.slice(0, text.lastIndexOf("\n\n") + 2);
  for await (const part of answer.body!.pipeThrough(new TextDecoderStream())) {
    text += part;
    if (to !== undefined && whole().includes(to)) break;
  }
  leave.abort();
  return { text: whole(), last: [...whole().matchAll(/^id: ?(.*)$/gm)].at(-1)![1]! };
}

/** Starts a run, reads of it, answers it and reads on from there. */
async function talk(base: string): Promise<void> {
  const post = (path: string): Promise<Response> => fetch(`${base}${path}`, { method: "POST" });
  const first = await until(() => post("/runs/otters?topic=otters").catch(() => undefined));
  expect(first.status).toBe(202);
  expect((await post("/runs/otters?topic=otters")).status).toBe(202);
  expect((await post("/runs/otters?topic=seals")).status).toBe(409);
  const before = await events(`${base}/runs/otters/events`, undefined, "three pages about otters");
  expect((await post("/runs/otters/approval?yes=true")).status).toBe(204);
  const after = await events(`${base}/runs/otters/events`, before.last);
  expect(after.text).not.toContain('"three pages about otters"');
  const shown = (await (await fetch(`${base}/runs/otters`)).json()) as Shown;
  expect(shown).toEqual({ id: "otters", status: "COMPLETED", output: "three pages about otters" });
  expect((await fetch(`${base}/runs/nobody`)).status).toBe(404);
}

/** Tells a recipe to end; it has to end well. */
async function end(child: Child): Promise<void> {
  child.process.kill("SIGTERM");
  expect([await child.ended, child.errors()]).toEqual([{ code: 0, signal: null }, ""]);
}

test.each(["hono_app", "express_app", "cluster_app"])("%s", async (name) => {
  const port = await freePort();
  const child = start(join(RECIPES, `${name}.mjs`), [String(port)], { FLOVYN_URL: fileUrl() });
  await talk(`http://127.0.0.1:${port}`);
  await end(child);
});

test.each(["hono_app", "express_app"])("%s ends although somebody reads, and others go on", async (name) => {
  const environment = { FLOVYN_URL: fileUrl() };
  const port = await freePort();
  const base = `http://127.0.0.1:${port}`;
  const post = (path: string): Promise<Response> => fetch(`${base}${path}`, { method: "POST" });
  const server = start(join(RECIPES, `${name}.mjs`), [String(port)], environment);
  await until(() => post("/runs/seals?topic=seals").catch(() => undefined));
  const reading = await fetch(`${base}/runs/seals/events`);
  const read = reading.text().catch(() => "cut");
  await end(server);
  expect(await read).not.toContain("agent.completed");
  const worker = start(join(RECIPES, "worker.mjs"), [], environment);
  const again = start(join(RECIPES, `${name}.mjs`), [String(port)], environment);
  await until(() => post("/runs/seals/approval?yes=false").catch(() => undefined));
  expect((await events(`${base}/runs/seals/events`)).text).toContain("agent.completed");
  expect(await (await fetch(`${base}/runs/seals`)).json()).toMatchObject({ output: "dropped" });
  await end(again);
  await end(worker);
});

test("vitest", () => {
  const root = join(PACKAGE, ".examples", "recipes", "typescript");
  // What is installed is not transformed; the package that is worked on would be.
  const config = "export default { test: { server: { deps: { external: [/\\/(esm|dist)\\//] } } } };";
  writeFileSync(join(root, "vitest.config.mjs"), config);
  const command = [join(PACKAGE, "node_modules", "vitest", "vitest.mjs"), "run", "--root", root];
  const environment = { ...process.env, VITEST: undefined, VITEST_POOL_ID: undefined, VITEST_WORKER_ID: undefined };
  const said = execFileSync(process.execPath, command, { cwd: root, env: environment, stdio: "pipe" }).toString();
  expect(said).toMatch(/Tests.*2 passed/);
});
