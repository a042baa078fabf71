// A run as it is looked at: live, decided, steered, drilled into, and whole after whatever happens.
import { expect, test } from "./world";

const log = (page: import("@playwright/test").Page) => page.getByRole("log", { name: "Conversation" });

test("an answer streams in, and stands once when it is done", async ({ page, world }) => {
  await world.signIn(page);
  await world.start("story-1", "A long story about otters, please.");
  await page.goto(`${world.url}/runs/story-1`);
  await expect(page.getByRole("article", { name: "Being written" })).toBeVisible();
  await expect(page.getByTestId("connection")).toHaveText("Live");
  const words = () => log(page).innerText().then((text) => text.length);
  const before = await words();
  await expect.poll(words).toBeGreaterThan(before + 200);
  await world.status("story-1", "COMPLETED");
  await expect(page.getByRole("article", { name: "Being written" })).toBeHidden();
  await expect(page.getByRole("article", { name: "From the agent" })).toHaveCount(1);
});

test("a server and a worker that are killed mid-token lose and double nothing", async ({ page, world }) => {
  await world.start("clean-1", "A long story about otters, please.");
  await world.status("clean-1", "COMPLETED");
  await world.signIn(page);
  await page.goto(`${world.url}/runs/clean-1`);
  const whole = await page.getByRole("article", { name: "From the agent" }).locator(".prose").innerText();

  await world.start("killed-1", "A long story about otters, please.");
  await page.goto(`${world.url}/runs/killed-1`);
  await expect(page.getByRole("article", { name: "Being written" })).toContainText("crayfish");
  await Promise.all([world.killServer(), world.killWorker()]);
  await expect(page.getByTestId("connection")).toHaveText("Reconnecting");
  await world.startServer();
  await world.startWorker();
  await expect(page.getByTestId("connection")).toHaveText(/Live|Connected/);
  await world.status("killed-1", "COMPLETED");
  await expect(page.getByRole("article", { name: "From the agent" })).toHaveCount(1);
  await expect(page.getByRole("article", { name: "Being written" })).toBeHidden();
  expect(await page.getByRole("article", { name: "From the agent" }).locator(".prose").innerText()).toBe(whole);
  await page.getByRole("tab", { name: "Timeline" }).click();
  await expect(page.getByRole("listitem").filter({ hasText: "The worker was lost" })).toBeVisible();
  await expect(page.getByRole("listitem").filter({ hasText: "Recovered: a worker goes on from the last checkpoint" })).toBeVisible();
});

test("a call is denied in place, with a reason that the model is told", async ({ page, world }) => {
  await world.signIn(page);
  await world.start("publish-1", "Please publish otters.");
  await page.goto(`${world.url}/runs/publish-1`);
  await page.getByRole("button", { name: "Deny…" }).click();
  await page.getByLabel("Why not").fill("Not yet.");
  await page.getByRole("button", { name: "Deny" }).click();
  await world.status("publish-1", "COMPLETED");
  await page.getByRole("button", { name: "publish" }).click();
  await expect(page.getByText("“Not yet.”")).toBeVisible();
  await expect(page.getByText("denied", { exact: true })).toBeVisible();
});

test("the inbox has the questions of all runs, and the second who decides is told that it is decided", async ({ page, world, context }) => {
  await world.start("publish-2", "Please publish beavers.");
  await world.status("publish-2", "WAITING");
  await world.signIn(page);
  await page.goto(`${world.url}/approvals`);
  const second = await context.newPage();
  await second.goto(`${world.url}/approvals`);
  const card = (of: typeof page) => of.getByRole("listitem").filter({ hasText: "beavers" });
  await expect(card(second).getByRole("button", { name: "Approve" })).toBeVisible();
  await world.killWorker();
  await card(page).getByRole("button", { name: "Approve" }).click();
  await expect(card(page).getByText("Approved. The agent takes it up…")).toBeVisible();
  await card(second).getByRole("button", { name: "Deny…" }).click();
  await card(second).getByRole("button", { name: "Deny" }).click();
  await expect(second.getByText("Already decided")).toBeVisible();
  await world.startWorker();
  await world.status("publish-2", "COMPLETED");
  await expect(card(page)).toBeHidden();
  await page.getByRole("tab", { name: "Decided" }).click();
  await expect(page).toHaveURL(/decided=true/);
  await expect(page.getByRole("row").filter({ hasText: "approved" }).first()).toBeVisible();
  await expect(page.getByRole("row").filter({ hasText: "denied" }).filter({ hasText: (await world.ask<{ id: string }>("GET", "/agent-executions/publish-2")).id })).toHaveCount(0);
});

test("a call is approved with other arguments, for the rest of the run, without opening it", async ({ page, world }) => {
  await world.start("publish-edited", "Please publish minks.");
  await world.status("publish-edited", "WAITING");
  await world.signIn(page);
  await page.goto(`${world.url}/approvals`);
  const card = page.getByRole("listitem").filter({ hasText: "minks" });
  await card.getByRole("button", { name: "Edit…" }).click();
  const box = card.getByRole("textbox", { name: "Arguments" });
  await box.fill("{ no JSON");
  await expect(card.getByText("This is no JSON object.")).toBeVisible();
  await expect(card.getByRole("button", { name: "Approve these" })).toBeDisabled();
  await box.fill('{ "title": "Minks <b>", "words": 7 }');
  await card.getByLabel(/For the rest of this run/).check();
  await card.getByRole("button", { name: "Approve these" }).click();
  await world.status("publish-edited", "COMPLETED");
  await page.goto(`${world.url}/runs/publish-edited`);
  await page.getByRole("button", { name: "publish" }).click();
  await expect(page.getByText("Minks <b> is published with 7 words.").first()).toBeVisible();
  await expect(page.getByText(/for the rest of the run, with other arguments/)).toBeVisible();
});

