// An agent that asks a person, is put away while it waits, and goes on in another process.
//
// node approval.mjs ask [DATABASE]       asks, and ends: the agent waits as a row in the file
// node approval.mjs answer yes [DATABASE]
// node approval.mjs both [DATABASE]      shows the two in one go, each in a process of its own

import { execFileSync } from "node:child_process";
import { fileURLToPath, pathToFileURL } from "node:url";

import { agent, connect, run, task } from "@flovyn/sdk";

const draft = task("draft", async (subject: string) => `Dear all, ${subject}.`);
const send = task("send", { sideEffects: "at_most_once" }, async (text: string) => `sent: ${text}`);

export const mailer = agent("mailer", async (ctx, subject: string) => {
  const text = await draft(subject);
  ctx.appendEntry("assistant", text);
  const answer = await ctx.waitForSignal<string>("approval");
  ctx.appendEntry("user", answer);
  return answer === "yes" ? send(text) : "not sent";
});

async function answer(url: string, word: string): Promise<void> {
  const client = await connect(url);
  const handle = await client.handle("mail-1");
  await handle.signal("approval", word, { idempotencyKey: "answer-1" });
  await client.close();
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const [command = "both", ...rest] = process.argv.slice(2);
  const last = rest.at(-1);
  const database = last === undefined || last === "yes" || last === "no" ? "approval.db" : last;
  const url = `sqlite:${database}`;
  if (command === "both") {
    for (const words of [["ask"], ["answer", "yes"], ["ask"]]) {
      execFileSync(process.execPath, [fileURLToPath(import.meta.url), ...words, database], { stdio: "inherit" });
    }
  } else if (command === "answer") {
    await answer(url, rest[0] ?? "yes");
    console.log("answered");
  } else {
    const result = await run(mailer, "the build is green", { id: "mail-1", url, onWait: "return" });
    console.log(result ?? "waiting for approval; run again after the answer");
  }
}
