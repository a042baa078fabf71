// Signing in, and the list of runs.
import { expect, test } from "./world";

test("a link signs in once, and its code stays nowhere", async ({ page, world, context }) => {
  const code = world.code();
  await page.goto(`${world.url}/sign-in#code=${code}`);
  await page.waitForURL("**/runs");
  const [cookie] = await context.cookies();
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict" });
  expect(await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }) + document.cookie)).not.toContain(code);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL("**/sign-in**");
  await page.goto(`${world.url}/sign-in#code=${code}`);
  await expect(page.getByRole("alert")).toContainText("no longer works");
  expect(page.url()).not.toContain(code);
});

test("a key signs in, a wrong one is refused, and one comes back to where one wanted to be", async ({ page, world }) => {
  await page.goto(`${world.url}/workers`);
  await page.waitForURL("**/sign-in**");
  await page.getByLabel("API key").fill("wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("alert")).toContainText("does not know this key");
  await page.getByLabel("API key").fill(world.token());
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL("**/workers");
  await expect(page.getByRole("heading", { name: "Workers and queues" })).toBeVisible();
});

test("filters are in the address, new runs wait behind a pill, and many are cancelled at once", async ({ page, world }) => {
  await world.ask("POST", "/agent-executions", { kind: "ask", id: "ask-1", input: "How deep?" });
  await world.ask("POST", "/agent-executions", { kind: "broken", id: "broken-1", input: "otter" });
  await world.status("broken-1", "FAILED");
  await world.status("ask-1", "WAITING");
  await world.signIn(page);
  await expect(page.getByRole("row").filter({ hasText: "There is no otter." }).first()).toBeVisible();
  await page.getByLabel("Select otter").first().check();
  await page.getByRole("button", { name: "Retry 1" }).click();
  await page.getByRole("button", { name: "Retry them" }).click();
  await expect(page.getByText("1 was begun again.")).toBeVisible();
  await page.getByLabel("Status").selectOption("WAITING");
  await expect(page).toHaveURL(/status=WAITING/);
  await expect(page.getByRole("link", { name: "How deep?" })).toBeVisible();
  await expect(page.getByRole("link", { name: "otter", exact: true })).toBeHidden();
  await page.reload();
  await expect(page.getByLabel("Status")).toHaveValue("WAITING");
  await page.getByRole("searchbox", { name: "Search" }).fill("HOW deep? ask-1");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/q=HOW/);
  await expect(page.getByRole("link", { name: "How deep?" })).toBeVisible();
  await page.getByRole("searchbox", { name: "Search" }).fill("no-such-word");
  await page.keyboard.press("Enter");
  await expect(page.getByText("No run is like that")).toBeVisible();
  await page.getByRole("searchbox", { name: "Search" }).fill("");

  await world.ask("POST", "/agent-executions", { kind: "ask", id: "ask-2", input: "How wide?" });
  await expect(page.getByRole("button", { name: "1 new" })).toBeVisible();
  await expect(page.getByRole("link", { name: "How wide?" })).toBeHidden();
  await page.getByRole("button", { name: "1 new" }).click();
  await expect(page.getByRole("link", { name: "How wide?" })).toBeVisible();

  for (const name of ["How deep?", "How wide?"]) await page.getByLabel(`Select ${name}`).check();
  await page.getByRole("button", { name: "Cancel 2" }).click();
  await page.getByRole("button", { name: "Ask them to stop" }).click();
  await world.status("ask-1", "CANCELLED");
  await world.status("ask-2", "CANCELLED");
});

test("hundreds of runs are paged as they are scrolled to, and walked by keyboard", async ({ page, world }) => {
  for (let at = 0; at < 250; at += 25) {
    await Promise.all(Array.from({ length: 25 }, (_, index) => world.ask("POST", "/agent-executions", { kind: "nobody", queue: "none", id: `row-${at + index}` })));
  }
  await world.signIn(page);
  await page.goto(`${world.url}/runs?kind=nobody`);
  await expect(page.getByRole("row").nth(3)).toBeVisible();
  expect(await page.getByRole("row").count()).toBeLessThan(70);
  const list = page.getByRole("table", { name: "Runs" }).locator("..");
  await expect(async () => {
    await list.evaluate((element) => (element.scrollTop = element.scrollHeight));
    await expect(page.getByRole("link", { name: "row-0", exact: true })).toBeVisible({ timeout: 500 });
  }).toPass();
  await page.getByRole("link", { name: "row-0", exact: true }).focus();
  await page.keyboard.press("k");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/runs\/row-/);
  await expect(page.getByText("It waits for a worker that serves its kind.")).toBeVisible();
});

test("the palette goes to places and to runs", async ({ page, world }) => {
  await world.signIn(page);
  await expect(page.getByRole("heading", { name: "Runs" })).toBeVisible();
  await page.keyboard.press("Control+k");
  await page.getByPlaceholder("Go to a place").fill("machi");
  await expect(page.getByRole("option", { name: "Machines" })).toHaveAttribute("aria-selected", "true");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/machines/);
  await page.keyboard.press("g");
  await page.keyboard.press("u");
  await expect(page).toHaveURL(/usage/);
});
