// Signing in by an issuer of OpenID Connect that others have written, as people do it: there, and back to the page they wanted.
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test as base, expect } from "@playwright/test";
import type { Page } from "@playwright/test";
import { CLIENT, Issuer } from "../issuer";
import { ended, freePort, until } from "../processes";

interface Installation {
  readonly url: string;
  readonly issuer: Issuer;
}

const test = base.extend<object, { installation: Installation }>({
  installation: [
    // eslint-disable-next-line no-empty-pattern
    async ({}, use) => {
      const home = mkdtempSync(join(tmpdir(), "flovyn-oidc-"));
      const [http, grpc, port] = [await freePort(), await freePort(), await freePort()];
      const url = `http://localhost:${http}`;
      const issuer = await Issuer.open(port, `${url}/api/session/oidc/callback`);
      const config = [
        `db = "sqlite:${join(home, "test.db")}"`,
        `http = "127.0.0.1:${http}"`,
        `grpc = "127.0.0.1:${grpc}"`,
        "[oidc]",
        `issuer = "${issuer.url}"`,
        `client_id = "${CLIENT.id}"`,
        `public_url = "${url}"`,
        'label = "Example"',
        'grants = { operators = "admin", staff = "viewer" }',
      ];
      writeFileSync(join(home, "flovyn.toml"), config.join("\n"));
      const log = openSync(join(home, "server.log"), "a");
      const environment = { ...process.env, FLOVYN_HOME: home, FLOVYN_OIDC_SECRET: CLIENT.secret };
      const server: ChildProcess = spawn(process.env.FLOVYN_BIN ?? "flovyn", ["server", "--config", join(home, "flovyn.toml")], { env: environment, stdio: ["ignore", log, log] });
      const isReady = () => fetch(`${url}/_/ready`).then((answer) => answer.ok, () => false);
      await until("the server is ready", isReady);
      await use({ url, issuer });
      await ended(server);
      await issuer.close();
      rmSync(home, { recursive: true, force: true });
    },
    { scope: "worker", timeout: 120_000 },
  ],
});

/** Goes to a page that needs signing in, and says to the issuer who one is. */
async function signIn(page: Page, { url }: Installation, path: string, who: string): Promise<void> {
  await page.goto(url + path);
  await page.getByRole("link", { name: "Sign in with Example" }).click();
  await page.getByPlaceholder("Enter any login").fill(who);
  await page.getByPlaceholder("and password").fill("anything");
  await page.getByRole("button", { name: "Sign-in" }).click();
  await page.getByRole("button", { name: "Continue" }).click();
}

test("a person comes back to the page they wanted, and may do what their groups may", async ({ page, installation }) => {
  await signIn(page, installation, "/keys", "ann");
  await expect(page.getByRole("heading", { name: "API keys" })).toBeVisible();
  await expect(page).toHaveURL(`${installation.url}/keys`);
  await expect(page.getByText("browser session of ann@example.com")).toBeVisible();
  // Browsers send the issuer's cookies along, since it is on another port of the same host.
  const cookies = (await page.context().cookies(installation.url)).filter((cookie) => cookie.name.startsWith("flovyn"));
  expect(cookies.map((cookie) => [cookie.name.replace(/_\d+$/, ""), cookie.httpOnly, cookie.sameSite])).toEqual([["flovyn_session", true, "Strict"]]);
});

test("somebody of another group sees what that group may see", async ({ page, installation }) => {
  await signIn(page, installation, "/runs", "bob");
  await expect(page.getByRole("heading", { name: "Runs" })).toBeVisible();
  const refused = await page.evaluate(() => fetch("/api/orgs/default/api-keys").then((answer) => answer.status));
  expect(refused).toBe(403);
});

test("somebody of no group is told so, and can try as somebody else", async ({ page, installation }) => {
  await signIn(page, installation, "/runs", "eve");
  await expect(page.getByRole("alert")).toContainText("may do nothing here");
  await expect(page).toHaveURL(`${installation.url}/sign-in`);
  await expect(page.getByRole("link", { name: "Sign in with Example" })).toBeVisible();
});

test("who goes back from the issuer is told that they were not signed in", async ({ page, installation }) => {
  await page.goto(`${installation.url}/runs`);
  await page.getByRole("link", { name: "Sign in with Example" }).click();
  await page.getByRole("link", { name: "[ Cancel ]" }).click();
  await expect(page.getByRole("alert")).toContainText("not signed in there");
});
