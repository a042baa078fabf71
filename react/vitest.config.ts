// How the package is tested: the reducer by itself, hooks and chat in a page without a browser, against a real server.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/**/*.test.{ts,tsx}"],
    environment: "node",
    // Servers and workers of several files would stand in each other's way on a small machine.
    fileParallelism: false,
    // A busy machine is given time; what a test waits for comes, or never does.
    testTimeout: 240_000,
    hookTimeout: 120_000,
  },
});
