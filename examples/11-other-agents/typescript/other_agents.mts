// An agent of somebody else's takes over a run: it works in a process of its own, asks before it writes, and is kept.
//
// node other_agents.mjs [DATABASE] [AGENT]
//
// Without an agent it is the small one of scribe.py; with one it is claude, pi, or a command that speaks ACP, such as codex-acp.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";

import { agent, connect, type Handle, task } from "@flovyn/sdk";
import { ApprovalRequest, External, type RunOutcome } from "@flovyn/sdk/toolkit";

const [database = "other-agents.db", word] = process.argv.slice(2);
const workingDir = resolve(database.replace(/\.db$/, ".work"));
mkdirSync(workingDir, { recursive: true });

function chosen(): External {
  const scribe = resolve(import.meta.dirname, "../../../../examples/11-other-agents/scribe.py");
  if (word === undefined) return External.acp({ command: ["python3", scribe], workingDir, name: "scribe" });
  if (word === "claude") return External.claude({ workingDir });
  if (word === "pi") return External.pi({ workingDir });
  return External.acp({ command: word.split(" "), workingDir });
}

const other = chosen();
const today = task("today", async () => "Otters hold hands.");
const desk = agent("desk", async (ctx): Promise<RunOutcome> => {
  return ctx.handoffToAgent(other, `Write in notes.txt: ${await today()}`);
});

/** Shows what happens, and says yes to what is asked. */
async function lookOn(run: Handle<RunOutcome>): Promise<void> {
  for await (const event of run.stream()) {
    if (event.type === "token") process.stdout.write(event.text);
    const request = ApprovalRequest.of(event);
    if (request !== undefined) {
      console.log(`? ${request.name} ${JSON.stringify(request.input)} (yes)`);
      await request.approve(run);
    }
  }
  console.log();
}

const client = await connect(`sqlite:${database}`);
await client.worker({ agents: [desk, other] }).start();
const run = await client.start(desk, undefined, { id: "note-1" });
await lookOn(run);
const outcome = await run.result({ timeoutMs: 600_000 });
console.log(`${outcome.text} (${outcome.stopReason})`);
assert.equal(readFileSync(join(workingDir, "notes.txt"), "utf8").match(/Otters hold hands\./g)?.length, 1);
await client.close();
