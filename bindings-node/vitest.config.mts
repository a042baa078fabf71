// Every suite in a process of its own: a test of a process that ends must not end the others.

import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/**/*.test.ts"],
    pool: "forks",
    globalSetup: "tests/postgres.ts",
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // The package is tested as it is built, not as vite would transform it.
    server: { deps: { external: [/\/(esm|dist)\//] } },
  },
});
