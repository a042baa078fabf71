// The agent that every recipe serves: it looks something up, writes, and waits for a person's word.

import { agent, task } from "@flovyn/sdk";

/** A durable step; in life a request that costs time and money. */
export const lookUp = task("look_up", { retries: 3 }, async (topic: string) => `three pages about ${topic}`);

/** Answers once it was approved. */
export const researcher = agent("researcher", { tasks: [lookUp] }, async (ctx, topic: string) => {
  ctx.appendEntry("user", topic);
  const found = await lookUp(topic);
  for (const word of found.split(" ")) ctx.streamToken(`${word} `);
  ctx.appendEntry("assistant", found);
  const approved = await ctx.waitForSignal<boolean>("approval");
  return approved ? found : "dropped";
});
