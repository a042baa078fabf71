// The built-in coding agent on a folder of files: it streams, asks before it changes anything, and survives kill -9.
//
// node coding_agent.mjs [DATABASE] [PROVIDER/MODEL]
//
// Without a model it speaks to a scripted one; with one the provider's key is taken from the environment.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

import { connect, type Handle, task } from "@flovyn/sdk";
import { fakeLlm, toolCall, turn } from "@flovyn/sdk/testing";
import { ApprovalRequest, reactAgent } from "@flovyn/sdk/toolkit";

const BROKEN = "def add(a, b):\n    return a - b\n";
const PROMPT = "The sums of sums.py are wrong. Find out why and mend it.";

/** What the scripted model says. */
const SCRIPT = [
  toolCall("grep", { pattern: "def add" }, { text: "I will look for it. " }),
  toolCall("read", { path: "sums.py" }),
  toolCall("edit", { path: "sums.py", old_string: "a - b", new_string: "a + b" }),
  toolCall("check_sums"),
  turn("It subtracted. Now it adds."),
];

const [database = "coding-agent.db", model] = process.argv.slice(2);
const work = resolve(database.replace(/\.db$/, ".work"));
const file = join(work, "sums.py");
mkdirSync(work, { recursive: true });
if (!existsSync(file)) writeFileSync(file, BROKEN);

// A tool of one's own is a task: a durable step, retried and recorded like any other.
const checkSums = task("check_sums", { description: "Checks sums.py and says whether it adds." }, async () =>
  readFileSync(file, "utf8").includes("a + b") ? "it adds" : "it does not add",
);

const fake = fakeLlm(SCRIPT);
const coder = reactAgent("coder", {
  model: model ?? "fake/scripted",
  tools: ["read", "write", "edit", "grep", "find", checkSums],
  workingDirectory: work,
  records: database.replace(/\.db$/, ".records"),
});

/** Shows what happens and says yes to every change, as a person at a terminal would. */
async function lookOn(run: Handle): Promise<void> {
  for await (const event of run.stream()) {
    if (event.type === "token") process.stdout.write(event.text);
    if (event.type === "data") {
      const { type, tool_call: call } = event.data as { type: string; tool_call?: { name: string; arguments: unknown } };
      if (type === "tool_call_start") console.log(`\n▸ ${call?.name} ${JSON.stringify(call?.arguments)}`);
    }
    const request = ApprovalRequest.of(event);
    if (request !== undefined) {
      console.log(`\n? ${request.name} ${JSON.stringify(request.input)} (yes)`);
      await request.approve(run);
    }
  }
  console.log();
}

const client = await connect(`sqlite:${database}`);
await client.worker({ agents: [coder] }).start();
const run = await client.start(coder, PROMPT, { id: "mend-1" });
await lookOn(run);
const outcome = await run.result();
console.log(`${outcome.text} (${outcome.turns} turns)`);
assert.equal(readFileSync(file, "utf8"), BROKEN.replace("-", "+"));
await client.close();
fake.close();
