// How the browser tests run: one Chromium, one worker, the processes of each file its own.
import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: "tests/browser",
  testMatch: process.env.SCREENSHOTS ? "screens.ts" : "*.spec.ts",
  outputDir: "test-results",
  workers: 1,
  // A busy machine is given time; what a test waits for comes, or never does.
  timeout: 240_000,
  expect: { timeout: 60_000 },
  reporter: [["list"]],
  use: {
    browserName: "chromium",
    viewport: { width: 1440, height: 900 },
    launchOptions: { executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] },
  },
});
