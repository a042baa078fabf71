// Tokens while they are made, durable entries when they are done, and a reader that resumes after any event.
//
// node streaming.mjs [DATABASE]

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

import { agent, connect, task } from "@flovyn/sdk";

export const WORDS = ["durable", "agents", "survive", "kill", "-9"];

const say = task("say", async (words: string[], ctx) => {
  for (const word of words) {
    ctx.streamToken(`${word} `);
    await sleep(10);
  }
  return words.join(" ");
});

export const speaker = agent("speaker", async (ctx) => {
  const text = await say(WORDS);
  ctx.appendEntry("assistant", text);
  return text;
});

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const client = await connect(`sqlite:${process.argv[2] ?? "streaming.db"}`);
  await client.worker({ agents: [speaker], tasks: [say] }).start();
  const handle = await client.start(speaker, undefined, { id: "speech-1" });
  const tokens: string[] = [];
  const entries: unknown[] = [];
  let last = "";
  for await (const event of handle.stream()) {
    last = event.id;
    if (event.type === "token") {
      tokens.push(event.text);
      process.stdout.write(event.text);
    } else if (event.type === "entry") {
      entries.push(event.content);
    }
  }
  console.log();
  assert.deepEqual(entries, [WORDS.join(" ")]);
  assert.ok(tokens.length === 0 || tokens.join("").trim() === WORDS.join(" "));
  // Resuming after the last event: nothing comes twice, and the stream ends at once.
  for await (const event of handle.stream({ after: last })) assert.fail(`${event.type} came twice`);
  await client.close();
}
