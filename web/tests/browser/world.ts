// A world for the browser tests: a server and a worker, and pages that are signed in. The console is the server's own, as it was
// built into it.
import { test as base, expect } from "@playwright/test";
import type { Page } from "@playwright/test";
import { Processes } from "../processes";

export class World extends Processes {
  static override async open(): Promise<World> {
    return (await super.open()) as World;
  }

  async signIn(page: Page): Promise<void> {
    const answer = await page.context().request.post(`${this.url}/api/session`, { data: { token: this.token() } });
    expect(answer.ok()).toBe(true);
    await page.goto(`${this.url}/runs`);
    await expect(page.getByRole("heading", { name: "Runs" })).toBeVisible();
  }
}

/** Tests with a world for the whole file; what the policy refuses, or what the page throws, fails the test. */
export const test = base.extend<{ watched: void }, { world: World }>({
  world: [
    // eslint-disable-next-line no-empty-pattern
    async ({}, use) => {
      const world = await World.open();
      await use(world);
      await world.close();
    },
    { scope: "worker", timeout: 240_000 },
  ],
  watched: [
    async ({ page }, use) => {
      const wrong: string[] = [];
      page.on("pageerror", (error) => wrong.push(String(error)));
      page.on("console", (message) => {
        if (/content security policy/i.test(message.text())) wrong.push(message.text());
      });
      await page.addInitScript(() => {
        document.addEventListener("securitypolicyviolation", (event) => console.error(`Content Security Policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
      });
      await use();
      expect(wrong).toEqual([]);
    },
    { auto: true },
  ],
});

export { expect };
