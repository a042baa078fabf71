// The brain on a server, the hands on a laptop: a coder works in a folder there, and the server's workers ask the models for it.
//
// node laptop_hands.mjs [DATABASE]
//
// All of it runs on this computer: a server (`flovyn dev`), the laptop, which is this very program in a process of its own, and a
// worker that has the models. The laptop has no key of a provider, and opens all connections by itself. What the coder reads and
// writes stays in a file there: the server has the run, and references to what was said in it.

import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { agent, connect, daemon, Local } from "@flovyn/sdk";
import { fakeLlm, toolCall, turn } from "@flovyn/sdk/testing";
import { reactAgent, type RunOutcome } from "@flovyn/sdk/toolkit";

const FLOVYN = fileURLToPath(new URL("bin/flovyn.js", import.meta.resolve("@flovyn/sdk/package.json")));
const BROKEN = "def add(a, b):\n    return a - b\n";
const SCRIPT = [
  toolCall("read", { path: "sums.py" }),
  toolCall("edit", { path: "sums.py", old_string: "a - b", new_string: "a + b" }),
  turn("It subtracted. Now it adds."),
];

const coder = reactAgent("coder", {
  tools: ["read", "edit"],
  via: "parent",
  approvals: { rules: [{ tool: "edit", decision: "allow" }] },
});

const brain = agent("brain", async (ctx, userPrompt: string): Promise<string> => {
  const asked = { userPrompt, model: "boss/m" };
  const outcome = await ctx.spawnAgent<RunOutcome>("coder", asked, { mode: Local("laptop"), persistence: "local" });
  return outcome.text;
});

const running: ChildProcess[] = [];

/** Starts a program that prints JSON, and gives its next line whenever it is asked for one. */
function start(words: string[], env: Record<string, string> = {}): () => Promise<Record<string, string>> {
  const child = spawn(process.execPath, words, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "inherit"] });
  running.push(child);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return async () => JSON.parse((await lines.next()).value as string) as Record<string, string>;
}

/** The laptop: whoever let it in decides what it does, and it decides where. */
async function laptop(folder: string): Promise<void> {
  const machine = daemon({ agents: [coder], workspaces: [folder] });
  await machine.start();
  console.log(JSON.stringify({ machine: machine.name }));
  await machine.run();
}

async function work(database: string): Promise<void> {
  const [folder, home] = [database.replace(/\.db$/, ".work"), database.replace(/\.db$/, ".laptop")];
  for (const made of [folder, home]) mkdirSync(made, { recursive: true });
  const file = join(folder, "sums.py");
  writeFileSync(file, BROKEN);

  // Clients on this computer find the server's token by themselves; the laptop, with a home of its own, does not.
  const served = start([FLOVYN, "dev", "--db", `sqlite:${database}`, "--http-port", "0", "--grpc-port", "0", "--json"]);
  const server = (await served())["grpc"] as string;
  // The laptop asks to be let in, and somebody who may says yes to its code.
  const env = { FLOVYN_HOME: home };
  const pairing = start([FLOVYN, "daemon", "pair", "--server", server, "--name", "laptop", "--json"], env);
  const { code = "" } = await pairing();
  execFileSync(process.execPath, [FLOVYN, "machines", "approve", code], { env: { ...process.env, FLOVYN_URL: server } });
  assert.ok((await pairing())["paired"]);

  const told = start([fileURLToPath(import.meta.url), "laptop", folder], env);
  console.log(`${(await told())["machine"]} works in ${folder}`);
  const fake = fakeLlm(SCRIPT);
  const client = await connect(server);
  const providers = { boss: { api: "anthropic-messages", baseUrl: fake.url } } as const;
  await client.worker({ agents: [brain], toolkit: { providers } }).start();
  const run = await client.start(brain, "The sums of sums.py are wrong. Find out why and mend it.");
  console.log(await run.result({ timeoutMs: 60_000 }));
  assert.equal(readFileSync(file, "utf8"), BROKEN.replace("-", "+"));
  await client.close();
  fake.close();
}

const [word = "laptop-hands.db", folder = ""] = process.argv.slice(2);
if (word === "laptop") {
  await laptop(folder);
} else {
  try {
    await work(resolve(word));
  } finally {
    // The last that was started first: the laptop gives back what it holds while the server is there.
    for (const child of running.reverse()) {
      if (child.exitCode === null && child.kill()) await once(child, "exit");
    }
  }
}
