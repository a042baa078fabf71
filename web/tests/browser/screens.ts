// Pictures of every screen for people to look at, in both themes, on a desk and on a phone: `make screenshots`.
import { expect, test } from "./world";
import type { World } from "./world";

const folder = process.env.SCREENSHOTS ?? "../target/screenshots";
const sizes = { desk: { width: 1440, height: 900 }, phone: { width: 380, height: 800 } } as const;
const themes = ["light", "dark"] as const;

/** What is shown, by the name of its picture. */
const screens = {
  "01-runs": "/runs",
  "02-new-run": "/runs/new",
  "03-conversation": "/runs/mend",
  "04-timeline": "/runs/mend?tab=timeline",
  "05-files": "/runs/mend?tab=files",
  "06-entries": "/runs/mend?tab=tree",
  "07-state": "/runs/mend?tab=state",
  "08-usage-of-a-run": "/runs/mend?tab=usage",
  "09-family": "/runs/delegate?tab=family",
  "10-an-approval": "/runs/publish",
  "11-a-failure": "/runs/broken",
  "12-compare": "/compare?left=mend&right=survey",
  "13-approvals": "/approvals",
  "14-definitions": "/definitions",
  "15-schedules": "/schedules",
  "16-workers": "/workers",
  "17-machines": "/machines",
  "18-usage": "/usage",
  "19-keys": "/keys",
  "20-audit": "/audit",
} as const;

/** Runs in many states, and something on every page. */
async function furnish(world: World): Promise<void> {
  await world.ask("POST", "/agent-definitions", { slug: "otters", kind: "react-agent", name: "Otters", systemPrompt: "You know otters." });
  await world.ask("POST", "/schedules", { id: "daily", cron: "0 9 * * *", kind: "react-agent", timezone: "Europe/Vienna", input: { prompt: "survey" } });
  await world.ask("POST", "/agent-executions", { kind: "broken", id: "broken", input: "otter" });
  await world.ask("POST", "/agent-executions", { kind: "ask", id: "question", input: "Which river?" });
  await world.start("survey", "a survey of otters, please");
  await world.start("mend", "mend the sums");
  await world.start("publish", "publish it");
  await world.start("delegate", "delegate this");
  await world.status("broken", "FAILED");
  await world.status("survey", "COMPLETED");
}

test("every screen is drawn", async ({ browser, world }) => {
  test.setTimeout(600_000);
  await furnish(world);
  for (const [size, viewport] of Object.entries(sizes)) {
    for (const colorScheme of themes) {
      const context = await browser.newContext({ viewport, colorScheme, reducedMotion: "reduce" });
      const page = await context.newPage();
      await page.goto(`${world.url}/sign-in`);
      await expect(page.getByRole("button", { name: "Sign in" })).toBeVisible();
      await page.screenshot({ path: `${folder}/00-sign-in-${size}-${colorScheme}.png` });
      await world.signIn(page);
      for (const [name, path] of Object.entries(screens)) {
        await page.goto(world.url + path);
        await expect(page.getByRole("main")).toBeVisible();
        // Nothing says when a page that is always asked anew has come to rest.
        await page.waitForTimeout(1_500);
        await page.screenshot({ path: `${folder}/${name}-${size}-${colorScheme}.png` });
      }
      await context.close();
    }
  }
});
