// One of three workers that serve the same agent, each in its language: this one in TypeScript.
//
// node worker.mjs URL [STEPS]: with STEPS it is killed once it has done so many.

import { pathToFileURL } from "node:url";

import { agent, connect, task } from "@flovyn/sdk";

let done = 0;
const last = process.argv[3];

const step = task("step", async (number: number) => {
  if (String(done++) === last) process.kill(process.pid, "SIGKILL");
  return [number, "TypeScript"];
});

export const relay = agent("relay", { version: "1" }, async (_, steps: number) => {
  const ran: unknown[] = [];
  for (let number = 0; number < steps; number++) ran.push(await step(number));
  return ran;
});

/** A part of the Python team's work. */
const shout = task("shout", async (text: string) => `${text.toUpperCase()}!`);

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const client = await connect(process.argv[2]);
  await client.worker({ agents: [relay], tasks: [step, shout] }).run();
}