test("a child is opened in place, decided there, and left with Escape", async ({ page, world }) => {
  await world.signIn(page);
  await world.start("delegate-1", "Please delegate otters.");
  await page.goto(`${world.url}/runs/delegate-1`);
  const child = page.getByRole("region", { name: "Call of scout" }).filter({ hasText: "publish rivers" });
  await expect(child.getByText("for an approval")).toBeVisible();
  await child.getByRole("button", { name: "Open" }).click();
  await expect(page).toHaveURL(/child=/);
  await expect(page.getByRole("navigation", { name: "Where this run belongs" })).toContainText("delegate-1");
  await page.getByRole("button", { name: "Approve" }).click();
  await expect(page.getByText("That is done.").first()).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page).not.toHaveURL(/child=/);
  await expect(page.getByText("Both scouts are back").first()).toBeVisible();
  await page.getByRole("tab", { name: "Family" }).click();
  await expect(page.getByRole("row").filter({ hasText: "scout" })).toHaveCount(2);
});

test("a chat is steered, and hears what was said", async ({ page, world }) => {
  await world.signIn(page);
  await world.start("chat-1", "Hello.", { config: { mode: "chat" } });
  await world.status("chat-1", "WAITING");
  await page.goto(`${world.url}/runs/chat-1`);
  await page.getByRole("textbox", { name: "Message" }).fill("Give me the survey.");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("article", { name: "From the user" }).filter({ hasText: "Give me the survey." })).toHaveCount(1);
  await expect(page.getByRole("cell", { name: "crayfish" })).toBeVisible();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("button", { name: "Ask it to stop" }).click();
  await world.status("chat-1", "CANCELLED");
  await expect(page.getByText("Cancelled").first()).toBeVisible();
});

test("what models and tools say is never run", async ({ page, world }) => {
  await world.start("hostile-1", "Please be hostile.");
  await world.status("hostile-1", "COMPLETED");
  await world.signIn(page);
  await page.goto(`${world.url}/runs/hostile-1`);
  await expect(log(page).getByText("<script>window.pwned=1</script>")).toBeVisible();
  await page.getByRole("button", { name: "hostile_tool" }).click();
  await expect(page.getByText("<img src=x onerror=window.pwned=1>", { exact: false }).first()).toBeVisible();
  for (const tab of ["Timeline", "Entries", "Usage"]) {
    await page.getByRole("tab", { name: tab }).click();
    await page.waitForTimeout(200);
  }
  expect(await page.evaluate(() => "pwned" in window)).toBe(false);
  expect(await page.locator("a[href^='javascript']").count()).toBe(0);
  expect(await log(page).locator("img").count()).toBe(0);
});

test("a run that failed says why, is inspected, forked and exported", async ({ page, world }) => {
  await world.start("survey-1", "Please give a survey.");
  await world.status("survey-1", "COMPLETED");
  await world.ask("POST", "/agent-executions", { kind: "broken", id: "broken-2", input: "otter" });
  await world.status("broken-2", "FAILED");
  await world.signIn(page);
  await page.goto(`${world.url}/runs/broken-2`);
  await expect(page.getByText("There is no otter.").first()).toBeVisible();
  await page.getByRole("button", { name: "Retry" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Retry" }).click();
  await expect(page.getByRole("dialog")).toBeHidden();

  await page.goto(`${world.url}/runs/survey-1?tab=tree`);
  await page.getByRole("button").filter({ hasText: "Please give a survey." }).click();
  await expect(page.getByRole("complementary", { name: "Inspector" })).toContainText("Please give a survey.");
  await page.getByRole("button", { name: "Fork from here" }).click();
  await page.getByRole("dialog").getByLabel("Its id (optional)").fill("survey-fork");
  await page.getByRole("dialog").getByRole("button", { name: "Fork" }).click();
  await expect(page).toHaveURL(/\/runs\/[0-9a-f-]{36}/);
  await world.status("survey-fork", "COMPLETED");
  await expect(page.getByRole("article", { name: "From the agent" })).toHaveCount(1);

  await page.getByRole("button", { name: "More", exact: true }).first().click();
  const download = page.waitForEvent("download");
  await page.getByRole("menuitem", { name: "Export as Markdown" }).click();
  expect((await download).suggestedFilename()).toBe("survey-fork.md");
});

test("two runs are compared", async ({ page, world }) => {
  await world.start("left-1", "Please give a survey.");
  await world.start("right-1", "Just say hello.");
  await world.status("left-1", "COMPLETED");
  await world.status("right-1", "COMPLETED");
  await world.signIn(page);
  for (const name of ["Please give a survey.", "Just say hello."]) await page.getByLabel(`Select ${name}`).first().check();
  await page.getByRole("link", { name: "Compare" }).click();
  await expect(page.getByRole("region", { name: "Difference" })).toContainText("Just say hello.");
  await expect(page.getByRole("region", { name: "Difference" })).toContainText("What otters eat");
});

test("a run is started from the form", async ({ page, world }) => {
  await world.signIn(page);
  await page.getByRole("link", { name: "New run" }).click();
  await page.getByLabel("Prompt").fill("A survey, please.");
  await expect(page.getByLabel("The same as a program")).toContainText('"userPrompt": "A survey, please."');
  await page.getByRole("button", { name: "Start" }).click();
  await expect(page.getByRole("cell", { name: "crayfish" })).toBeVisible();
  // Its code is coloured, by a worker that the policy lets begin.
  await expect(page.locator("pre code span[style]").first()).toBeVisible();
});
