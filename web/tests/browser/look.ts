// Pictures of screens for people to look at: LOOK_URL and LOOK_TOKEN name a server, LOOK_PATHS what to show of it.
import { expect, test } from "@playwright/test";

const sizes = { wide: { width: 1440, height: 900 }, phone: { width: 380, height: 800 } } as const;

test("looks", async ({ browser }) => {
  test.setTimeout(300_000);
  const url = process.env.LOOK_URL ?? "";
  const paths = (process.env.LOOK_PATHS ?? "/runs").split(" ");
  const looks = (process.env.LOOKS ?? "wide-light wide-dark phone-light phone-dark").split(" ");
  for (const look of looks) {
    const [size, colorScheme] = look.split("-") as [keyof typeof sizes, "light" | "dark"];
    const context = await browser.newContext({ viewport: sizes[size], colorScheme });
    const page = await context.newPage();
    page.on("console", (message) => {
      if (message.type() === "error") console.log(look, message.text());
    });
    page.on("pageerror", (error) => console.log(look, String(error)));
    const answer = await context.request.post(`${url}/api/session`, { data: { token: process.env.LOOK_TOKEN } });
    expect(answer.ok()).toBe(true);
    for (const path of paths) {
      await page.goto(url + path);
      await page.waitForTimeout(Number(process.env.LOOK_WAIT ?? 1500));
      await page.screenshot({ path: `.screens/${look}${path.replace(/[^a-z0-9]+/gi, "_")}.png` });
    }
    await context.close();
  }
});
