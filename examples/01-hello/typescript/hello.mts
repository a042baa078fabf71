// The smallest durable agent. Run it twice: the second time nothing runs, the recorded result comes back.
//
// node hello.mjs [DATABASE]

import { pathToFileURL } from "node:url";

import { agent, run, task } from "@flovyn/sdk";

const greet = task("greet", async (name: string) => {
  console.log(`greeting ${name}`);
  return `Hello, ${name}!`;
});

export const hello = agent("hello", async (ctx, name: string) => {
  ctx.appendEntry("user", name);
  const greeting = await greet(name);
  ctx.appendEntry("assistant", greeting);
  return greeting;
});

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const database = process.argv[2] ?? "hello.db";
  console.log(await run(hello, "world", { id: "hello-1", url: `sqlite:${database}` }));
}
